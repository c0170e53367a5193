"""Derivatives and transposes of the modes of a foreign function.

Differentiation:
    To second order in x, and to any order in everything that a mode is linear in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from pullback.core.compat import UndefinedPrimal, Zero, zero_tangent
from pullback.core.typing import Array
from pullback.foreign.arg import Arg
from pullback.foreign.calls import (
    PRIMITIVES,
    Call,
    Group,
    Groups,
    args_of,
    avals_of,
    bind,
    grouped,
    shape_of,
)
from pullback.foreign.modes import TABLE, Mode

__all__ = ["jvp", "transpose"]


def _tangents(fixed: Call, like: Group, args: list[Arg], tangents: Sequence[Any]) -> Group:
    """Return tangents as a group; those of what does not change are zeros without a batch axis."""
    values, flags = [], []
    for arg, flag, tangent in zip(args, like.batched, tangents, strict=True):
        is_zero = isinstance(tangent, Zero)
        values.append(jnp.zeros(shape_of(fixed, arg), arg.dtype) if is_zero else tangent)
        flags.append(flag and not is_zero)
    return Group(tuple(values), tuple(flags))


def _active(fixed: Call, group: Group) -> Group:
    """Return the group of the operands that have derivatives."""
    keep = [arg.active for arg in fixed.program.signature.operands]
    return Group(*(tuple(v for v, k in zip(part, keep, strict=True) if k) for part in group))


class _Moving(NamedTuple):
    """Operands of a mode, and how they move.

    Attributes:
        fixed: The call.
        at: The operands.
        dot: Their tangents; of "x", of the active ones.
        x_moves: Whether any of "x" does.
    """

    fixed: Call
    at: Groups
    dot: Groups
    x_moves: bool

    def zeros(self, of: str) -> Group:
        """Return zeros like the active operands ("x") or results ("y")."""
        args = args_of(self.fixed.program, of, "t")
        zeros = tuple(jnp.zeros(shape_of(self.fixed, arg), arg.dtype) for arg in args)
        return Group(zeros, (False,) * len(args))

    def filled(self, key: str, tangents: Sequence[Any]) -> Group:
        """Return tangents of a group."""
        of = "y" if key in ("c", "ct") else "x"
        return _tangents(self.fixed, self.at[key], args_of(self.fixed.program, of, "t"), tangents)

    def bind(self, mode: Mode, **groups: Group) -> list[Array]:
        """Evaluate a mode at the same x."""
        return bind(mode, self.fixed, {"x": self.at["x"], **groups})


def _moving(mode: Mode, primals: Any, tangents: Any, fixed: Call, batched: Any) -> _Moving:
    at = grouped(mode, fixed, primals, batched)
    moved = grouped(mode, fixed, tangents, batched)
    x_dots = _active(fixed, moved["x"]).values
    args = args_of(fixed.program, "x", "t")
    dot = {"x": _tangents(fixed, _active(fixed, at["x"]), args, x_dots)}
    moving = _Moving(fixed, at, dot, any(not isinstance(t, Zero) for t in x_dots))
    dot.update({key: moving.filled(key, moved[key].values) for key in at if key != "x"})
    return moving


def _f_dot(m: _Moving) -> list[Any]:
    dots = iter(m.bind("jvp", t=m.dot["x"]) if m.x_moves else [])
    avals = [jax.core.ShapedArray(a.shape, a.dtype) for a in avals_of("f", m.fixed)]
    return [
        next(dots) if m.x_moves and arg.active else zero_tangent(aval)
        for arg, aval in zip(m.fixed.program.signature.results, avals, strict=True)
    ]


def _jvp_dot(m: _Moving) -> list[Array]:
    if not m.x_moves:
        return m.bind("jvp", t=m.dot["t"])
    return m.bind("jj", t=m.at["t"], u=m.dot["x"], tu=m.dot["t"])


def _vjp_dot(m: _Moving) -> list[Array]:
    if not m.x_moves:
        return m.bind("vjp", c=m.dot["c"])
    n = len(args_of(m.fixed.program, "x", "t"))
    return m.bind("hvp", t=m.dot["x"], c=m.at["c"], ct=m.dot["c"])[:n]


def _hvp_dot(m: _Moving) -> list[Array]:
    _refuse_third(m)
    first = m.bind("hvp", t=m.dot["t"], c=m.at["c"], ct=m.dot["ct"])
    second = m.bind("hvp", t=m.at["t"], c=m.dot["c"], ct=m.zeros("y"))
    n = len(args_of(m.fixed.program, "x", "t"))
    return [a + b if i < n else a for i, (a, b) in enumerate(zip(first, second, strict=True))]


def _jj_dot(m: _Moving) -> list[Array]:
    _refuse_third(m)
    first = m.bind("jj", t=m.at["t"], u=m.dot["u"], tu=m.dot["tu"])
    second = m.bind("jj", t=m.dot["t"], u=m.at["u"], tu=m.zeros("x"))
    return [a + b for a, b in zip(first, second, strict=True)]


def _refuse_third(m: _Moving) -> None:
    if m.x_moves:
        raise NotImplementedError(
            f"the foreign function `{m.fixed.program.symbol}` has first and second derivatives; a "
            "third one was asked for."
        )


_DOTS: dict[Mode, Callable[[_Moving], list[Any]]] = {
    "f": _f_dot, "jvp": _jvp_dot, "vjp": _vjp_dot, "hvp": _hvp_dot, "jj": _jj_dot,
}  # fmt: skip


def jvp(mode: Mode, primals: Any, tangents: Any, *, fixed: Call, batched: Any) -> Any:
    """Return the results of a mode and their tangents."""
    out = PRIMITIVES[mode].bind(*primals, fixed=fixed, batched=batched)
    return out, _DOTS[mode](_moving(mode, primals, tangents, fixed, batched))


def _cotangents(fixed: Call, mode: Mode, cotangents: Sequence[Any]) -> list[Group]:
    """Return cotangents of a mode's results, a group for each of theirs."""
    groups, first = [], 0
    for letter, of in TABLE[mode].results:
        args = args_of(fixed.program, of, letter)
        last = first + len(args)
        like = Group((), (fixed.n_batch is not None,) * len(args))
        groups.append(_tangents(fixed, like, args, cotangents[first:last]))
        first = last
    return groups


def _bars(mode: Mode, m: _Moving, cotangents: Sequence[Any]) -> dict[str, list[Array]]:
    """Return cotangents of the groups in which a mode is linear."""
    w = _cotangents(m.fixed, mode, cotangents)
    match mode:
        case "jvp":
            return {"t": m.bind("vjp", c=w[0])}
        case "vjp":
            return {"c": m.bind("jvp", t=w[0])}
        case "hvp":
            n = len(args_of(m.fixed.program, "x", "t"))
            zero = m.zeros("y")
            out = m.bind("hvp", t=w[0], c=m.at["c"], ct=zero)
            through = [jnp.zeros(()) for _ in range(n)]
            if not all(isinstance(c, Zero) for c in cotangents[n:]):
                through = m.bind("vjp", c=w[1])
            return {"t": [a + b for a, b in zip(out[:n], through, strict=True)], "ct": out[n:]}
        case "jj":
            n = len(args_of(m.fixed.program, "x", "t"))
            out = m.bind("hvp", t=m.at["t"], c=w[0], ct=m.zeros("y"))
            return {"u": out[:n], "tu": m.bind("vjp", c=w[0])}
    raise NotImplementedError(mode)


def transpose(mode: Mode, cotangents: Any, *operands: Any, fixed: Call, batched: Any) -> list[Any]:
    """Return cotangents of the operands that a mode is linear in; None for the others."""
    m = _Moving(fixed, grouped(mode, fixed, operands, batched), {}, False)
    bars = _bars(mode, m, cotangents)
    out = []
    for key, group in m.at.items():
        for i, (value, flag) in enumerate(zip(group.values, group.batched, strict=True)):
            if not isinstance(value, UndefinedPrimal):
                out.append(None)
                continue
            bar = bars[key][i]
            out.append(bar if flag or fixed.n_batch is None else jnp.sum(bar, 0))
    return out
