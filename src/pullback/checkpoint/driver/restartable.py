"""`value_and_grad_loop`: the gradient of a loop that may take longer than the process lives."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pullback.checkpoint.arguments import array_leaves, check_function, check_options, loop_length
from pullback.checkpoint.disk.lock import FolderLock, make_folder
from pullback.checkpoint.driver import manifest
from pullback.checkpoint.driver.adjoint_fields import AdjointField
from pullback.checkpoint.driver.follow import Follower
from pullback.checkpoint.driver.loop_functions import Adjoint, Loop, trace_loop, unflattened
from pullback.checkpoint.driver.progress_bar import ProgressBar
from pullback.checkpoint.host_scan import is_traced
from pullback.checkpoint.mode import CheckpointModeError
from pullback.checkpoint.schedules import AbstractScheme, Revolve
from pullback.checkpoint.schedules.scheme import check_count
from pullback.checkpoint.step_kernels import CompileStep
from pullback.checkpoint.storage import AbstractStorage
from pullback.checkpoint.storage_disk import Disk
from pullback.checkpoint.storage_ram import RAM
from pullback.core.typing import Array, PyTree

__all__ = ["value_and_grad_loop"]

_DEFAULT_SCHEME = Revolve(64)


def value_and_grad_loop(
    step: Callable[[Any, Any, Any], Any],
    loss: Callable[[Any, Any], Any],
    init: PyTree,
    params: PyTree,
    *,
    directory: str | os.PathLike[str],
    xs: PyTree = None,
    length: int | None = None,
    scheme: AbstractScheme = _DEFAULT_SCHEME,
    storage: AbstractStorage | None = None,
    block: int = 16,
    resume: bool = True,
    callback: Callable[[AdjointField], Any] | None = None,
    every: int | None = None,
    progress: bool = False,
    compile_step: CompileStep = "auto",
) -> tuple[Array, tuple[PyTree, PyTree]]:
    """Return the loss after a long loop, and its gradient; go on where an earlier call stopped.

    The loop is `for x in xs: carry = step(carry, x, params)`, beginning with `init`, and the
    value is `loss(carry, params)`. After each block something is written to `directory`, so that
    the same call in another process, after the first was killed at any moment, loses one block at
    most and returns the same bits. Called again when all is done, it returns the result.

    Args:
        step: Function `(carry, x, params) -> carry` without side effects. What it closes over is
            not differentiated.
        loss: Function `(carry, params) -> number`.
        init: The first carry: a pytree of arrays and numbers; integers and random keys too.
        params: A pytree of arrays and numbers.
        directory: A folder for this run alone; it is made.
        xs: A pytree of arrays with one row per step, or None.
        length: Number of steps; may be left out if `xs` has arrays.
        scheme: Where snapshots are placed; counts blocks.
        storage: Where they are kept: by default `Disk` in `directory`. Snapshots that do not
            survive the process (`RAM`, `Host`) or are damaged are computed again.
        block: Steps that are run between two writes, and taped and reversed together.
        resume: Whether to go on with what `directory` holds; False begins anew.
        callback: Is given an `AdjointField` on the way back, from the last state to the first.
            After an interruption it may be given the same one again.
        every: Steps between two of them, a multiple of `block`; by default `block`.
        progress: Whether to show a bar.
        compile_step: As of `checkpointed_scan`. A run goes on with what it was begun with.

    Returns:
        The value, and its derivatives with respect to `init` and `params`, `float0` for leaves
        that have none.

    Raises:
        ResumeError: `directory` was begun by another loop; the message says what differs.
        StorageError: A folder cannot be used, is in use, or is full. What was done is kept.
        CheckpointModeError: Values are being traced.
        TypeError: `step` changes the type of the carry, or `loss` is no real number.
        ValueError: Lengths disagree, an option is out of range, or a function has side effects.

    Differentiation:
        The result is a gradient, exact for the steps taken; it has no derivative itself.
    """
    folder = os.path.abspath(directory)
    check_function("step", step, "carry, x, params")
    check_function("loss", loss, "carry, params")
    check_options(scheme, RAM() if storage is None else storage, block)
    every = _check_callback(callback, every, block)
    if is_traced(init, params, xs):
        raise CheckpointModeError(
            "`value_and_grad_loop`: expected concrete values, but they are being traced (by jit,"
            " vmap, grad or scan). Call it outside of them, or use `checkpointed_scan`."
        )
    n_steps = loop_length(xs, array_leaves("xs", xs), length)
    loop = trace_loop(step, loss, init, params, xs, compile_step)
    make_folder("directory", folder)
    lock = FolderLock("directory", folder)
    try:
        described = manifest.manifest_of(loop, init, params, xs, n_steps, block, scheme)
        own = Disk(os.path.join(folder, "snapshots")) if storage is None else None
        kept = own if storage is None else storage
        assert kept is not None

        def on_adjoint(at: int, adjoint: Adjoint) -> None:
            if callback is not None and at % every == 0:
                callback(AdjointField(at, *_trees(loop, init, params, adjoint)))

        def make_follower(run: int, is_new: bool, bar: ProgressBar) -> Follower:
            return Follower(
                loop, n_steps, block, scheme, kept, run, folder, is_new, bar, on_adjoint
            )  # fmt: skip

        try:
            with ProgressBar(
                progress, scheme, n_steps // block, block, n_steps % block, kept
            ) as bar:
                adjoint = _run(described, folder, resume, kept, bar, make_follower)
        finally:
            if own is not None:
                own.close()
        return adjoint.value, _trees(loop, init, params, adjoint)
    finally:
        lock.release()


def _run(
    described: manifest.Manifest,
    folder: str,
    resume: bool,
    storage: AbstractStorage,
    bar: ProgressBar,
    make_follower: Callable[[int, bool, ProgressBar], Follower],
) -> Adjoint:
    """Go on with the run that the folder holds, or begin one."""
    earlier = described.resumed(folder) if resume else None
    if earlier is None:
        manifest.remove(folder)
    storage.preserve(True)
    follower = make_follower((earlier or described).run, earlier is None, bar)
    try:
        if earlier is None:
            # Last, so that a process killed before has begun nothing.
            described.write(folder)
        adjoint = follower.run()
    finally:
        follower.close()
    storage.preserve(False)
    return adjoint


def _check_callback(callback: Any, every: Any, block: int) -> int:
    if callback is not None and not callable(callback):
        raise TypeError(f"`callback`: expected a function, got {callback!r}. Pass a callable.")
    if every is None:
        return block
    check_count("every", every, least=1)
    if every % block:
        raise ValueError(
            f"`every`: expected a multiple of `block`, which is {block}, got {every}. Adjoints are"
            " known between blocks only."
        )
    return every


def _trees(
    loop: Loop, init: PyTree, params: PyTree, adjoint: Adjoint
) -> tuple[PyTree, PyTree]:  # fmt: skip
    return (
        unflattened(init, loop.init, adjoint.carry),
        unflattened(params, loop.operands.params, adjoint.params),
    )
