"""What the pages say about the code is what the code says: tables, citations, names, options."""

import importlib.util
import inspect
import re
import sys
import typing

import pytest

import pullback as pb
from pullback.lanes.elementary.accuracy import MAX_ULP
from pullback.ode import ExplicitRungeKutta, Method
from repo_files import ROOT, name_of

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def load_tables():
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tables = load_tables()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_are_those_of_the_code(page):
    text = page.read_text()
    assert tables.fill(text) == text, "run `python docs/tables.py`"


def test_every_table_is_on_one_page():
    text = "".join(page.read_text() for page in PAGES)
    assert sorted(m["name"] for m in tables.TABLE.finditer(text)) == sorted(tables.TABLES)


def test_a_changed_table_is_noticed():
    text = (DOCS / "methods.md").read_text()
    assert tables.fill(text.replace("| 5 |", "| 6 |")) == text


def test_methods_and_their_numbers_are_in_the_table():
    rows = [re.split(r" *\| *", line)[1:-1] for line in tables.method_table().splitlines()[2:]]
    found = {row[0]: row[1:4] for row in rows}
    assert found["`pb.Tsit5()`"] == ["5", "4", "7"]
    assert found["`pb.RK4()`"] == ["4", "–", "4"]
    public = [getattr(pb, name) for name in pb.__all__]
    methods = [m for m in public if inspect.isclass(m) and issubclass(m, ExplicitRungeKutta)]
    assert set(found) == {f"`pb.{m.__name__}()`" for m in methods}


def test_every_method_is_in_a_table():
    families = ("methods", "stiff-methods", "additive-methods", "symplectic-methods")
    text = "".join(tables.TABLES[name]() for name in (*families, "stochastic-methods"))
    text += tables.TABLES["cells"]()  # one that is made of two others is in none of them
    classes = [m for m in vars(pb).values() if inspect.isclass(m) and issubclass(m, Method)]
    assert [m.__name__ for m in classes if f"`pb.{m.__name__}()`" not in text] == []


def test_every_elementary_function_is_in_the_table():
    table = tables.accuracy_table()
    assert [name for name in MAX_ULP if f"`{name}` {MAX_ULP[name]:g}" not in table] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_citations_are_in_the_bibliography(page):
    assert set(tables.KEY.findall(page.read_text())) - set(tables.bibliography()) == set()


def test_every_entry_of_the_bibliography_is_read_whole():
    text = (ROOT / "references.bib").read_text()
    assert len(tables.bibliography()) == len(re.findall(r"^@", text, re.M))
    for key, entry in tables.bibliography().items():
        assert {"author", "title", "year"} <= set(entry), key
        assert not re.search(r"[{}\\]", "".join(entry.values())), key


@pytest.mark.parametrize("name", pb.__all__)
def test_every_public_name_has_an_api_page(name):
    value = getattr(pb, name)
    if inspect.isclass(value) and issubclass(value, Method):
        return  # in the tables of methods
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    assert re.search(rf"^::: pullback\.(ensemble\.{name}\.)?{name}$", text, re.M)


def test_code_of_other_libraries_stands_on_the_porting_page_only():
    unusual = re.compile(r"^ *```(py|python3|pycon|py3)\b", re.M)
    assert {name_of(p) for p in PAGES if unusual.search(p.read_text())} == {"docs/porting.md"}


def test_all_choices_of_the_adjoint_are_named():
    hints = typing.get_type_hints(pb.DiscreteAdjoint)
    page = (DOCS / "how-to" / "gradients.md").read_text()
    choices = typing.get_args(hints["on_unresolved"])
    assert len(choices) > 1
    assert [c for c in choices if f'| `"{c}"` |' not in page] == []


@pytest.mark.parametrize("function", [pb.solve], ids=lambda f: f.__name__)
def test_options_that_are_not_available_are_named(function):
    options = re.findall(r"^ *(\w+): not available yet\.", inspect.getdoc(function), re.M)
    porting = (DOCS / "porting.md").read_text()
    assert [name for name in options if f"`{name}=`" not in porting] == []


def test_settings_are_those_of_the_readme():
    names = [
        set(re.findall(r"^\| `(PULLBACK_[A-Z_]+)` \|", path.read_text(), re.M))
        for path in (ROOT / "README.md", DOCS / "how-to" / "performance.md")
    ]
    assert names[0] == names[1] != set()
