"""What `solve` returns of an ensemble that it reduced: a summary instead of the solutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import jax
import numpy as np

from pullback.core import FIRST_FAILURE, SolveFailedError, Status
from pullback.core.typing import Array, PyTree
from pullback.ensemble.leaf import is_traced


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """What is left of an ensemble.

    A summary is a pytree. Failed trajectories are not part of `value`; `status` counts them.

    Attributes:
        t: times of the saved rows, `(save,)`; None where they differ between trajectories.
        value: what the reduction made of the trajectories that did not fail.
        n_ok: how many these are.
        status: how many trajectories ended with each status, by its name.

    Differentiation:
        `value`, as its reduction says.
    """

    t: Array | None
    value: PyTree
    n_ok: Array
    status: Mapping[str, Array]

    @property
    def n_failed(self) -> Array:
        """How many trajectories failed."""
        return sum(self.status[s.name] for s in Status if s >= FIRST_FAILURE)  # pyright: ignore[reportReturnType]

    def raise_if_failed(self) -> Self:
        """Return the summary itself, or raise if a trajectory failed.

        Raises:
            SolveFailedError: says how many failed, why, and what to change.
            ValueError: the summary is traced, so its counts are not known yet.
        """
        if is_traced(self.n_ok):
            raise ValueError(
                "`raise_if_failed` and throw=True need to see the status, but it is traced (inside "
                "jax.jit, jax.vmap or jax.grad); call it on the summary that the transformed "
                "function returns."
            )
        counts = self._counts()
        failed = {s: n for s, n in counts.items() if s >= FIRST_FAILURE}
        if failed:
            total, n_failed = sum(counts.values()), sum(failed.values())
            worst = max(failed, key=lambda s: failed[s])
            advice = f"; to change that, {worst.advice}" if worst.advice else ""
            names = ", ".join(f"{s.name} {n}" for s, n in failed.items())
            raise SolveFailedError(
                f"{n_failed} of {total} trajectories failed ({names}): {worst.message}{advice}."
            )
        return self

    def _counts(self) -> dict[Status, int]:
        counts = {s: int(self.status[s.name]) for s in Status}
        return {s: n for s, n in counts.items() if n}

    def __repr__(self) -> str:
        arrays = [x for x in jax.tree.leaves(self.value) if hasattr(x, "shape")]
        value = ", ".join(
            f"{np.dtype(x.dtype).name}[{','.join(map(str, x.shape))}]" for x in arrays
        )
        head = f"Summary(value: {value}"
        if not isinstance(self.n_ok, (jax.Array, np.ndarray)):
            return f"{head})"
        if is_traced(self.n_ok):
            return f"{head}, traced)"
        return f"{head}, {', '.join(f'{s.name} {n}' for s, n in self._counts().items())})"
