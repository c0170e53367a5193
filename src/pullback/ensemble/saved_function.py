"""`save_fn`: what is saved of a state instead of the state itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.typing import Array, PyTree
from pullback.core.user_function import require_function
from pullback.ensemble.leaf import Members, is_array
from pullback.ensemble.traced_field import Field, example_params
from pullback.ode import FlatFunction, trace_function


@dataclass(frozen=True)
class SavedFunction:
    """A traced `save_fn(t, y, params)`, equal by content.

    Attributes:
        flat: its trace, of one state vector, with one result for each leaf.
        tree: structure of what it returns.
    """

    flat: FlatFunction
    tree: Any

    @property
    def shapes(self) -> PyTree:
        """Shapes and dtypes of what it returns."""
        avals = self.flat.jaxpr.out_avals
        return jax.tree.unflatten(
            self.tree, [jax.ShapeDtypeStruct(a.shape, np.dtype(a.dtype)) for a in avals]
        )

    def rows(self, t: Array, y: Array, is_real: Array | None, theta: tuple[Array, ...]) -> PyTree:
        """Return what is saved of the rows of one trajectory.

        Args:
            t: times, `(save,)`.
            y: states, `(save, n)`.
            is_real: which rows have a derivative, `(save,)`; None for all.
            theta: arrays of all functions, this one's own behind the others.
        """
        taken = tuple(theta[i] for i in self.flat.places)
        evaluate = jex.jaxpr_as_fun(self.flat.jaxpr)
        if is_real is None:
            leaves = jax.vmap(lambda t, y: evaluate(t, y, *taken))(t, y)
            return jax.tree.unflatten(self.tree, leaves)
        # What repeats the last good point has no derivative, also not by the parameters; and
        # selecting the inputs too keeps what is not finite there out of the others' gradient.
        t = jnp.where(is_real, t, jax.lax.stop_gradient(t))
        y = jnp.where(is_real[:, None], y, jax.lax.stop_gradient(y))
        leaves = jax.vmap(lambda t, y: evaluate(t, y, *taken))(t, y)
        return jax.tree.unflatten(self.tree, [_masked(leaf, is_real) for leaf in leaves])


def _masked(leaf: Array, is_real: Array) -> Array:
    mask = is_real.reshape(is_real.shape + (1,) * (leaf.ndim - 1))
    return jnp.where(mask, leaf, jax.lax.stop_gradient(leaf))


def trace_save_fn(
    save_fn: Any, members: Members, field: Field, n_theta: int
) -> tuple[SavedFunction | None, tuple[Array, ...]]:
    """Trace `save_fn` for one trajectory.

    Args:
        save_fn: the user's function; None for none.
        members: trajectories whose leaves have been cast.
        field: the traced vector field.
        n_theta: length of theta; what the function closes over is to follow.

    Returns:
        The traced function, and the arrays that it closes over.

    Raises:
        TypeError: it is not a function, or returns something that is not an array.
        ValueError: it returns nothing.
    """
    if save_fn is None:
        return None, ()
    require_function("save_fn", save_fn)
    tree: list[Any] = []

    def leaves_of(value: Any) -> Any:
        leaves, structure = jax.tree.flatten(value)
        for leaf in leaves:
            if not is_array(leaf):
                raise TypeError(
                    "`save_fn` must return arrays or numbers in any pytree, but a "
                    f"{type(leaf).__name__} is among what it returned."
                )
        if not leaves:
            raise ValueError(
                f"`save_fn` must return what is to be saved, but it returned {value!r}, which "
                "holds no arrays."
            )
        tree[:] = [structure]
        return [jnp.asarray(leaf) for leaf in leaves]

    function, params = example_params(members, save_fn)
    flat, hoisted = trace_function(function, field.layout, params, n_theta, leaves_of)
    return SavedFunction(flat, tree[0]), hoisted
