"""The mesh of a solve: proposing steps, accepting or rejecting them, and knowing when to stop.

`Mesh` holds what is constant during a solve, `MeshState` what changes. All of it is under
`stop_gradient`: derivatives are those of the accepted steps, their sizes held fixed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.ode.controller import StepController

__all__ = ["Mesh", "MeshState", "Stop", "frozen", "frozen_float"]

# A step that would leave less than one per cent of itself is stretched to the end, as DOPRI5 of
# [HW96] does.
_STRETCH = 1.0 / 1.01
# Fixed steps: a last step this much longer than the others rather than a sliver of one.
_SLIVER = 1e-3


def frozen(x: Array) -> Array:
    """Mark a quantity of the mesh: its derivative is zero by definition."""
    return lax.stop_gradient(x)


def frozen_float(value: Any) -> Any:
    """Freeze a number that has a derivative; leave integers and keys as they are."""
    return frozen(value) if jnp.issubdtype(value.dtype, jnp.floating) else value


class Stop(NamedTuple):
    """Where the next step must end at the latest.

    Attributes:
        time: That time, t1 or before it.
        cuts: How many steps so far ended before they would have without such times.
    """

    time: Array
    cuts: Array


class MeshState(NamedTuple):
    """What changes along the mesh.

    Attributes:
        t: Time reached.
        h: Step size to try next; None with fixed steps.
        memory: The controller's memory; None with fixed steps.
        q2: Squared error norm of the last attempt.
        n_attempts: Tried steps.
        n_accepted: Accepted steps.
        done: Whether the trajectory has ended, well or not.
    """

    t: Array
    h: MaybeArray
    memory: MaybeArray
    q2: Array
    n_attempts: Array
    n_accepted: Array
    done: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """What is constant along the mesh of one trajectory.

    Attributes:
        t0: Start.
        t1: End; NaN where the input is invalid, which ends the trajectory at once.
        sign: 1 forward, -1 backward in time.
        dt: Step size of fixed steps, signed.
        n_steps: Number of fixed steps; None when adaptive.
        times: Ends of given steps, NaN from the last one on; None unless steps are given.
        h_floor: Smallest step size at t = 0.
        dt_max: Largest step size; None without a limit.
        dt_min: Smallest step size that is not the last; None without a limit.
        controller: Step-size control; None with fixed or given steps.
        error_order: Exponent of the step's local error.
        max_attempts: Bound on attempts.
        max_accepted: Bound on accepted steps; None without one.
        solves_equations: Whether a squared error of infinity says that equations inside the step
            were not solved; numbers that are not finite then give NaN.
        outside: The squared error that says that a step led to a state that is not valid; None
            where every state is.
    """

    t0: Array
    t1: Array
    sign: Array
    dt: MaybeArray
    n_steps: MaybeArray
    times: MaybeArray
    h_floor: Array
    dt_max: MaybeArray
    dt_min: MaybeArray
    controller: StepController | None
    error_order: int
    max_attempts: int
    max_accepted: int | None
    solves_equations: bool
    outside: float | None = None

    def start(
        self, h: MaybeArray, done: Array | bool = False, memory: MaybeArray = None
    ) -> MeshState:
        """Return the state before the first attempt, whose size will be `h`."""
        dtype = self.t0.dtype
        if self.controller is not None and memory is None:
            memory = self.controller.initial_memory(dtype)
        zero = jnp.zeros((), jnp.int32)
        nothing = jnp.zeros((), dtype)
        return MeshState(self.t0, h, memory, nothing, zero, zero, jnp.asarray(done))

    def propose(self, state: MeshState, stop: Stop | None = None) -> tuple[Array, Array]:
        """Return the size of the next attempt and whether it aims at the end, or at `stop`."""
        if stop is not None:
            return self._propose_before(state, stop)
        remaining = self.t1 - state.t
        if self.times is not None:
            end = _entry(self.times, state.n_accepted)
            is_last = jnp.isnan(end)
            return jnp.where(is_last, remaining, end - state.t), is_last
        if self.controller is None:
            is_last = state.n_accepted + 1 >= self.n_steps
            return jnp.where(is_last, remaining, self.dt), is_last
        is_last = _STRETCH * jnp.abs(remaining) <= jnp.abs(state.h)
        # The state must advance by what time does: far from t = 0 they would drift apart.
        rounded = (state.t + state.h) - state.t
        return jnp.where(is_last, remaining, rounded), is_last

    def _propose_before(self, state: MeshState, stop: Stop) -> tuple[Array, Array]:
        remaining = self._until(stop.time, state.t)
        if self.controller is None:
            end = self._next_end(state, stop)
            aims = self.sign * (stop.time - end) <= _SLIVER * jnp.abs(self.dt)
            return jnp.where(aims, remaining, end - state.t), aims
        aims = _STRETCH * jnp.abs(remaining) <= jnp.abs(state.h)
        rounded = (state.t + state.h) - state.t
        return jnp.where(aims, remaining, rounded), aims

    def _until(self, time: Array, t: Array) -> Array:
        """Return the size of the step from t to a stop: one whose stages lie before an inner stop.

        The vector field may jump there. And no step is empty, for implicit ones divide by its size.
        """
        exact = time - t
        eps = 4.0 * float(jnp.finfo(t.dtype).eps)
        margin = self.sign * eps * (jnp.abs(time) + jnp.abs(exact))
        remaining = jnp.where(time == self.t1, exact, exact - margin)
        least = jnp.where(self.t0 == self.t1, 0.0, self.resolution(t))
        return jnp.where(self.sign * remaining >= least, remaining, self.sign * least)

    def is_short(self, state: MeshState, stop: Stop) -> Array:
        """Whether a fixed step that ends at `stop` is shorter than it would be without."""
        if self.controller is not None:
            return jnp.zeros((), bool)
        return self.sign * (stop.time - self._next_end(state, stop)) < -_SLIVER * jnp.abs(self.dt)

    def _next_end(self, state: MeshState, stop: Stop) -> Array:
        index = state.n_accepted - stop.cuts
        return jnp.where(index + 1 >= self.n_steps, self.t1, self._fixed_end(index))

    def decide(
        self, state: MeshState, h: Array, is_last: Array, q2: Array, stop: Stop | None = None
    ) -> tuple[MeshState, Array]:
        """Return the state after an attempt with squared error norm `q2`, and whether it counts.

        With fixed or given steps `q2` only has to be finite.
        """
        target = self.t1 if stop is None else stop.time
        if stop is not None:
            is_aimed, is_last = is_last, is_last & (stop.time == self.t1)
        else:
            is_aimed = is_last
        q2 = frozen(q2)
        n_attempts = state.n_attempts + 1
        if self.controller is None:
            accept = q2 < (np.inf if self.outside is None else self.outside)
            index = state.n_accepted if stop is None else state.n_accepted - stop.cuts
            end = self._fixed_end(index)
            h_next = memory = None
            ends = ~accept | is_last
        else:
            accept = q2 <= 1.0
            end = state.t + h
            factor, memory = self.controller.factor(q2, state.memory, self.error_order)
            h_next = self._limit(h * factor)
            if stop is not None:
                # A step that was cut short says little about the next one.
                is_short = accept & is_aimed & (jnp.abs(h_next) < jnp.abs(state.h))
                h_next = jnp.where(is_short, state.h, h_next)
            memory = jnp.where(accept, memory, state.memory)
            has_room = jnp.abs(h_next) >= self.smallest_step(state.t)
            ends = (accept & is_last) | ~has_room
        t = jnp.where(accept, jnp.where(is_aimed, target, end), state.t)
        n_accepted = state.n_accepted + accept.astype(jnp.int32)
        ends = ends | (n_attempts >= self.max_attempts)
        if self.max_accepted is not None:
            ends = ends | (n_accepted >= self.max_accepted)
        return MeshState(t, h_next, memory, q2, n_attempts, n_accepted, ends), accept

    def interrupted(self, state: MeshState, t: Array, ends: Array) -> MeshState:
        """Return the state after an attempt that an event cut at t, and whether that ends it."""
        done = ends | (state.n_attempts >= self.max_attempts)
        if self.max_accepted is not None:
            done = done | (state.n_accepted >= self.max_accepted)
        if self.controller is not None:
            done = done | ~self.has_room(state._replace(t=t))
        return state._replace(t=t, done=done)

    def has_reached_end(self, state: MeshState) -> Array:
        """Whether a trajectory that is done got to the end."""
        return state.t == self.t1

    def has_room(self, state: MeshState, factor: float = 1.0) -> Array:
        """Whether the next step is `factor` times larger than the smallest; False for NaN."""
        return jnp.abs(state.h) >= factor * self.smallest_step(state.t)

    def status(self, state: MeshState) -> Array:
        """Return the status code of a trajectory that is done."""
        used_up = state.n_attempts >= self.max_attempts
        broken = _code("non_finite")
        if self.solves_equations:
            broken = jnp.where(jnp.isnan(state.q2), broken, _code("newton_diverged"))
        if self.controller is None:
            failure = jnp.where(state.q2 < np.inf, _code("max_steps_reached"), broken)
            if self.outside is not None:
                failure = jnp.where(state.q2 == self.outside, _code("left_domain"), failure)
        else:
            has_room = self.has_room(state)
            no_room = jnp.where(state.q2 < np.inf, _code("dt_underflow"), broken)
            if self.outside is not None:
                no_room = jnp.where(state.q2 == self.outside, _code("left_domain"), no_room)
            failure = jnp.where(used_up & has_room, _code("max_steps_reached"), no_room)
        if self.max_accepted is not None:
            is_full = state.n_accepted >= self.max_accepted
            failure = jnp.where(is_full, _code("save_overflow"), failure)
        status = jnp.where(self.has_reached_end(state), _code("success"), failure)
        return jnp.where(jnp.isnan(self.t1), _code("invalid_input"), status)

    def _fixed_end(self, n_accepted: Array) -> Array:
        """Return where a step ends that is not the last."""
        if self.times is not None:
            return _entry(self.times, n_accepted)
        return self.t0 + self.dt * (n_accepted + 1).astype(self.t0.dtype)

    def _limit(self, h: Array) -> Array:
        if self.dt_max is None:
            return h
        return self.sign * jnp.minimum(jnp.abs(h), self.dt_max)

    def smallest_step(self, t: Array) -> Array:
        """Return the smallest step size that is tried at time t."""
        least = self.resolution(t)
        return least if self.dt_min is None else jnp.maximum(least, self.dt_min)

    def resolution(self, t: Array) -> Array:
        """Return the smallest step size that time t can resolve."""
        return jnp.abs(t) * (8.0 * float(jnp.finfo(t.dtype).eps)) + self.h_floor


def fixed_step_count(span: Array, dt: Array) -> Array:
    """Return how many steps of size `dt` cover `span`; the last one may be shorter.

    Rounding of the quotient must not add a sliver of a step.
    """
    ratio = jnp.abs(span / dt)
    slack = _SLIVER + 8.0 * float(jnp.finfo(ratio.dtype).eps) * ratio
    count = jnp.ceil(ratio - slack)
    largest = float(2**30)
    return jnp.clip(jnp.where(count >= 1, count, 1.0), 1.0, largest).astype(jnp.int32)


def _entry(times: Array, index: Array) -> Array:
    return lax.dynamic_index_in_dim(times, index, keepdims=False)


def _code(name: str) -> Array:
    return jnp.asarray(Status[name].value, jnp.int32)
