"""Tables of the pages, made from the code: the site can only show what there is.

A page holds its table between two comments, `<!-- table: NAME -->` and `<!-- end of table -->`,
so it can be read without building the site. A test compares the pages with the code,
`python docs/tables.py` writes them anew, and as a hook of mkdocs this file fills them in when the
site is built, and makes every `[KEY]` of the bibliography a link.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pullback as pb
from pullback.lanes.elementary.accuracy import MAX_ULP
from pullback.ode import (
    AdditiveRungeKutta,
    DiagonallyImplicit,
    ExplicitRungeKutta,
    Method,
    Rosenbrock,
    StochasticMethod,
    Symplectic,
)
from pullback.ode.capabilities import Capabilities, capabilities
from pullback.testing import tol

DOCS = Path(__file__).resolve().parent
BIBLIOGRAPHY = DOCS.parent / "references.bib"
TABLE = re.compile(
    r"(?P<head><!-- table: (?P<name>[a-z-]+) -->\n).*?(?P<tail><!-- end of table -->)", re.S
)
KEY = re.compile(r"\[([A-Z][A-Za-z]+\d{2}[a-z]?)\]")
_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,\s]+),\n(?P<body>.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^ *(\w+) *= *\{(.*?)\},?$", re.M | re.S)
_LATEX = (
    (r"\\url\{([^}]*)\}", r"<\1>"),
    (r"\{\\o\}", "ø"),
    (r"\\&", "&"),
    (r"[{}]", ""),
    (r"--", "–"),
    (r"\s+", " "),
)


def methods(family: type[Any] = Method) -> list[Any]:
    """Return the public methods of a family, by order."""
    public = (getattr(pb, name) for name in pb.__all__)
    found = [m for m in public if isinstance(m, type) and issubclass(m, family)]
    return sorted(found, key=lambda m: (m.tableau.order, m.tableau.n_stages, m.__name__))


def stiff_table() -> str:
    """Return what the tableaus say about each implicit method."""
    rows = []
    for kind, family in (("Rosenbrock", Rosenbrock), ("ESDIRK", DiagonallyImplicit)):
        for method in methods(family):
            t = method.tableau
            rows.append(
                (
                    f"`pb.{method.__name__}()`",
                    kind,
                    t.order,
                    t.embedded_order,
                    t.n_stages,
                    "yes" if t.is_stiffly_accurate else "no",
                    t.dense_order,
                    t.reference,
                )
            )
    head = ("method", "family", "order", "embedded", "stages")
    return _table((*head, "stiffly accurate", "dense output", "source"), rows)


def additive_table() -> str:
    """Return what the tableaus say about each method for split problems."""
    rows = [
        (
            f"`pb.{method.__name__}()`",
            method.tableau.order,
            method.tableau.embedded_order,
            method.tableau.n_stages,
            method.tableau.dense_order,
            method.tableau.reference,
        )
        for method in methods(AdditiveRungeKutta)
    ]
    return _table(("method", "order", "embedded", "stages", "dense output", "source"), rows)


def symplectic_table() -> str:
    """Return what the tableaus say about each symplectic method."""
    rows = [
        (
            f"`pb.{method.__name__}()`",
            method.tableau.order,
            method().n_evaluations,
            method.tableau.dense_order,
            method.tableau.reference,
        )
        for method in methods(Symplectic)
    ]
    return _table(("method", "order", "evaluations a step", "dense output", "source"), rows)


def stochastic_table() -> str:
    """Return what each stochastic method is for."""
    found = [
        m
        for m in (getattr(pb, name) for name in pb.__all__)
        if isinstance(m, type) and issubclass(m, StochasticMethod)
    ]
    rows = []
    for method in sorted(found, key=lambda m: (m.strong_order, m.__name__)):
        kinds = "additive, " if method.is_additive_only else ""
        rows.append(
            (
                f"`pb.{method.__name__}()`",
                method.calculus,
                kinds + ", ".join(method.noise_kinds),
                method.strong_order,
                method.weak_order,
                method.reference,
            )
        )
    return _table(("method", "calculus", "noise", "strong order", "weak order", "source"), rows)


def cells_table() -> str:
    """Return what each method can do."""
    rows = []
    for name in sorted(pb.__all__):
        found = getattr(pb, name)
        if isinstance(found, type) and issubclass(found, Method):
            problems, *flags = capabilities(found())
            words = ("yes" if flag else "error" for flag in flags)
            rows.append((f"`pb.{name}()`", problems, *words))
    fields = Capabilities._fields[1:]
    return _table(("method", "problems", *(f.replace("_", " ") for f in fields)), rows)


def method_table() -> str:
    """Return what the tableaus say about each explicit method."""
    rows = []
    for method in methods(ExplicitRungeKutta):
        t = method.tableau
        rows.append(
            (
                f"`pb.{method.__name__}()`",
                t.order,
                "–" if t.embedded_order is None else t.embedded_order,
                t.n_stages,
                t.n_stages - t.fsal,
                "yes" if t.fsal else "no",
                t.dense_order,
                t.n_dense_stages or "–",
                t.reference,
            )
        )
    head = ("method", "order", "embedded", "stages", "evaluations a step", "FSAL")
    return _table((*head, "dense output", "extra stages", "source"), rows)


def status_table() -> str:
    """Return the codes of `pb.Status`."""
    rows = [
        (s.value, f"`{s.name}`", s.message, s.advice or "–", "yes" if s.is_failure else "no")
        for s in pb.Status
    ]
    return _table(("code", "name", "what happened", "what to change", "failure"), rows)


def controller_table() -> str:
    """Return the parameters of the step-size control and their defaults."""
    found = [(f"`{f.name}`", f.default) for f in dataclasses.fields(pb.PIController)]
    return _table(("parameter", "default"), found)


def accuracy_table() -> str:
    """Return the measured errors of the elementary functions, in three columns."""
    cells = [f"`{name}` {ulp:g}" for name, ulp in sorted(MAX_ULP.items(), key=lambda item: item[1])]
    n_rows = -(-len(cells) // 4)
    cells += [""] * (4 * n_rows - len(cells))
    rows = [tuple(cells[i::n_rows]) for i in range(n_rows)]
    return _table(("function and ulp", "", "", ""), rows)


def tolerance_table() -> str:
    """Return the smallest `rtol` of each precision, and its unit of rounding."""
    rows = [(f"`{d}`", f"{tol(d):.1e}", f"{tol(d, 4):.1e}") for d in ("float32", "float64")]
    return _table(("dtype", "eps", "smallest `rtol`"), rows)


def bibliography() -> dict[str, dict[str, str]]:
    """Return the fields of every entry by its key, as plain text."""
    return {
        entry["key"]: {name: _plain(value) for name, value in _FIELD.findall(entry["body"])}
        for entry in _ENTRY.finditer(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    }


def reference_table() -> str:
    """Return the bibliography, sorted by key."""
    rows = (
        (f'<a id="{key.lower()}"></a>{key}', _citation(entry))
        for key, entry in sorted(bibliography().items(), key=lambda item: item[0].lower())
    )
    return _table(("key", "work"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy_table,
    "additive-methods": additive_table,
    "cells": cells_table,
    "controller": controller_table,
    "methods": method_table,
    "references": reference_table,
    "status": status_table,
    "stiff-methods": stiff_table,
    "stochastic-methods": stochastic_table,
    "symplectic-methods": symplectic_table,
    "tolerances": tolerance_table,
}


def fill(text: str) -> str:
    """Return a page with its tables as the code has them now."""
    return TABLE.sub(lambda m: m["head"] + "\n" + TABLES[m["name"]]() + "\n" + m["tail"], text)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill the tables of a page and link its citations; mkdocs calls this."""
    up = "../" * page.file.src_uri.count("/")
    keys = sorted(set(KEY.findall(markdown)))
    links = [f"[{key}]: {up}references.md#{key.lower()}" for key in keys]
    return "\n".join([fill(markdown), "", *links, ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def _plain(latex: str) -> str:
    for pattern, replacement in _LATEX:
        latex = re.sub(pattern, replacement, latex)
    return latex.strip()


def _citation(entry: dict[str, str]) -> str:
    issue = entry.get("volume", "") + (f"({entry['number']})" if "number" in entry else "")
    journal = f"{entry['journal']} {issue}".strip() if "journal" in entry else ""
    where = [journal, entry.get("booktitle", ""), entry.get("pages", "")]
    who = entry["author"].replace(" and ", "; ")
    rest = [*where, entry.get("publisher", ""), entry.get("howpublished", ""), entry["year"]]
    text = f"{who}: *{entry['title']}*. {', '.join(part for part in rest if part)}."
    return text + (
        f" [doi:{entry['doi']}](https://doi.org/{entry['doi']})" if "doi" in entry else ""
    )


def main() -> int:
    """Write the tables into the pages."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := fill(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote the tables of {path.relative_to(DOCS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
