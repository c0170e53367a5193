"""Lane programs: ordinary JAX functions of ONE trajectory, with rules for their derivatives.

Contents: `LaneProgram` (the contract), `LaneCall` (how a program is being called, for its
rules), `JvpProgram` (the derivative of any program).

Contract of a lane program:
1. It is hashable and equal by content; two equal programs trace to the same jaxpr.
2. Called with the operands of one trajectory, arrays without a trajectory axis, it returns a
   tuple of arrays. It may use `lane_while`, `jax.new_ref`, and `store_row`, and has no effect.
3. Loops are bounded and mesh quantities (step sizes, acceptance) are under `stop_gradient`, so
   that its plain `jax.jvp` is the derivative with the mesh frozen.
4. `jvp` and `transpose` see whole operands, with or without the trajectory axis, and combine
   other lane programs through the `LaneCall` they are given.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.compat import Zero, zero_tangent
from pullback.core.errors import TransposeUnsupported
from pullback.core.typing import Array
from pullback.lanes.loop import lock_step

__all__ = ["JvpProgram", "LaneCall", "LaneProgram", "is_floating", "program_jaxpr"]


@dataclasses.dataclass(frozen=True)
class LaneCall:
    """How a lane program is being called; rules use it to call further programs alike.

    Attributes:
        bind: Calls a program: `bind(program, operands, batched, reduced) -> list of arrays`.
        batched: Which operands of the present call have the trajectory axis.
        reduced: Which results of the present call are summed over trajectories.
        n_traj: Number of trajectories; None when no operand is batched.
    """

    bind: Callable[..., list[Array]]
    batched: tuple[bool, ...]
    reduced: tuple[bool, ...]
    n_traj: int | None


class LaneProgram(ABC):
    """A function of one trajectory that executors run many at once."""

    @abstractmethod
    def __call__(self, *operands: Array) -> tuple[Array, ...]:
        """Run one trajectory."""

    def jvp(
        self, call: LaneCall, primals: Sequence[Array], tangents: Sequence[Any]
    ) -> tuple[list[Array], list[Any]]:
        """Return results and their tangents; symbolic zeros come and go as `Zero`."""
        outs = call.bind(self, primals, call.batched, call.reduced)
        active = tuple(
            type(t) is not Zero and is_floating(x) for x, t in zip(primals, tangents, strict=True)
        )
        return outs, self._tangent_outs(call, JvpProgram(self, active), primals, tangents, outs)

    def transpose(
        self, call: LaneCall, cotangents: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        """Return the cotangents of the linear operands, which arrive as `UndefinedPrimal`."""
        raise TransposeUnsupported(
            "Reverse mode is not available through a derivative of a solve. For second "
            "derivatives use forward mode over reverse mode, `jacfwd(grad(f))` (which "
            "`jax.hessian(f)` is), instead of `grad(grad(f))` or `jacrev(jacfwd(f))`."
        )

    @staticmethod
    def _tangent_outs(
        call: LaneCall,
        derivative: JvpProgram,
        primals: Sequence[Array],
        tangents: Sequence[Any],
        outs: Sequence[Array],
    ) -> list[Any]:
        active = derivative.active
        floating = [is_floating(out) for out in outs]
        batched = call.batched + tuple(b for b, a in zip(call.batched, active, strict=True) if a)
        reduced = tuple(r for r, f in zip(call.reduced, floating, strict=True) if f)
        moving = [t for t, a in zip(tangents, active, strict=True) if a]
        dots = iter(call.bind(derivative, [*primals, *moving], batched, reduced))
        return [
            next(dots) if f else zero_tangent(jax.typeof(out))
            for f, out in zip(floating, outs, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class JvpProgram(LaneProgram):
    """The tangents of another program's floating results, by `jax.jvp` of that whole program.

    Attributes:
        program: The program that is differentiated.
        active: Which of its operands have a tangent; those follow the operands.
    """

    program: LaneProgram
    active: tuple[bool, ...]

    def __call__(self, *operands: Array) -> tuple[Array, ...]:
        """Return the tangents of one trajectory's floating results."""
        n = len(self.active)
        primals, tangents = operands[:n], operands[n:]
        moving = [i for i, a in enumerate(self.active) if a]

        def of_moving(*values: Array) -> tuple[Array, ...]:
            full = list(primals)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            outs = self.evaluate(full, tangents)
            return tuple(out for out in outs if is_floating(out))

        return jax.jvp(of_moving, tuple(primals[i] for i in moving), tuple(tangents))[1]

    def evaluate(self, operands: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, ...]:
        """Run the program that is differentiated; a subclass may look at the tangents."""
        return self.program(*operands)


def is_floating(value: Any) -> bool:
    """Whether an array (or abstract value) has a floating dtype, hence a tangent."""
    return jnp.issubdtype(value.dtype, np.floating)


@functools.lru_cache(maxsize=512)
def program_jaxpr(program: LaneProgram, avals: tuple[jax.ShapeDtypeStruct, ...]) -> jex.ClosedJaxpr:
    """Trace a program for one trajectory, once per program and operand shapes."""
    with lock_step(enabled=False):
        return jax.make_jaxpr(lambda *operands: tuple(program(*operands)))(*avals)
