"""Every source that the code cites as `[KEY]` is in the bibliography, and every entry is cited."""

import io
import re
import tokenize

import pytest

from repo_files import ROOT, name_of, python_files

BIBLIOGRAPHY = ROOT / "references.bib"
# [HNW93], [GW00], [Tsi11a]: letters, then two digits of the year, then perhaps a letter.
KEY = re.compile(r"\[([A-Z][A-Za-z]+\d{2}[a-z]?)\]")
REQUIRED = {
    "article": {"author", "title", "journal", "year"},
    "book": {"author", "title", "publisher", "year"},
    "incollection": {"author", "title", "booktitle", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "misc": {"author", "title", "year"},
    "phdthesis": {"author", "title", "school", "year"},
    "techreport": {"author", "title", "institution", "year"},
}


def citations(source: str) -> set[str]:
    """Keys in comments and strings only: `x[A12]` in code is no citation."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        key
        for token in tokens
        if token.type in (tokenize.COMMENT, tokenize.STRING)
        for key in KEY.findall(token.string)
    }


def entries() -> dict[str, tuple[str, set[str]]]:
    """Each entry's kind and fields by its key."""
    text = BIBLIOGRAPHY.read_text()
    found: dict[str, tuple[str, set[str]]] = {}
    for kind, key, body in re.findall(r"^@(\w+)\{([^,\s]+),\n(.*?)^\}", text, re.M | re.S):
        assert key not in found, f"{key} twice"
        found[key] = (kind.lower(), set(re.findall(r"^ *(\w+) *=", body, re.M)))
    assert text.count("@") == len(found), "an entry could not be read"
    return found


ALL_CITED = {key for path in python_files() for key in citations(path.read_text())}


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_cited_keys_exist(path):
    assert citations(path.read_text()) - set(entries()) == set()


def test_entries_are_cited_and_complete():
    assert set(entries()) - ALL_CITED == set()
    for key, (kind, fields) in entries().items():
        assert REQUIRED[kind] - fields == set(), key


def test_citations_are_read_from_comments_and_strings_only():
    source = '"""See [HNW93]."""\nx = table[A12]  # [GW00] eq. (3)\n'
    assert citations(source) == {"HNW93", "GW00"}
