"""A forward sweep that carries a tangent along, with the tangent's error under control.

One attempt is `jax.jvp` of ONE step: the embedded error comes out with a tangent of its own,
which estimates the error of the carried tangent, for any method. The tangent program uses it
with the caller's seed, the adjoint's forward sweep with random signs.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, MaybeArray
from pullback.ode.auto_switch import first_switch, next_switch, turn
from pullback.ode.event_attempt import choose, meet_events
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_step import next_stop
from pullback.ode.events import start_events
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import Mesh, MeshState, Stop, frozen, frozen_float
from pullback.ode.method import Step
from pullback.ode.norm import attempt_norm, tangent_norm
from pullback.ode.partial_ad import push_forward
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.start import controller_memory, first_step, make_mesh, tolerances
from pullback.ode.sweep_state import Attempt, Control, Seed, SweepState

__all__ = [
    "Attempt",
    "Seed",
    "Sweep",
    "SweepState",
    "make_sweep",
    "natural_unit",
    "seed_size",
]


# A tangent loses control this many smallest steps before the step size runs out: enough for one
# more rejection.
_ROOM = 16.0


def controlled_attempts(spec: SolveSpec) -> int:
    """Return how many attempts a tangent may control: a mesh for it is finer than the state's."""
    return max(spec.max_steps, min(4 * spec.max_steps, 10_000))


def natural_unit(operands: SolveOperands) -> Array:
    """Return atol / rtol, where a component's size stops to matter relative to itself.

    A component that an infinite atol leaves out of the error has no unit: zero.
    """
    rtol, atol = frozen(operands.rtol), frozen(operands.atol)
    unit = jnp.where(rtol > 0, atol / jnp.where(rtol > 0, rtol, 1.0), 1.0)
    return jnp.where(atol < np.inf, unit, 0.0)


def seed_size(seed: Seed, operands: SolveOperands, k1: Array) -> Array:
    """Return the largest component of a seed in natural units: sigma0 of the tangent norm."""
    tiny = float(jnp.finfo(operands.y0.dtype).tiny)
    unit = jnp.maximum(natural_unit(operands) + jnp.abs(frozen(operands.y0)), tiny)
    sizes = [jnp.zeros((), unit.dtype)]
    if seed.y0 is not None:
        sizes.append(jnp.max(jnp.abs(frozen(seed.y0)) / unit))
    if seed.t0 is not None:
        sizes.append(jnp.abs(frozen(seed.t0)) * jnp.max(jnp.abs(frozen(k1)) / unit))
    for dot, value in zip(seed.theta, operands.theta, strict=True):
        if dot is not None and dot.size:
            size = jnp.abs(frozen(value))
            relative = jnp.abs(frozen(dot)) / jnp.where(size == 0, 1.0, size)
            sizes.append(jnp.max(relative).astype(unit.dtype))
    largest = sizes[0]
    for size in sizes[1:]:
        largest = jnp.maximum(largest, size)
    return largest


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """The forward sweep of one trajectory with a tangent.

    Attributes:
        spec: What is solved.
        operands: Its arrays.
        mesh: Constants of its mesh.
        seed: The tangent's start.
        control: How the tangent is controlled; None: not at all.
        t0_shift: t0 minus its frozen self: zero with t0's derivative, for second derivatives;
            None without.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
    """

    spec: SolveSpec
    operands: SolveOperands
    mesh: Mesh
    seed: Seed
    control: Control | None
    t0_shift: MaybeArray
    rtol: Array
    atol: Array

    def event_maps(self, is_stiff: MaybeArray = None) -> EventMaps | None:
        """Return the maps of steps that end at events; None without events."""
        events = self.spec.events
        maps = self.maps if is_stiff is None else self.maps.at(None, is_stiff)
        return None if events is None else EventMaps(maps, events, self.mesh)

    @property
    def maps(self) -> StepMaps:
        """The maps that are differentiated."""
        return StepMaps(self.spec, self.rtol, self.atol)

    def attempt(self, s: SweepState) -> tuple[SweepState, Attempt]:
        """Try one step."""
        stop = self._stop(s)
        h, is_last = self.mesh.propose(s.mesh, stop)
        h = frozen(h)  # behind an event the time has a derivative, the size of a step has none
        is_first = s.mesh.n_accepted == 0
        t, h_in = self.shifted(s.mesh.t, h, is_first)
        t_dot, h_dot = self._time_tangents(s, is_first)
        step, dot = self.step(s, t, h_in, t_dot, h_dot)
        q2 = q2_state = frozen(attempt_norm(self.spec, s.y, step, self.rtol, self.atol))
        largest = s.largest
        if self.control is not None:
            reach = jnp.maximum(jnp.abs(frozen(s.v)), jnp.abs(frozen(dot.y1)))
            largest = jnp.maximum(s.largest, reach)
            q2_dot = tangent_norm(frozen(dot.err), largest, self.rtol, self.control.floor)
            q2_dot = jnp.where(s.is_controlled, q2_dot * self.control.weight, 0.0)
            q2 = jnp.maximum(q2_state, q2_dot)
        after, accept = self.mesh.decide(s.mesh, h, is_last, q2, stop)
        switch, after = next_switch(self.spec.method, s.switch, step, after, accept)
        attempt = Attempt(t, h_in, t_dot, step, dot, accept, is_last, h_dot)
        if stop is not None:
            met, attempt = meet_events(self, s, after, attempt, largest, q2_state, stop)
            return met._replace(switch=switch), attempt
        new = self._arrived(step, dot, largest)
        old = (s.y, s.k1, s.v, s.k1_dot, s.largest)
        y, k1, v, k1_dot, largest = map(functools.partial(choose, accept), new, old)
        control = self.keeps_control(s, after, accept, q2_state)
        state = SweepState(after, y, k1, v, k1_dot, largest, control, switch=switch)
        return state, attempt

    def _stop(self, s: SweepState) -> Stop | None:
        maps = self.event_maps()
        if maps is None or s.events is None:
            return None
        return next_stop(maps, s.events, self.operands.theta)

    def _time_tangents(self, s: SweepState, is_first: Array) -> tuple[MaybeArray, MaybeArray]:
        """Return the tangents of a step's start and size: the first one ends where it ends."""
        if self.seed.t0 is None:
            return s.t_dot, None
        t_dot = jnp.where(is_first, self.seed.t0, 0.0)
        h_dot = -t_dot
        if s.t_dot is not None:
            t_dot = jnp.where(is_first, self.seed.t0, s.t_dot)
        return t_dot, h_dot

    def keeps_control(
        self, s: SweepState, after: MeshState, accept: Array, q2_state: Array
    ) -> MaybeArray:
        """Give up control where the tangent alone would end what the solve itself survives.

        The rest of the sweep then has the state's own mesh, and the gradient's estimated error
        says what that cost.
        """
        if self.control is None:
            return None
        is_tangents_reject = ~accept & (q2_state <= 1.0)
        is_late = after.n_attempts >= controlled_attempts(self.spec)
        is_stuck = is_tangents_reject & ~self.mesh.has_room(after, _ROOM)
        return s.is_controlled & ~(is_late | is_stuck)

    def shifted(self, t: Array, h: Array, is_first: Array) -> tuple[Array, Array]:
        """Give the first step its dependence on t0: it starts there and ends where it ends."""
        if self.t0_shift is None:
            return t, h
        shift = jnp.where(is_first, self.t0_shift, 0.0)
        return t + shift, h - shift

    def step(
        self, s: SweepState, t: Array, h: Array, t_dot: MaybeArray, h_dot: MaybeArray
    ) -> tuple[Step, Any]:
        """Return one step of the method and its tangent, None without one."""
        primals = (t, s.y, h, s.k1, *self.operands.theta)
        maps = self.maps.at(s.mesh.n_accepted, turn(s.switch))
        if s.v is None:
            return maps.step(*primals), None
        tangents = (t_dot, s.v, h_dot, s.k1_dot, *self.seed.theta)
        step, dot = push_forward(maps.step, primals, tangents)
        dot = dot._replace(failed=None, outside=None, stiffness=None)  # verdicts have no tangents
        if self.control is not None and self.control.is_all:
            dot = jax.tree.map(frozen, dot)
        return step, dot

    def _arrived(self, step: Step, dot: Step | None, largest: MaybeArray) -> tuple[Any, ...]:
        is_fsal = self.spec.method.is_fsal
        k1 = step.stages[-1] if is_fsal else None
        if dot is None:
            return step.y1, k1, None, None, largest
        return step.y1, k1, dot.y1, dot.stages[-1] if is_fsal else None, largest


def make_sweep(
    spec: SolveSpec,
    operands: SolveOperands,
    seed: Seed,
    slack: Array | float | None,
    *,
    t0_shift: MaybeArray = None,
    is_all_control: bool = False,
    done: Array | bool = False,
) -> tuple[Sweep, SweepState]:
    """Return a sweep and its state before the first attempt.

    Args:
        spec: What is solved.
        operands: Its arrays.
        seed: The tangent's start.
        slack: How much larger than the tolerance the tangent's error may be; None: no control.
        t0_shift: See `Sweep`.
        is_all_control: Whether the tangent is there for control only and has no derivative.
        done: Whether there is nothing to do.
    """
    is_fsal = spec.method.is_fsal
    slack = None if seed.is_zero else slack
    limit = spec.max_steps if slack is None else controlled_attempts(spec) + spec.max_steps
    mesh = make_mesh(spec, operands, limit)
    rtol, atol = tolerances(operands)
    start = mesh.t0 if t0_shift is None else mesh.t0 + t0_shift
    k1: MaybeArray = None
    k1_dot = v = h = k1
    control = None
    maps = StepMaps(spec, rtol, atol)
    primals = (start, operands.y0, *operands.theta)
    if not seed.is_zero:
        v = jnp.zeros_like(operands.y0) if seed.y0 is None else seed.y0
        k1, k1_dot = push_forward(maps.slope, primals, (seed.t0, seed.y0, *seed.theta))
    elif spec.adaptive or is_fsal:
        k1 = maps.slope(*primals)
    if spec.adaptive:
        h = first_step(maps, operands, mesh, k1)
    if slack is not None:
        size = seed_size(seed, operands, k1)
        tiny = float(jnp.finfo(spec.dtype).tiny)
        floor = jnp.where(size > 0, atol * size, tiny)  # a zero seed needs no control
        control = Control(floor, 1.0 / (slack * slack), is_all_control)
        if is_all_control:
            v, k1_dot = frozen(v), frozen(k1_dot)
    sweep = Sweep(spec, operands, mesh, seed, control, t0_shift, rtol, atol)
    events = t_dot = None
    if spec.events is not None:
        theta = tuple(map(frozen_float, operands.theta))
        y0 = frozen(operands.y0)
        slope = frozen(maps.slope(mesh.t0, operands.y0, *operands.theta))
        events = start_events(spec.events, mesh.t0, y0, slope, theta, mesh.t1 - mesh.t0)
        if not seed.is_zero:
            t_dot = jnp.zeros_like(mesh.t0) if seed.t0 is None else seed.t0
    return sweep, SweepState(
        mesh=mesh.start(h, done, controller_memory(spec, operands)),
        y=operands.y0,
        k1=k1 if is_fsal else None,
        v=v,
        k1_dot=k1_dot if is_fsal else None,
        largest=None if control is None else jnp.abs(frozen(v)),
        is_controlled=None if control is None else jnp.ones((), bool),
        t_dot=t_dot,
        events=events,
        last_kind=None if events is None else jnp.zeros((), jnp.int32),
        switch=first_switch(spec.method),
    )
