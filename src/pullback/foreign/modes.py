"""The five functions that are made of a foreign one, and what each takes and returns.

f is the function y = f(x). With tangents t, u and cotangents c, b, where a tangent of one of these
has the letter t appended:

* `jvp(x, x_t)` = f'(x) x_t;
* `vjp(x, y_c)` = f'(x)^T y_c;
* `hvp(x, x_t, y_c, y_ct)` = the tangent of the vjp, and f'(x) x_t, which is its transpose;
* `jj(x, x_t, x_u, x_tu)` = the tangent of the jvp.

They are closed under differentiation and transposition up to second order, because the second
derivative is symmetric.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

__all__ = ["MODES", "TABLE", "Mode", "Recipe"]

Mode: TypeAlias = Literal["f", "jvp", "vjp", "hvp", "jj"]
MODES: tuple[Mode, ...] = get_args(Mode)


class Recipe(NamedTuple):
    """How a mode is made.

    Attributes:
        base: The mode that is differentiated; None for the function itself.
        call: Enzyme's name for that.
        new: Letter of the derivatives that this adds to each pointer of the base.
        operands: Groups of operands behind x: a letter, and whether it is of operands ("x") or
            results ("y").
        results: Groups of results, likewise.
        copies: Which shadows of results start as copies of which operands.
    """

    base: Mode | None
    call: str
    new: str
    operands: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]
    copies: dict[str, str]


_FORWARD, _REVERSE = "__enzyme_fwddiff", "__enzyme_autodiff"

TABLE: dict[Mode, Recipe] = {
    "f": Recipe(None, "", "", (), (("", "y"),), {}),
    "jvp": Recipe("f", _FORWARD, "t", (("t", "x"),), (("t", "y"),), {}),
    "vjp": Recipe("f", _REVERSE, "b", (("c", "y"),), (("b", "x"),), {"b": "c"}),
    "hvp": Recipe(
        "vjp", _FORWARD, "t",
        (("t", "x"), ("c", "y"), ("ct", "y")), (("bt", "x"), ("t", "y")), {"b": "c", "bt": "ct"},
    ),
    "jj": Recipe(
        "jvp", _FORWARD, "u", (("t", "x"), ("u", "x"), ("tu", "x")), (("tu", "y"),), {},
    ),
}  # fmt: skip
