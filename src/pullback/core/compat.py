"""The only file that touches private parts of JAX, for jax 0.10 to 0.12.

Everything else in the package uses public names, or these.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax._src import linear_util as lu  # WrappedFun: what a custom rule's function hides in
from jax._src import source_info_util
from jax._src.ad_util import Zero
from jax._src.api_util import _HashableWithStrictTypeEquality  # boxes of nondiff_argnums
from jax._src.state.indexing import Slice as RefSlice  # pyright: ignore[reportPrivateImportUsage]
from jax._src.util import Unhashable
from jax.interpreters import ad, batching, mlir

__all__ = [
    "RefSlice",
    "UndefinedPrimal",
    "Zero",
    "lower_fun",
    "primitive_batchers",
    "primitive_jvps",
    "primitive_transposes",
    "register_lowering",
    "rule_parts",
    "scan_counts",
    "user_line",
    "zero_tangent",
]

UndefinedPrimal = ad.UndefinedPrimal
primitive_jvps = ad.primitive_jvps
primitive_transposes = ad.primitive_transposes
primitive_batchers = batching.primitive_batchers
lower_fun = mlir.lower_fun
register_lowering = mlir.register_lowering

_PACKAGE = str(Path(__file__).parents[1])
_MAX_DEPTH = 6


def zero_tangent(aval: Any) -> Zero:
    """Return the symbolic zero tangent of a value with abstract value `aval`."""
    return Zero(aval.to_tangent_aval())


def rule_parts(fun: Any) -> tuple[Any, ...] | None:
    """Return what tells the function of a custom derivative rule apart, or None if it is none.

    JAX wraps the functions of `custom_jvp` and `custom_vjp` anew in every trace. Inside is the
    user's function, the same object each time, and the values of `nondiff_argnums`.
    """
    if not isinstance(fun, lu.WrappedFun):
        return None
    found = _unwrap(fun, _MAX_DEPTH)
    return (fun,) if found is None else found


def _unwrap(value: Any, depth: int) -> tuple[Any, ...] | None:
    if depth == 0:
        return None
    if isinstance(value, lu.WrappedFun):
        inner = _unwrap(value.f, depth - 1)
        fixed = (box.val for _, args in value.transforms for box in _boxes(args))
        return None if inner is None else (*inner, *fixed)
    if not isinstance(value, types.FunctionType) or not _is_tracing_machinery(value):
        return (value,)
    for cell in value.__closure__ or ():
        inner = cell.cell_contents
        is_wrapped = isinstance(inner, lu.WrappedFun)
        if is_wrapped or (isinstance(inner, types.FunctionType) and _is_tracing_machinery(inner)):
            return _unwrap(inner, depth - 1)
    return None


def _boxes(args: Any) -> list[Any]:
    if isinstance(args, (tuple, list)):
        return [box for arg in args for box in _boxes(arg)]
    return [args] if isinstance(args, (Unhashable, _HashableWithStrictTypeEquality)) else []


def _is_tracing_machinery(function: types.FunctionType) -> bool:
    module = function.__module__ or ""
    return module.startswith(("jax._src.interpreters.partial_eval", "jax._src.linear_util"))


def user_line(sources: Sequence[Any]) -> str | None:
    """Return 'file:line (function)' of the user's code behind an equation.

    Args:
        sources: Source information of the equation and of the calls around it, innermost first.
    """
    found = (source_info_util.user_frames(s.traceback) for s in sources if s is not None)
    frames = [frame for some in found for frame in some]
    if not frames:
        return None
    # A call of this package inside the user's function should name the user's line, not ours.
    frame = next((f for f in frames if not f.file_name.startswith(_PACKAGE)), frames[0])
    return f"{frame.file_name}:{frame.start_line} ({frame.function_name})"


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """Return the numbers of constants and of carried arrays of a `scan` equation."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].elts  # jax 0.12 keeps the trees of the three groups
    return len(consts.vals), len(carry.vals)
