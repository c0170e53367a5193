"""Kernels of traced steps, emitted once for each content, and why some have none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from pullback import native
from pullback.checkpoint.body import Body
from pullback.lanes.wide import (
    ENTRY,
    StepKernel,
    StepProgram,
    UnsupportedStep,
    advance_kernel,
    pull_kernel,
    step_program,
    while_kernel,
)

__all__ = [
    "Kind",
    "kernel_target",
    "tape_bytes",
    "unsupported_condition",
    "unsupported_reason",
    "while_target",
]

Kind: TypeAlias = Literal["advance", "advance with y", "record", "pull", "pull recorded"]

_KEPT = 256
_INDEX = np.dtype(np.int32)
_KINDS: dict[Kind, Callable[[StepProgram, np.dtype], StepKernel]] = {
    "advance": functools.partial(advance_kernel, with_y=False),
    "advance with y": functools.partial(advance_kernel, with_y=True),
    "record": functools.partial(advance_kernel, with_y=True, records=True),
    "pull": pull_kernel,
    "pull recorded": functools.partial(pull_kernel, recorded=True),
}


@functools.lru_cache(maxsize=_KEPT)
def _program(body: Body) -> StepProgram:
    """Describe a step."""
    return step_program(body.jaxpr, body.n_carry, body.fixed)


@functools.lru_cache(maxsize=2 * _KEPT)
def _kernel(body: Body, kind: Kind, index: np.dtype) -> StepKernel:
    return _KINDS[kind](_program(body), index)


@functools.lru_cache(maxsize=_KEPT)
def _while_kernel(cond: Body, body: Body) -> StepKernel:
    return while_kernel(_program(cond), _program(body), _INDEX)


def while_target(cond: Body, body: Body) -> native.KernelTarget:
    """Compile the loop of a condition and a step that have no `unsupported_condition`."""
    return _target(_while_kernel(cond, body))


@functools.lru_cache(maxsize=_KEPT)
def unsupported_condition(cond: Body, body: Body) -> str | None:
    """Return why a loop over a step that has kernels has none itself, or None if it has."""
    return _reason(lambda: _while_kernel(cond, body))


def kernel_target(body: Body, kind: Kind, index: np.dtype, n_taped: int = 0) -> native.KernelTarget:
    """Compile a kernel, or return the target that an equal one became.

    Args:
        body: The step, which has no `unsupported_reason`.
        kind: What it does.
        index: Type of step numbers.
        n_taped: Most steps that are taped in one call.
    """
    return _target(_kernel(body, kind, index), n_taped)


def _target(kernel: StepKernel, n_taped: int = 0) -> native.KernelTarget:
    return native.register_kernel(
        native.KernelSource(
            ir=kernel.ir,
            entry=ENTRY,
            n_args=kernel.n_args,
            n_results=kernel.n_results,
            count_buffer=0,
            scratch_bytes=n_taped * kernel.row_bytes,
        )
    )


def tape_bytes(body: Body) -> int:
    """Return the length of a row of the tape that "record" writes."""
    return _kernel(body, "record", _INDEX).row_bytes


@functools.lru_cache(maxsize=_KEPT)
def unsupported_reason(body: Body) -> str | None:
    """Return why a step has no kernels, or None if it has."""
    if not native.is_supported():
        return native.unsupported_reason()
    if jax.default_backend() != "cpu":
        return f"arrays live on the {jax.default_backend()}"

    def emit() -> None:
        program = _program(body)
        if not any(leaf.dtype.kind == "f" for leaf in (*program.carry, *program.y)):
            raise UnsupportedStep("the step has no real results")
        _kernel(body, "record", _INDEX)
        _kernel(body, "pull", _INDEX)

    return _reason(emit)


def _reason(emit: Callable[[], Any]) -> str | None:
    """Return why code cannot be emitted, or None if it can."""
    try:
        emit()
    except UnsupportedStep as reason:
        return str(reason)
    except Exception as error:  # the step runs through XLA, whatever the compiler stumbled upon
        return f"its compiler failed with {type(error).__name__}: {error}"
    return None
