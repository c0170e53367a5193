"""What the driver compiles: some blocks forward, a block back, the loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.checkpoint.arguments import array_leaves, check_carry, promote_weak, row_avals
from pullback.checkpoint.body import Body, TracedFunction, trace
from pullback.checkpoint.leaves import Leaves, floating, is_weak, merged, read_slot, strong
from pullback.core.typing import Array, PyTree

__all__ = [
    "Adjoint",
    "Loop",
    "Operands",
    "advance",
    "trace_loop",
    "turn",
    "unflattened",
    "value_and_adjoint",
]


class Operands(NamedTuple):
    """What all steps share.

    Attributes:
        consts: What the step closes over.
        params: Differentiated.
        xs: One row per step.
    """

    consts: Leaves
    params: Leaves
    xs: Leaves


class Adjoint(NamedTuple):
    """What the reverse sweep carries.

    Attributes:
        value: The loss.
        carry: Cotangents of the differentiable leaves of the state that the sweep has reached.
        params: Of the differentiable parameters; summed so far.
    """

    value: Array
    carry: Leaves
    params: Leaves


class Loop(NamedTuple):
    """A traced loop.

    Attributes:
        body: The step as a function of (consts, carry, row, params).
        loss: The loss as a function of (consts, carry, params); its result is no carry.
        operands: Of the steps.
        loss_consts: What the loss closes over.
        init: Leaves of the first state.
    """

    body: Body
    loss: Body
    operands: Operands
    loss_consts: Leaves
    init: Leaves


def trace_loop(
    step: Callable[..., Any], loss: Callable[..., Any], init: PyTree, params: PyTree, xs: PyTree
) -> Loop:
    """Trace a step and a loss once.

    Raises:
        TypeError: The step changes the type of the carry, or the loss is no real number.
        ValueError: A function has side effects.
    """
    carry_tree, row_tree, params_tree = map(jax.tree.structure, (init, xs, params))

    def flat_step(carry: list[Array], row: list[Array], params: list[Array]) -> Any:
        trees = (carry_tree, carry), (row_tree, row), (params_tree, params)
        return jax.tree.map(strong, step(*(jax.tree.unflatten(t, leaves) for t, leaves in trees)))

    def flat_loss(carry: list[Array], params: list[Array]) -> Any:
        value = loss(jax.tree.unflatten(carry_tree, carry), jax.tree.unflatten(params_tree, params))
        return jax.tree.map(strong, value)

    carry = array_leaves("init", init)
    weights = tuple(map(strong, array_leaves("params", params)))
    rows = array_leaves("xs", xs)
    avals = row_avals(rows)

    def traced_step(carry: Leaves) -> TracedFunction:
        n_carry = len(carry)
        traced = trace(flat_step, "step", lambda _: n_carry, list(carry), avals, list(weights))
        check_carry("step", init, carry, traced.out)
        return traced

    traced = traced_step(carry)
    if any(map(is_weak, carry)):
        carry = promote_weak(carry, jax.tree.leaves(traced.out))
        traced = traced_step(carry)
    value = trace(flat_loss, "loss", lambda _: 0, list(carry), list(weights))
    _check_loss(value.out)
    operands = Operands(traced.consts, weights, rows)
    return Loop(traced.body, value.body, operands, value.consts, carry)


def _check_loss(out: PyTree) -> None:
    leaves = jax.tree.leaves(out)
    is_leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(out))
    if not is_leaf or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise TypeError(
            f"`loss`: expected a function (carry, params) that returns one real number, got {out}."
            " Reduce it, for example with jnp.sum."
        )


@functools.partial(jax.jit, static_argnums=0)
def advance(body: Body, operands: Operands, lower: Any, upper: Any, state: Leaves) -> Leaves:
    """Run steps `lower, ..., upper - 1`."""

    def step(i: Array, state: Leaves) -> Leaves:
        return body(operands.consts, state, read_slot(operands.xs, i), operands.params)[0]

    return lax.fori_loop(lower, upper, step, state)


@functools.partial(jax.jit, static_argnums=(0, 1))
def turn(
    body: Body, n_steps: int, operands: Operands, start: Any, state: Leaves, adjoint: Adjoint
) -> Adjoint:
    """Tape `n_steps` steps from `state`, the state before step `start`, and reverse them."""
    rows = tuple(lax.dynamic_slice_in_dim(x, start, n_steps) for x in operands.xs)

    def forward(params: Leaves, carry: Leaves) -> Leaves:
        weights = merged(operands.params, params)

        def step(carry: Leaves, row: Leaves) -> tuple[Leaves, None]:
            return body(operands.consts, carry, row, weights)[0], None

        out, _ = lax.scan(step, merged(state, carry), rows, length=n_steps)
        return floating(out)

    _, pull = jax.vjp(forward, floating(operands.params), floating(state))
    params, carry = pull(adjoint.carry)
    added = tuple(a + b for a, b in zip(adjoint.params, params, strict=True))
    return Adjoint(adjoint.value, carry, added)


@functools.partial(jax.jit, static_argnums=0)
def value_and_adjoint(loss: Body, consts: Leaves, params: Leaves, state: Leaves) -> Adjoint:
    """Return the loss and its cotangents."""

    def value(carry_f: Leaves, params_f: Leaves) -> Array:
        return loss(consts, merged(state, carry_f), merged(params, params_f))[1][0]

    out, bars = jax.value_and_grad(value, (0, 1))(floating(state), floating(params))
    return Adjoint(out, *bars)


def unflattened(tree: PyTree, leaves: Leaves, cotangents: Leaves) -> PyTree:
    """Return cotangents in the structure of `tree`; `float0` where there is no derivative."""
    bars = iter(cotangents)
    out = [
        next(bars) if jnp.issubdtype(leaf.dtype, jnp.inexact)
        else np.zeros(leaf.shape, jax.dtypes.float0)
        for leaf in leaves
    ]  # fmt: skip
    return jax.tree.unflatten(jax.tree.structure(tree), out)
