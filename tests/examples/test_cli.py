"""The command `pullback`."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

import pullback
from pullback import cli, native
from repo_files import ROOT


def test_info_names_versions_and_machine(capsys):
    assert cli.main(["info"]) == 0
    rows = dict(
        line.split("  ", maxsplit=1) for line in capsys.readouterr().out.rstrip().splitlines()
    )
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["pullback"] == pullback.__version__
    assert rows["jax"] == metadata.version("jax")
    assert rows["jaxlib"] == metadata.version("jaxlib")
    assert rows["llvmlite"] == metadata.version("llvmlite")
    assert rows["LLVM"].split(".")[0].isdecimal()
    assert native.cpu_name() in rows["processor"]
    assert rows["threads"] == str(native.num_threads())
    assert "float64" in rows["vector registers"]
    assert "own polynomials" in rows["vector math"]
    assert "EnsembleArray" in rows["executors"]
    assert str(native.cache_directory()) in rows["kernel cache"]


def test_info_works_without_optional_packages_and_without_a_kernel(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_OPTIONAL", ("no-such-package",))
    monkeypatch.setattr(native, "is_supported", lambda: False)
    monkeypatch.setattr(native, "unsupported_reason", lambda: "it is an abacus")
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert "not installed" in out
    assert "EnsembleArray; no EnsembleKernel: it is an abacus" in out


def test_demo_prints_the_table_and_draws(capsys, tmp_path):
    path = tmp_path / "out.png"
    arguments = ["--starts", "16", "--iterations", "20", "--seed", "3", "--output", str(path)]
    assert cli.main(["demo", *arguments]) == 0
    captured = capsys.readouterr()
    assert "16 random starts at once" in captured.out
    assert "of 16 starts found the best fit" in captured.out
    assert "updates" in captured.err, "the progress bar"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--starts", "none"], "a positive whole number is expected, not 'none'"),
        (["demo", "--iterations", "0"], "a positive whole number is expected, not '0'"),
        (["demo", "--output", "no/such/x.png"], "the folder 'no/such' does not exist"),
        ([], "command"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_extra_is_a_sentence_not_a_traceback(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    assert cli.main(["demo", "--starts", "2", "--iterations", "1", "--output", ""]) == 1
    assert capsys.readouterr().err.startswith("pullback demo: the demo needs Optax")


def test_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "pullback", "--version"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"pullback {pullback.__version__}\n", done.stderr
