"""The layers contract, and the rules about imports that it cannot express."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from repo_files import PACKAGE, ROOT, imports, module_of, name_of, python_files

# Optional packages, and the folder or file that alone may import them.
OPTIONAL = {
    "diffrax", "enzyme_ad", "equinox", "h5py", "matplotlib", "mpi4py", "optax", "scipy",
    "tensorflow", "torch", "xarray",
}  # fmt: skip
PRIVATE_JAX_ALLOWED = "src/pullback/core/compat.py"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(
        [command, "--config", folder / "pyproject.toml", "--no-cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_layers_contract_is_kept():
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("core", "ode"), ("lanes", "mpi"), ("ode", "ensemble"), ("native", "lanes")],
)
def test_contract_catches_an_upward_or_sideways_import(tmp_path, importer, imported):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    layers = ["core", "data", "native", "lanes", "mpi", "ode", "ensemble", "testing", "cli"]
    for layer in ["", *layers]:
        folder = tmp_path / "src" / "pullback" / layer
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    wrong = tmp_path / "src" / "pullback" / importer / "wrong.py"
    wrong.write_text(f"import pullback.{imported}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "0 kept, 1 broken" in done.stdout, done.stdout + done.stderr


def test_earth_uses_neither_lanes_nor_foreign():
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in python_files(PACKAGE / "earth")
        for name, line in imports(path)
        if name.startswith(("pullback.lanes", "pullback.foreign"))
    ]
    assert wrong == []


def test_private_parts_of_jax_only_in_compat():
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in python_files()
        if name_of(path) != PRIVATE_JAX_ALLOWED
        for name, line in imports(path)
        if name.split(".")[0] in ("jax", "jaxlib")
        and any(part.startswith("_") for part in name.split("."))
    ]
    assert wrong == [], f"only {PRIVATE_JAX_ALLOWED} may use private parts of jax"


def test_each_optional_package_is_imported_in_one_place():
    places: defaultdict[str, set[str]] = defaultdict(set)
    for path in python_files():
        for name, _ in imports(path):
            if (top := name.split(".")[0]) in OPTIONAL:
                places[top].add(module_of(path))
    assert {top: where for top, where in places.items() if len(where) > 1} == {}


def test_imports_are_absolute():
    wrong = [
        f"{name_of(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.lstrip().startswith("from .")
    ]
    assert wrong == []
