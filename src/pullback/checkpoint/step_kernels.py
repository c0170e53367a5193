"""The hook for code that runs blocks of steps faster than XLA does: `compile_step`.

A step compiler takes a traced step and returns kernels for it, or says why there are none. This
folder knows no compiler: one is passed to a loop, or registered for all loops that leave the choice
open.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax

from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import Gradients
from pullback.checkpoint.leaves import Leaves
from pullback.core import KernelFallbackWarning
from pullback.core.typing import Array

__all__ = [
    "AbstractStepKernels",
    "CompileStep",
    "StepCompiler",
    "StepNotCompiled",
    "block_size",
    "register_step_compiler",
    "with_kernels",
]


class StepNotCompiled(NotImplementedError):
    """A step compiler cannot compile a step; the message is the reason."""


class AbstractStepKernels(ABC):
    """Compiled blocks of steps of one traced step.

    1. They compute what the step computes: `advance` gives the same bits however a range of steps
       is divided into calls.
    2. They compare and hash by the content of the step: they are part of the key of compiled code.
    3. They can be traced, batched by `jax.vmap` and differentiated in forward mode.
    """

    @property
    @abstractmethod
    def block(self) -> int:
        """Steps of a block where the user leaves the choice open."""

    @abstractmethod
    def advance(
        self, consts: Leaves, xs: Leaves, lower: Any, upper: Any, state: Leaves, ys: Leaves
    ) -> tuple[Leaves, Leaves]:
        """Run steps `lower, ..., upper - 1`; write their `y` unless `ys` is empty."""

    @abstractmethod
    def u_turn(
        self,
        n_steps: int,
        consts: Leaves,
        xs: Leaves,
        start: Any,
        state: Leaves,
        ys_bar: Leaves,
        grads: Gradients,
        tape: Array | None = None,
    ) -> Gradients:
        """Run `n_steps` steps from `state`, the state before step `start`, and reverse them.

        `tape` is what `record` returned for these steps: then they need not be run.
        """

    @abstractmethod
    def record(
        self, n_steps: int, consts: Leaves, xs: Leaves, state: Leaves, ys: Leaves
    ) -> tuple[Leaves, Leaves, Array]:
        """Run the first `n_steps` steps as `advance` does, and return a tape of them, too."""

    def run_while(
        self, cond: Body, cond_consts: Leaves, consts: Leaves, most: Array, state: Leaves
    ) -> tuple[Array, Leaves] | None:
        """Run at most `most` steps while a condition of the state holds.

        Returns:
            How many were run, and the state; None leaves the loop to XLA.
        """
        del cond, cond_consts, consts, most, state
        return None


StepCompiler: TypeAlias = Callable[[Body], AbstractStepKernels]
CompileStep: TypeAlias = Literal["auto"] | StepCompiler | None

_BLOCK = 16
# A schedule of so many takes a tenth of a second and some MB.
_MOST_BLOCKS = 1 << 16

_registered: list[StepCompiler] = []


def register_step_compiler(compiler: StepCompiler) -> None:
    """Let loops with `compile_step="auto"` use a compiler; what it declines runs through XLA."""
    _registered[:] = [compiler]


def with_kernels(compile_step: CompileStep, body: Body, operands: Leaves) -> Body:
    """Return a step with its kernels, or as it is if there are none.

    Args:
        compile_step: What the user has chosen.
        body: The step.
        operands: What the loop starts from. Kernels would gather arrays that several devices
            share, so such a loop has none.

    Raises:
        TypeError: `compile_step` is not "auto", None or a function.
    """
    if compile_step is None:
        return body
    if compile_step == "auto":
        compilers = _registered
    elif callable(compile_step):
        compilers = [compile_step]
    else:
        raise TypeError(
            f'`compile_step`: expected "auto", None or a step compiler, got {compile_step!r}.'
            " Pass one such as pullback.interop.native_steps."
        )
    for compiler in compilers:
        try:
            if any(map(_is_shared, operands)):
                raise StepNotCompiled("its arrays lie on several devices")
            return dataclasses.replace(body, kernels=compiler(body))
        except StepNotCompiled as reason:
            if compile_step != "auto":
                warnings.warn(
                    f"`compile_step`: the loop runs through XLA, because {reason}.",
                    KernelFallbackWarning,
                    stacklevel=3,
                )
    return body


def _is_shared(value: Any) -> bool:
    return jax.typeof(value).sharding.mesh.size > 1


def block_size(block: int | None, body: Body, n_steps: int | None = None) -> int:
    """Return the steps of a block where the user has left the choice open.

    Args:
        block: What the user has chosen, or None.
        body: The step.
        n_steps: Steps of a loop that follows its schedule in compiled code. XLA fuses the reverse
            of a step with the step only if no others lie between.
    """
    if block is not None:
        return block
    if body.kernels is not None:
        return body.kernels.block
    return _BLOCK if n_steps is None else max(1, -(-n_steps // _MOST_BLOCKS))
