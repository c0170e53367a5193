"""What is installed: the wheel holds the package, its data and the command, and nothing else."""

import os
import zipfile

import pytest
from hatchling.build import build_wheel

from repo_files import PACKAGE, ROOT, name_of, python_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        name = build_wheel(str(folder))
    finally:
        os.chdir(before)
    with zipfile.ZipFile(folder / name) as archive:
        yield archive


def test_wheel_is_pure_python(wheel):
    assert wheel.filename.endswith("-py3-none-any.whl")


def test_wheel_holds_every_module_and_data_file(wheel):
    wanted = {name_of(p).removeprefix("src/") for p in python_files()}
    wanted |= {f"pullback/data/{p.name}" for p in (PACKAGE / "data").glob("*.csv")}
    wanted |= {"pullback/py.typed"}
    assert wanted - set(wheel.namelist()) == set()


def test_wheel_holds_nothing_else(wheel):
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert top == {"pullback", "pullback-0.1.0.dist-info"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_wheel_declares_command_licence_and_dependencies(wheel):
    info = "pullback-0.1.0.dist-info/"
    assert "pullback = pullback.cli:main" in wheel.read(info + "entry_points.txt").decode()
    assert info + "licenses/LICENSE" in wheel.namelist()
    metadata = wheel.read(info + "METADATA").decode()
    required = [
        line.split(":")[1].strip()
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert sorted(required) == ["jax>=0.10.2", "llvmlite>=0.50", "numpy>=2.0", "tqdm>=4.66"]
