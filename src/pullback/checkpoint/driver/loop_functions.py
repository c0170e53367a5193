"""What the driver compiles: some steps forward, a block back, the loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.checkpoint import compiled_scan
from pullback.checkpoint.arguments import array_leaves, check_carry, promote_weak, row_avals
from pullback.checkpoint.body import Body, TracedFunction, trace
from pullback.checkpoint.leaves import Leaves, floating, is_weak, merged, strong
from pullback.checkpoint.step_kernels import CompileStep, with_kernels
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
        params: Differentiated; to the step, they are further consts.
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
        body: The step as a function of (consts and params, carry, row).
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
    step: Callable[..., Any],
    loss: Callable[..., Any],
    init: PyTree,
    params: PyTree,
    xs: PyTree,
    compile_step: CompileStep,
) -> Loop:
    """Trace a step and a loss once, and look for kernels for the step.

    Raises:
        TypeError: The step changes the type of the carry, or the loss is no real number.
        ValueError: A function has side effects.
    """
    carry_tree, row_tree, params_tree = map(jax.tree.structure, (init, xs, params))

    def flat_step(params: list[Array], carry: list[Array], row: list[Array]) -> Any:
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
        traced = trace(flat_step, "step", lambda _: n_carry, list(weights), list(carry), avals)
        check_carry("step", init, carry, traced.out)
        return traced

    traced = traced_step(carry)
    if any(map(is_weak, carry)):
        carry = promote_weak(carry, jax.tree.leaves(traced.out))
        traced = traced_step(carry)
    value = trace(flat_loss, "loss", lambda _: 0, list(carry), list(weights))
    _check_loss(value.out)
    body = with_kernels(
        compile_step,
        traced.body.closed_over(len(weights)),
        (*traced.consts, *weights, *carry, *rows),
    )
    operands = Operands(traced.consts, weights, rows)
    return Loop(body, value.body, operands, value.consts, carry)


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
    consts = operands.consts + operands.params
    return compiled_scan.advance(body, consts, operands.xs, lower, upper, state, ())[0]


@functools.partial(jax.jit, static_argnums=(0, 1))
def turn(
    body: Body, n_steps: int, operands: Operands, start: Any, state: Leaves, adjoint: Adjoint
) -> Adjoint:
    """Tape `n_steps` steps from `state`, the state before step `start`, and reverse them."""
    rows = tuple(lax.dynamic_slice_in_dim(x, start, n_steps) for x in operands.xs)
    # Nobody asks for these; a kernel sums them all the same.
    others = (tuple(map(jnp.zeros_like, floating(x))) for x in (operands.consts, rows))
    n_others = len(floating(operands.consts))
    grads = compiled_scan.Gradients(next(others) + adjoint.params, adjoint.carry, next(others))
    consts = operands.consts + operands.params
    first = jnp.zeros_like(start)
    found = compiled_scan.u_turn(body, n_steps, consts, rows, first, state, (), grads)
    return Adjoint(adjoint.value, found.carry, found.consts[n_others:])


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
