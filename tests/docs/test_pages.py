"""Every Python block of the README and of the documentation pages runs as a reader would run it.

A `text` block right behind a Python block is what that prints, up to white space; `...` stands for
anything.
"""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from repo_files import ROOT, name_of

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^ *```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of one language: the line each starts at, and its text unindented."""
    found = []
    for match in BLOCK.finditer(text):
        if match["language"] == language:
            width = len(match["indent"])
            code = "\n".join(line[width:] for line in match["code"].splitlines())
            found.append((text.count("\n", 0, match.start("code")) + 1, code))
    return found


def program(text: str) -> str:
    """The Python blocks of a page as one program, each at its own line of the page."""
    lines: list[str] = []
    for start, code in blocks(text, "python"):
        lines += [""] * (start - 1 - len(lines)) + code.splitlines()
    return "\n".join(lines) + "\n"


def outputs(text: str) -> list[str]:
    """What the Python blocks of a page print, as the page says."""
    fences = list(BLOCK.finditer(text))
    return [
        after["code"]
        for before, after in pairwise(fences)
        if (before["language"], after["language"]) == ("python", "text")
        and not text[before.end() : after.start()].strip()
    ]


def not_printed(expected: list[str], printed: str) -> list[str]:
    """Those of the expected outputs that do not occur in what was printed, in order."""
    missing, rest = [], " ".join(printed.split())
    for text in expected:
        words = [".*?".join(map(re.escape, word.split("..."))) for word in text.split()]
        found = re.search(" ".join(words), rest)
        if found is None:
            missing.append(text)
        else:
            rest = rest[found.end() :]
    return missing


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p.read_text(), "python")], ids=name_of)
def test_python_blocks_run(page, tmp_path):
    script = tmp_path / page.name
    script.write_text(program(page.read_text()))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not_printed(outputs(page.read_text()), done.stdout) == [], done.stdout


def test_outputs_are_compared_in_order_with_gaps():
    page = "```python\nprint(1)\n```\n\n```text\n1 ... 2\n```\n\nelse\n\n```text\nno output\n```\n"
    assert outputs(page) == ["1 ... 2\n"]
    assert not_printed(["a ...\nd", "e"], "a b c\n  d\ne") == []
    assert not_printed(["e", "a"], "a b e") == ["a"]
    assert not_printed(["0.49..."], "0.5") == ["0.49..."]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_names_its_language(page):
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.M)
    assert [i for i, info in enumerate(fences[::2]) if not info.strip()] == []
    assert len(fences) % 2 == 0, "a block is not closed"
    assert all(info == "" for info in fences[1::2])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_exist(page):
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_readme_names_the_commands_and_targets_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    assert {"make demo", "make test"} <= set(re.findall(r"make [a-z-]+", readme))
    for target in set(re.findall(r"`make ([a-z-]+)", readme)):
        assert re.search(rf"^{target}:", makefile, re.M), f"`make {target}`"


def test_readme_lists_every_environment_variable():
    used = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\bPULLBACK_[A-Z_]+[A-Z]\b", path.read_text())
    }
    assert used - set(re.findall(r"PULLBACK_[A-Z_]+", (ROOT / "README.md").read_text())) == set()
