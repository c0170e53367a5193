"""Files and functions stay small enough to read."""

import ast

import pytest

from repo_files import name_of, python_files

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 100
# A file is a table of data when all its functions together are shorter than this.
MAX_FUNCTION_LINES_OF_A_TABLE = 60


def functions(source: str) -> list[tuple[str, int]]:
    """Return the name and the length of every function, its docstring not counted."""
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is None:
        return 0
    return (first.end_lineno or first.lineno) - first.lineno + 1


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_sizes(path):
    source = path.read_text(encoding="utf-8")
    sizes = functions(source)
    long = {name: size for name, size in sizes if size > MAX_FUNCTION_LINES}
    assert long == {}, f"functions of more than {MAX_FUNCTION_LINES} lines"
    is_table = sum(size for _, size in sizes) < MAX_FUNCTION_LINES_OF_A_TABLE
    assert is_table or len(source.splitlines()) <= MAX_FILE_LINES


def test_no_drawer_for_everything():
    drawers = {"utils", "util", "misc", "helpers", "common"}
    assert [name_of(path) for path in python_files() if path.stem in drawers] == []
