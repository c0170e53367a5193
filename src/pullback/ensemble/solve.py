"""`solve`: from a problem and its options to a solution.

The work is done elsewhere: `members` finds out what differs between trajectories, `dtypes`, `times`
and `options` check and cast, `traced_field` traces the vector field, `run` calls the lanes (by
way of `frozen_mesh`, which a test may ask to repeat the steps of another run).
"""

from __future__ import annotations

from typing import Any, Literal

from pullback.core.keys import without_keys
from pullback.core.typing import ArrayLike, PyTree
from pullback.ensemble.batches import Batching, run_in_batches
from pullback.ensemble.cast_members import cast_members
from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.event import checked_events
from pullback.ensemble.executor import Executor, resolve_executor
from pullback.ensemble.frozen_mesh import compiled_as_ever
from pullback.ensemble.keywords import explain_unknown_keywords
from pullback.ensemble.leaf import Members
from pullback.ensemble.members import resolve_members
from pullback.ensemble.noise_keys import noise_keys
from pullback.ensemble.options import (
    Numbers,
    check_fixed_steps,
    check_noise,
    checked_adaptive,
    checked_adjoint,
    checked_controller,
    checked_initialization,
    checked_mass,
    checked_max_steps,
    checked_method,
    checked_numbers,
)
from pullback.ensemble.parts import check_parts
from pullback.ensemble.probe import make_probe
from pullback.ensemble.run import RunArrays, RunPlan
from pullback.ensemble.saved_function import trace_save_fn
from pullback.ensemble.sde_problem import Problem, mass_matrix_of
from pullback.ensemble.second_order_problem import check_acceleration
from pullback.ensemble.summarise import Source, summarise
from pullback.ensemble.times import SavePlan, plan_saves
from pullback.ensemble.traced_domain import TracedDomain, trace_domain
from pullback.ensemble.traced_events import TracedEvents, trace_events
from pullback.ensemble.traced_field import Field, parameter_operands, trace_field
from pullback.ensemble.tstops import Stops, checked_stops
from pullback.ode import DiscreteAdjoint, Method, SolveSpec, StepController

_PLAIN_ADJOINT = DiscreteAdjoint()
SaveAt = ArrayLike | Literal["steps"] | None


@explain_unknown_keywords
@compiled_as_ever
def solve(
    problem: Problem | EnsembleProblem,
    method: Method,
    executor: Executor | None = None,
    *,
    trajectories: int | None = None,
    key: ArrayLike | None = None,
    saveat: SaveAt = None,
    save_fn: Any = None,
    events: Any = (),
    tstops: ArrayLike | None = None,
    is_valid: Any = None,
    dt: ArrayLike | None = None,
    dt_min: ArrayLike | None = None,
    dt_max: ArrayLike | None = None,
    adaptive: bool | None = None,
    rtol: PyTree = 1e-3,
    atol: PyTree = 1e-6,
    controller: StepController | None = None,
    max_steps: int = 100_000,
    max_saves: int | None = None,
    adjoint: DiscreteAdjoint = _PLAIN_ADJOINT,
    reduce: Any = None,
    batch_size: int | None = None,
    initialization: str = "brown",
    progress: bool = False,
    throw: bool = False,
) -> Any:
    """Integrate a problem, or every trajectory of an ensemble.

    A trajectory that fails raises nothing here unless `throw` says so: it has a status of its own,
    keeps its last good point and disturbs no other trajectory.

    Args:
        problem: an ODEProblem (of second order, split), an SDEProblem, or an EnsembleProblem.
        method: such as `pb.Tsit5()`; `pb.Rodas5P()` if stiff; `pb.EulerMaruyama()` if stochastic.
        executor: `pb.EnsembleKernel()`, `pb.EnsembleArray()`, or None for the kernel where it
            compiles and the array elsewhere.
        trajectories: number of trajectories; needed with `prob_func`.
        key: random key; needed for an SDEProblem, and where `prob_func` uses `ctx.key`.
        saveat: None saves the end; a number is the spacing from t0 (t1 is always saved); an array
            holds times, `(save,)` or `(trajectory, save)`; `"steps"` saves every accepted step.
        save_fn: `save_fn(t, y, params)` returns what is saved of a row instead of the state, any
            pytree; `y_end` stays the state.
        events: further events, behind those of the problem.
        tstops: times at which a step must end, `(stop,)` or `(trajectory, stop)`: where the vector
            field jumps or has a kink. Nothing happens there, and nothing is recorded.
        is_valid: `is_valid(t, y, params)` returns one boolean; a step whose end is not valid is
            rejected, and a trajectory that cannot avoid it has the status `left_domain`.
        dt: fixed step size; with `adaptive=True` the first step.
        dt_min: smallest step of adaptive solves, but for the last; a trajectory that would need
            smaller ones has the status `dt_underflow`.
        dt_max: largest step.
        adaptive: None is true if the method has an error estimate and `dt` is not given.
        rtol: relative tolerance, a number or a pytree like `y0`.
        atol: absolute tolerance, likewise.
        controller: step size control of adaptive solves, `pb.PIController()` by default.
        max_steps: bound on the attempted steps of each trajectory.
        max_saves: rows for `saveat="steps"`: 4096 for a single problem, needed for an ensemble.
        adjoint: options of reverse mode.
        reduce: a summary of the ensemble instead of its solutions, made block by block: "mean_var",
            "quantiles", a function of one trajectory's solution whose mean is wanted, or a
            `pb.Reduction`. The result is a `pb.Summary`.
        batch_size: so many trajectories of an ensemble are solved together, one batch after the
            other; the results are the same.
        initialization: how the algebraic variables of a singular mass matrix start: "brown" solves
            the algebraic equations for them, keeping the others; "check" takes them as they are and
            gives the status `inconsistent_initial` where the equations do not hold.
        progress: whether to show a bar over the batches.
        throw: raise if a trajectory failed; an error under `jax.jit`, where status is traced.

    Returns:
        The solution; without a trajectory axis for a single problem. With `reduce`, the summary.

    Raises:
        TypeError, ValueError: an argument is wrong. What is only known in a trace gives its
            trajectory the status `invalid_input` instead.
        NotImplementedError: two options do not go together yet.
        SolveFailedError: a trajectory failed, with `throw`.

    Differentiation:
        jvp and vjp by `y0`, `params`, `t_span`, `saveat` and what the vector field closes over:
        the exact derivative of the executed steps, their sizes and their noise held fixed.
    """
    method = checked_method(method, problem)
    adaptive = checked_adaptive(adaptive, dt, method)
    check_fixed_steps(adaptive, dt_min=dt_min, dt_max=dt_max, controller=controller)
    backend, may_fall_back = resolve_executor(executor)

    def prepare(members: Members, saveat: Any, sim_ids: Any = None) -> tuple[RunPlan, RunArrays]:
        members = cast_members(members)
        numbers = checked_numbers(members, adaptive, dt, rtol, atol, dt_max, dt_min)
        saves = plan_saves(saveat, max_saves, members)
        field = trace_field(members)
        stops = checked_stops(tstops, members, sim_ids)
        happening = _trace_events(events, stops, members, field)
        n_theta = _n_theta(members, field) + len(happening.hoisted)
        domain = trace_domain(is_valid, members, field, n_theta)
        spec = SolveSpec(
            **_equation(members, field, happening, domain, method),
            method=method,
            adaptive=adaptive,
            controller=checked_controller(controller),
            max_steps=checked_max_steps(max_steps),
            save=saves.mode,
            n_saves=saves.n_saves,
            dtype=members.dtype,
            adjoint=checked_adjoint(adjoint),
            automatic_dt=dt is None,
            limit_dt=dt_max is not None,
            floor_dt=dt_min is not None,
            initialization=checked_initialization(initialization),
        )
        check_parts(spec)
        hoisted = (*happening.hoisted, *domain.hoisted)
        own = (*happening.batched, *(False for _ in domain.hoisted))
        arrays, batched = _run_arrays(members, field, saves, numbers, (key, sim_ids), hoisted, own)
        saved, consts = trace_save_fn(save_fn, members, field, len(arrays.theta))
        arrays = arrays._replace(save_consts=consts)
        batched = batched._replace(save_consts=(False,) * len(consts))
        plan = RunPlan(spec, backend, field.layout, members.n_traj, batched, saved)
        return plan, arrays

    how = Batching(batch_size, progress, may_fall_back)
    if reduce is not None:
        source = Source(problem, trajectories, key, saveat)
        solution = summarise(reduce, source, prepare, how)
    else:
        plan, arrays = prepare(resolve_members(problem, trajectories, key), saveat)
        solution = run_in_batches(plan, arrays, how)
    return solution.raise_if_failed() if throw else solution


def _trace_events(events: Any, stops: Stops | None, members: Members, field: Field) -> TracedEvents:
    """Trace the problem's events and those given to `solve`."""
    every = (*getattr(members.problem, "events", ()), *checked_events(events))
    if (every or stops is not None) and field.noise is not None:
        raise NotImplementedError(
            "`events` and `tstops` of a stochastic problem are not available; stop at a known "
            "time with `t_span` instead."
        )
    return trace_events(every, stops, members, field, _n_theta(members, field))


def _n_theta(members: Members, field: Field) -> int:
    """Return the length of theta before what events and further functions close over."""
    return len(parameter_operands(members)) + len(field.hoisted) + (field.noise is not None)


def _equation(
    members: Members, field: Field, happening: TracedEvents, domain: TracedDomain, method: Method
) -> dict[str, Any]:
    """Return the parts of a `SolveSpec` that say which equation is solved."""
    check_noise(method, field.noise)
    check_acceleration(method, field.uses_velocity, field.flat.name)
    return {
        "field": field.flat,
        "mass": checked_mass(mass_matrix_of(members.problem), field.flat.n, method),
        "noise": field.noise,
        "more_floating": (*field.more_floating, *happening.floating, *domain.floating),
        "events": happening.spec,
        "domain": domain.function,
        "jac": field.jac,
        "split": field.split,
    }


def _run_arrays(
    members: Members,
    field: Field,
    saves: SavePlan,
    numbers: Numbers,
    key_and_ids: tuple[Any, Any],
    more: tuple[Any, ...],
    more_batched: tuple[bool, ...],
) -> tuple[RunArrays, RunArrays]:
    """Return the arrays of the run, and which of them carry the trajectory axis."""
    key, sim_ids = key_and_ids
    t0, t1 = members.t_span
    params = parameter_operands(members)
    keys = () if field.noise is None else (noise_keys(key, members.n_traj, sim_ids),)
    arrays = RunArrays(
        y0=tuple(leaf.value for leaf in members.y0),
        t0=t0.value,
        t1=t1.value,
        saveat=saves.times,
        probe=make_probe(members.dtype),
        theta=(*(without_keys(leaf.value) for leaf in params), *field.hoisted, *keys, *more),
        n_real=saves.n_real,
        save_consts=(),
        **numbers._asdict(),
    )
    batched = RunArrays(
        y0=tuple(leaf.batched for leaf in members.y0),
        t0=t0.batched,
        t1=t1.batched,
        saveat=saves.batched,
        probe=False,
        theta=(
            *(leaf.batched for leaf in params),
            *(False for _ in field.hoisted),
            *(members.n_traj is not None for _ in keys),
            *more_batched,
        ),
        n_real=None if saves.n_real is None else True,
        save_consts=(),
        **dict.fromkeys(Numbers._fields, False),
    )
    return arrays, batched
