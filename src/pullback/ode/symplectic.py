"""Symplectic methods with a fixed step for x'' = a(t, x): mechanics over many periods.

Their maps preserve areas in phase space, so that the energy error stays bounded over times that
are exponentially long in 1 / dt, and a step with -dt takes a step back. The state is the pair of
positions and velocities, the first and the second half of the state vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode import tableaus
from pullback.ode.method import Step, TableauMethod
from pullback.ode.symplectic_tableau import SymplecticTableau

__all__ = ["Symplectic", "VelocityVerlet", "Yoshida4"]


@dataclasses.dataclass(frozen=True)
class Symplectic(TableauMethod):
    """A symplectic method; a subclass sets `tableau`.

    Stages are the change of the state over the step, and the slopes at its ends.
    """

    tableau: ClassVar[SymplecticTableau]

    @property
    def error_order(self) -> int:
        """Nothing estimates the error, so nothing depends on this."""
        return self.tableau.order + 1

    @property
    def has_error_estimate(self) -> bool:
        """A step that changes its size with the state is symplectic no more."""
        return False

    @property
    def n_stages(self) -> int:
        """The change of the state and two slopes."""
        return 3

    @property
    def is_fsal(self) -> bool:
        """The last kick is taken where the next step begins."""
        return True

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Take a step of size h from (t, y)."""
        first = system(t, y) if k1 is None else k1
        n = y.shape[0] // 2
        x, v, a = y[:n], y[n:], first[n:]
        kicks, drifts, nodes = self.tableau.kicks, self.tableau.drifts, self.tableau.nodes
        v = v + (kicks[0] * h) * a
        for kick, drift, node in zip(kicks[1:], drifts, nodes[1:], strict=True):
            x = x + (drift * h) * v
            time = t + h if node == 1.0 else t + node * h
            a = system(time, jnp.concatenate([x, v]))[n:]
            v = v + (kick * h) * a
        y1 = jnp.concatenate([x, v])
        return Step(y1, None, (y1 - y, first, jnp.concatenate([v, a])))

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        return self.step(system, t, y, h, None).y1

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step, on the cubic through both ends.

        References:
            [HNW93] eq. (II.6.7).
        """
        change, first, last = stages
        x = (time - t) / h
        rest = 1.0 - x
        bent = (x * rest) * (rest * (h * first - change) + x * (change - h * last))
        return y + x * change + bent


@dataclasses.dataclass(frozen=True)
class VelocityVerlet(Symplectic):
    """The velocity form of the method of Stoermer and Verlet, order 2 (leapfrog)."""

    tableau: ClassVar[SymplecticTableau] = tableaus.VELOCITY_VERLET


@dataclasses.dataclass(frozen=True)
class Yoshida4(Symplectic):
    """Yoshida's composition of three steps of velocity Verlet, order 4."""

    tableau: ClassVar[SymplecticTableau] = tableaus.YOSHIDA4
