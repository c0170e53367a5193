"""The files of this repository, for the tests that look at them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "pullback"

_WRITTEN = (
    ".ci", ".github", "benchmarks", "design", "docs", "examples", "src", "tests", "tools",
)  # fmt: skip
_SUFFIXES = {"", ".bib", ".cff", ".csv", ".md", ".py", ".sh", ".toml", ".typed", ".yaml", ".yml"}


def python_files(folder: Path = PACKAGE) -> list[Path]:
    """Every Python file below `folder`, sorted."""
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def text_files() -> list[Path]:
    """Every text file that people write: in the root folder and in the known folders."""
    inside = [p for name in _WRITTEN for p in (ROOT / name).rglob("*")]
    return sorted(
        p
        for p in [*ROOT.iterdir(), *inside]
        if p.is_file() and p.suffix in _SUFFIXES and "__pycache__" not in p.parts
    )


def name_of(path: Path) -> str:
    """A path relative to the root, for messages and test names."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """The dotted name of a module of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The absolute dotted names that a file imports anywhere, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
