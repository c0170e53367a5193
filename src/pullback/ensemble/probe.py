"""The probe: a zero input of every solve whose cotangent carries the gradient's own error estimate.

A backward pass cannot return anything beside cotangents, so the estimate leaves it as the
cotangent of an input that is always zero. :func:`make_probe` stands for that input while a function
is traced under :func:`recording`; :func:`evaluate` then runs the traced function with a real
value in its place, through nested calls, scans, branches and rematerialisation.

The place-holder is a primitive without operands, not a captured tracer: `jax.jit` keeps its traces,
and would keep a tracer that is long dead at the next call. Whether probes are being recorded is
part of JAX's jit cache key (`jax.make_user_context`), so a trace made before is not used by
mistake.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core as jex
from jax.interpreters import mlir

PROBE_SHAPE = (3,)

probe_p = jex.Primitive("pullback_probe")
_recording = jax.make_user_context(default_value=False)


@probe_p.def_impl
def _zero_probe(*, dtype: np.dtype) -> jax.Array:
    return jnp.zeros(PROBE_SHAPE, dtype)


@probe_p.def_abstract_eval
def _probe_aval(*, dtype: np.dtype) -> ShapedArray:
    return ShapedArray(PROBE_SHAPE, np.dtype(dtype))


# A probe that nobody replaces is the constant zero, and its cotangent is dropped.
mlir.register_lowering(probe_p, mlir.lower_fun(_zero_probe, multiple_results=False))


def recording(flag: bool) -> AbstractContextManager[Any]:
    """Return a context in which `make_probe` does or does not leave a mark in the trace."""
    return _recording(flag)


def make_probe(dtype: np.dtype) -> jax.Array | np.ndarray:
    """Return the zero probe of one solve, replaceable by `evaluate` while recording."""
    if _recording.value:
        return probe_p.bind(dtype=np.dtype(dtype))
    return np.zeros(PROBE_SHAPE, dtype)


_contains: weakref.WeakKeyDictionary[jex.Jaxpr, bool] = weakref.WeakKeyDictionary()


def contains_probe(jaxpr: jex.Jaxpr) -> bool:
    """Whether a probe occurs in `jaxpr` or in one that it calls."""
    found = _contains.get(jaxpr)
    if found is None:
        found = any(e.primitive is probe_p for e in jaxpr.eqns) or any(
            contains_probe(inner) for inner in jex.subjaxprs(jaxpr)
        )
        _contains[jaxpr] = found
    return found


def evaluate(jaxpr: jex.Jaxpr, consts: Any, probe: jax.Array, *args: Any) -> list[Any]:
    """Evaluate `jaxpr` on `args` with `probe` in place of every probe in it."""
    env: dict[jex.Var, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else env[atom]

    env.update(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _apply(eqn, probe, [read(a) for a in eqn.invars]), strict=True))
    return [read(a) for a in jaxpr.outvars]


def _apply(eqn: jex.JaxprEqn, probe: jax.Array, args: list[Any]) -> list[Any]:
    if eqn.primitive is probe_p:
        return [probe.astype(eqn.params["dtype"])]
    rule = _RULES.get(eqn.primitive.name)
    if rule is not None and any(map(contains_probe, jex.jaxprs_in_params(eqn.params))):
        return list(rule(eqn.params, probe, args))
    # Newer JAX passes the functions of a call by keyword, older ones as a tuple before it.
    bound = eqn.primitive.get_bind_params(eqn.params)
    subfuns, params = bound if isinstance(bound, tuple) else ((), bound)
    out = eqn.primitive.bind(*subfuns, *args, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


_threaded: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()


def _thread(closed: Any, wrap: Callable[..., Any] = lambda f: f) -> Callable[..., Any]:
    """Return `closed` as a function of a probe and its arguments; the same one every time.

    Its identity is what JAX's caches go by, so an inner `jit` is compiled once, not once per call.
    """
    fun = _threaded.get(closed)
    if fun is None:
        # A weak reference: the function must not keep its own key alive.
        ref = weakref.ref(closed)

        def run(probe: jax.Array, *args: Any) -> list[Any]:
            held = ref()
            assert held is not None
            jaxpr, consts = (
                (held.jaxpr, held.consts) if isinstance(held, jex.ClosedJaxpr) else (held, ())
            )
            return evaluate(jaxpr, consts, probe, *args)

        fun = _threaded[closed] = wrap(run)
    return fun


def _jit(params: dict[str, Any], probe: jax.Array, args: list[Any]) -> Any:
    return _thread(params["jaxpr"], jax.jit)(probe, *args)


def _remat(params: dict[str, Any], probe: jax.Array, args: list[Any]) -> Any:
    fun = jax.checkpoint(
        _thread(params["jaxpr"]), prevent_cse=params["prevent_cse"], policy=params["policy"]
    )
    return fun(probe, *args)


def _scan(params: dict[str, Any], probe: jax.Array, args: list[Any]) -> Any:
    first_carry, first_x = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, init, xs = args[:first_carry], args[first_carry:first_x], args[first_x:]
    body = _thread(params["jaxpr"])

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        out = body(probe, *consts, *carry, *x)
        return out[: len(carry)], out[len(carry) :]

    carry, ys = jax.lax.scan(
        step,
        init,
        xs,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *ys]


def _cond(params: dict[str, Any], probe: jax.Array, args: list[Any]) -> Any:
    branches = [_thread(branch) for branch in params["branches"]]
    return jax.lax.switch(args[0], branches, probe, *args[1:])


# A probe inside any other call (`custom_vjp`, `while_loop`, `shard_map`) stays zero: such a solve
# contributes no estimate.
_RULES: dict[str, Callable[[dict[str, Any], jax.Array, list[Any]], Any]] = {
    "jit": _jit,
    "remat2": _remat,
    "checkpoint": _remat,
    "scan": _scan,
    "cond": _cond,
}
