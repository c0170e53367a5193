"""The derivative of the loss with respect to the state, step by step, for the user to see."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from pullback.checkpoint.disk.leaves_on_disk import to_numpy
from pullback.checkpoint.disk.lock import make_folder
from pullback.core.typing import PyTree

__all__ = ["AdjointField", "save_adjoint_fields"]


class AdjointField(NamedTuple):
    """What a callback of `value_and_grad_loop` is given.

    Attributes:
        step: Index of the step that the state goes into; the length for the last state.
        carry_bar: Derivative of the loss with respect to that state, in the structure of `init`;
            `float0` for leaves that have none.
        params_bar: Derivative with respect to the parameters of the steps from there on.
    """

    step: int
    carry_bar: PyTree
    params_bar: PyTree


def save_adjoint_fields(folder: str | os.PathLike[str]) -> Callable[[AdjointField], None]:
    """Return a callback that writes each field to `folder/adjoint_<step>.npz`.

    The arrays are named like their places in the tree: `carry_bar['u']`, `params_bar[0]`. A file
    is whole or not there.
    """
    path = os.path.abspath(folder)
    make_folder("folder", path)

    def save(field: AdjointField) -> None:
        arrays = {}
        for name in ("carry_bar", "params_bar"):
            for place, leaf in jax.tree_util.tree_leaves_with_path(getattr(field, name)):
                if leaf.dtype != jax.dtypes.float0:
                    arrays[name + jax.tree_util.keystr(place)] = to_numpy(leaf)
        target = os.path.join(path, f"adjoint_{field.step:09d}.npz")
        with open(target + ".new", "wb") as file:
            np.savez(file, step=field.step, **arrays)
        os.replace(target + ".new", target)

    return save
