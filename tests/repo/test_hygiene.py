"""Nothing of the machine it was written on is left in the repository."""

import re

import pytest

from repo_files import ROOT, name_of, text_files

# Top folders of the machines that this was developed on, and temporary files by absolute path.
_FOLDERS = ("work", "farm", "root", "home", "Users")
MACHINE_PATH = re.compile(rf"(?<![\w.*)/~-])/(?:{'|'.join(_FOLDERS)})/\w")
MAX_BYTES = 400_000
LICENCE = "LICENSE"


@pytest.mark.parametrize("path", text_files(), ids=name_of)
def test_no_machine_paths_and_no_large_files(path):
    assert path.stat().st_size <= MAX_BYTES
    text = path.read_text(encoding="utf-8")
    assert [match.group() for match in MACHINE_PATH.finditer(text)] == []


def test_pattern_finds_paths_and_leaves_others():
    assert MACHINE_PATH.search("cd /" + "work/main")
    assert MACHINE_PATH.search('"/' + 'home/me/x"')
    assert not MACHINE_PATH.search("docs/work/main and https://host/home/page")


def test_files_that_a_release_needs():
    for name in (
        "ARCHITECTURE.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", LICENCE, "Makefile",
        "README.md", ".ci/run", "src/pullback/py.typed",
    ):  # fmt: skip
        assert (ROOT / name).is_file(), name
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, ".ci/run is executable"
