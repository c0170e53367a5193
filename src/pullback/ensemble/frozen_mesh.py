"""The frozen mesh: record the steps of every solve in a function, and take the same steps again.

Where a solve chooses its steps it is not a smooth function of its inputs, and a difference of it
measures the choice. With the steps of one point taken at all others it is smooth, and its exact
derivative is the one that this package computes on that mesh.

The function runs without `jax.jit`, so that its solves run one after the other and are known by
their order; `jax.vmap` and derivatives around them are seen through, by a primitive that hands
over concrete arrays. What traces the function to a program instead cannot be followed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core import FIRST_FAILURE, Status
from pullback.core.compat import primitive_batchers
from pullback.core.typing import Array
from pullback.ensemble.run import RunArrays, RunPlan, run
from pullback.ensemble.solution import Solution

P = ParamSpec("P")
R = TypeVar("R")

# Rows of the first recording; a longer mesh is recorded again with as many as it needs.
_FIRST_ROWS = 512

_record: ContextVar[MeshRecord | None] = ContextVar("pullback_mesh_record", default=None)
# Part of the keys of JAX's caches: a trace made before, in which no solve is seen, is not used.
_is_recorded = jax.make_user_context(default_value=False)


class _Solve(NamedTuple):
    """What is known of one solve.

    Attributes:
        times: Ends of its steps, NaN from the last one on; axes of `jax.vmap` and of the ensemble
            lead.
        t1: Its end.
        saveat: Its save times.
    """

    times: np.ndarray
    t1: np.ndarray
    saveat: np.ndarray


class MeshRecord:
    """The steps of all solves of a function, in the order in which they run."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.n_needed = 0
        self.solves: list[_Solve] = []
        self._is_replaying = False
        self._next = 0

    def record(self, f: Callable[[Any], Any], x: Any) -> None:
        """Run `f` and keep the steps of its solves."""
        with self._watching(is_replaying=False):
            f(x)

    def replay(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `f` with the recorded steps, to be called and differentiated without `jit`."""

        def on_mesh(x: Any) -> Any:
            with self._watching(is_replaying=True):
                result = f(x)
            self._check_count(self._next)
            return result

        return on_mesh

    def solve(self, plan: RunPlan, arrays: RunArrays, may_fall_back: bool) -> Solution:
        """Run one solve, on its own mesh or on the recorded one."""
        index = self._next
        self._next += 1
        run_as = self._replay_one if self._is_replaying else self._record_one
        return run_as(index, plan, arrays, may_fall_back)

    def _record_one(
        self, index: int, plan: RunPlan, arrays: RunArrays, may_fall_back: bool
    ) -> Solution:
        solution = run(plan, arrays, may_fall_back)
        spec = replace(plan.spec, save="steps", n_saves=self.n_rows)
        plan = replace(plan, save_fn=None)
        batched = plan.batched._replace(saveat=False, n_real=None)
        every_step = arrays._replace(saveat=np.zeros((0,), spec.dtype), n_real=None)
        steps = run(replace(plan, spec=spec, batched=batched), every_step, may_fall_back)
        parts = (steps.t, steps.n_saved, solution.stats["n_accepted"], solution.status)
        self._hand_over(index, True, (*parts, arrays.t1, arrays.saveat))
        return solution

    def _replay_one(
        self, index: int, plan: RunPlan, arrays: RunArrays, may_fall_back: bool
    ) -> Solution:
        self._check_count(index + 1, may_be_less=True)
        # All arrays go along: the mesh has the axes of `vmap` that any of them has.
        everything = (arrays.t1, arrays.saveat, *jax.tree.leaves(arrays))
        is_final = plan.spec.save == "final"
        times = self._hand_over(index, is_final, everything)
        spec = replace(plan.spec, mesh="given", adaptive=False, automatic_dt=False, limit_dt=False)
        batched = plan.batched._replace(dt=plan.n_traj is not None)
        return run(
            replace(plan, spec=spec, batched=batched), arrays._replace(dt=times), may_fall_back
        )

    def _hand_over(self, index: int, may_move: bool, values: tuple[Any, ...]) -> Array:
        frozen = [jax.lax.stop_gradient(jnp.asarray(value)) for value in values]
        return mesh_p.bind(*frozen, record=self, index=index, may_move=may_move, lead=())

    def concrete(
        self, index: int, may_move: bool, lead: tuple[int, ...], values: tuple[Array, ...]
    ) -> Any:
        """Keep the steps of a solve, or return them."""
        arrays = [np.asarray(value) for value in values]
        if self._is_replaying:
            return self._times(index, may_move, lead, *arrays[:2])
        self._keep(*arrays)
        return np.zeros(lead)

    def _keep(
        self,
        t: np.ndarray,
        n_saved: np.ndarray,
        n_accepted: np.ndarray,
        status: np.ndarray,
        t1: np.ndarray,
        saveat: np.ndarray,
    ) -> None:
        is_failed = status >= FIRST_FAILURE
        if is_failed.any():
            failed = Status(int(status[is_failed].flat[0])).name
            raise ValueError(
                f'`mesh="frozen"`: at `x` itself solve {len(self.solves)} of `f` (counted from 0) '
                f"has a trajectory with status {failed}, whose steps do not reach its end; choose "
                "an `x` where every solve succeeds."
            )
        self.n_needed = max(self.n_needed, int(n_accepted.max(initial=1)))
        n = int(n_saved.max(initial=1))
        is_inside = np.arange(1, n + 1) < n_saved[..., None]
        times = np.where(is_inside, t[..., :n], np.nan).astype(t.dtype)
        self.solves.append(_Solve(times, t1, saveat))

    def _times(
        self, index: int, may_move: bool, lead: tuple[int, ...], t1: np.ndarray, saveat: np.ndarray
    ) -> np.ndarray:
        known = self.solves[index]
        shapes = [(known.t1.shape, known.saveat.shape), (t1.shape, saveat.shape)]
        if shapes[0] != shapes[1] or known.times.shape[: len(lead)] != lead:
            raise ValueError(
                f'`mesh="frozen"`: solve {index} of `f` (counted from 0) has `t1` and `saveat` of '
                f"shapes {shapes[1]}, but {shapes[0]} at `x`; `f` must make the same solves "
                "wherever it is evaluated."
            )
        moved = [
            name
            for name, old, new in (("t1", known.t1, t1), ("saveat", known.saveat, saveat))
            if not np.array_equal(old, new)
        ]
        if moved and not may_move:
            raise ValueError(
                f'`mesh="frozen"`: `{moved[0]}` of solve {index} of `f` depends on `x` while rows '
                "are saved on the way. A row moves with its time along the vector field and not "
                "with t1, which a difference on fixed steps shows up to the tolerance only; hold "
                f"`{moved[0]}` fixed, save the end only, or test with fixed steps "
                "or a tight tolerance."
            )
        return known.times

    def _check_count(self, n_solves: int, may_be_less: bool = False) -> None:
        expected = len(self.solves)
        if n_solves == expected or (may_be_less and n_solves < expected):
            return
        more = "or more " if may_be_less else ""
        raise ValueError(
            f'`mesh="frozen"`: `f` made {expected} solve(s) at `x` but {n_solves} {more}next to '
            "it; the number of solves must not depend on `x`."
        )

    @contextlib.contextmanager
    def _watching(self, *, is_replaying: bool) -> Iterator[None]:
        self._is_replaying, self._next = is_replaying, 0
        token = _record.set(self)
        try:
            with jax.disable_jit(), _is_recorded(True):
                yield
        finally:
            _record.reset(token)


def record_meshes(f: Callable[[Any], Any], x: Any) -> MeshRecord:
    """Return the steps that every solve in `f` takes at `x`.

    Raises:
        ValueError: `f` makes no solve that can be seen, or one that fails.
        NotImplementedError: a solve is inside something that traces it, as `jax.checkpoint` does.
    """
    record = MeshRecord(_FIRST_ROWS)
    record.record(f, x)
    if record.n_needed > record.n_rows:
        record = MeshRecord(record.n_needed)
        record.record(f, x)
    if not record.solves:
        raise ValueError(
            '`mesh="frozen"`: `f` made no `pullback.solve` that could be recorded; pass `replay` '
            "if it has another solver, and leave `mesh` out if it has none."
        )
    return record


def run_on_mesh(plan: RunPlan, arrays: RunArrays, may_fall_back: bool) -> Solution:
    """Solve every trajectory; on the recorded mesh while one is being replayed."""
    record = _record.get()
    if record is None:
        return run(plan, arrays, may_fall_back)
    # Whatever is kept between parts, the steps are the same.
    adjoint = replace(plan.spec.adjoint, scheme=None, storage=None)
    plan = replace(plan, spec=replace(plan.spec, adjoint=adjoint))
    return record.solve(plan, arrays, may_fall_back)


def is_watched() -> bool:
    """Whether the steps of solves are being recorded or repeated."""
    return _record.get() is not None


def refuse_watched(option: str) -> None:
    """Raise where steps are recorded that an option of `solve` hides."""
    if is_watched():
        raise NotImplementedError(
            f'`mesh="frozen"`: a solve with `{option}` does not show its steps; leave `{option}` '
            "out of `f` for the test, or test with fixed steps."
        )


def compiled_as_ever(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` compile and use JAX's caches also where what calls it does not."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if _record.get() is None:
            return function(*args, **kwargs)
        with jax.disable_jit(False), _is_recorded(False):
            return function(*args, **kwargs)

    return wrapped


mesh_p = jex.Primitive("pullback_mesh")


@mesh_p.def_impl
def _mesh_impl(
    *values: Array, record: MeshRecord, index: int, may_move: bool, lead: tuple[int, ...]
) -> Array:
    return jnp.asarray(record.concrete(index, may_move, lead, values))


@mesh_p.def_abstract_eval
def _mesh_abstract(*_: Any, index: int, **__: Any) -> Any:
    raise NotImplementedError(
        f'`mesh="frozen"`: solve {index} of `f` (counted from 0) is inside a transformation that '
        "traces it to a program (`jax.checkpoint`, `jax.make_jaxpr`, `pullback.value_and_grad`), "
        "where its steps are not known; take that out of `f` for the test."
    )


def _mesh_batch(
    values: tuple[Any, ...], dims: tuple[Any, ...], *, lead: tuple[int, ...], **params: Any
) -> tuple[Array, int]:
    size = next(x.shape[d] for x, d in zip(values, dims, strict=True) if d is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(values, dims, strict=True)
    ]
    return mesh_p.bind(*moved, lead=(size, *lead), **params), 0


primitive_batchers[mesh_p] = _mesh_batch
