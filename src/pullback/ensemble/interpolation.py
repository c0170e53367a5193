"""Data as a function of time, for use in vector fields: forcings, measured inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array, ArrayLike
from pullback.ensemble.dtypes import check_x64, dtype_of, known
from pullback.ensemble.leaf import is_array, make_leaf
from pullback.ensemble.spline import cubic_pieces, linear_pieces

Kind = Literal["linear", "cubic"]
Extrapolate = Literal["clamp", "linear", "periodic", "nan"]
_PIECES: dict[str, Callable[[Array, Array], Array]] = {
    "linear": linear_pieces,
    "cubic": cubic_pieces,
}
# Knots of a uniform grid are where they should be up to so many roundings.
_UNIFORM_EPS = 16


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Interpolation:
    """A function of time through given points: `forcing = pb.Interpolation(t, values)`.

    `forcing(time)` has the shape of one value. An interpolation is a pytree: a vector field may
    close over it or find it in `params`, and ensembles may have one for each trajectory (make them
    with `jax.vmap`). Its coefficients are computed once, here; to differentiate by the values make
    it inside the function that is differentiated, outside the vector field.

    Args:
        t: increasing times, `(n,)`, at least two.
        values: values at these times, `(n, ...)`.
        kind: "linear", or "cubic" for the spline with a continuous second derivative whose third is
            continuous at the second and the last but one time too ("not-a-knot").
        extrapolate: outside the times: "clamp" holds the end values, "linear" goes on along the
            tangent, "periodic" repeats, "nan" gives NaN.

    Raises:
        TypeError: `t` or `values` are no real numbers.
        ValueError: there are too few times, they do not increase, or something is not finite.

    Differentiation:
        By the time, the values and the times `t`. A linear one has a kink at each time: a solve
        that is to be accurate should step there (`tstops`).

    Example:
        >>> import jax.numpy as jnp, pullback as pb
        >>> forcing = pb.Interpolation(jnp.array([0.0, 1.0, 3.0]), jnp.array([0.0, 2.0, 0.0]))
        >>> float(forcing(2.0))
        1.0
    """

    t: Array
    coefficients: Array
    extrapolate: Extrapolate
    is_uniform: bool

    def __init__(
        self,
        t: ArrayLike,
        values: ArrayLike,
        kind: Kind = "linear",
        extrapolate: Extrapolate = "clamp",
    ) -> None:
        if kind not in _PIECES:
            raise ValueError(f"`kind` must be one of {tuple(_PIECES)}, but {kind!r} arrived.")
        if extrapolate not in get_args(Extrapolate):
            raise ValueError(
                f"`extrapolate` must be one of {get_args(Extrapolate)}, but {extrapolate!r} "
                "arrived."
            )
        t, values = _numbers("t", t), _numbers("values", values)
        _check_points(t, values)
        dtype = jnp.result_type(t, values)
        is_uniform = _is_uniform(t)
        t, values = jnp.asarray(t, dtype), jnp.asarray(values, dtype)
        self._set(t, _PIECES[kind](t, values), extrapolate, is_uniform)

    def _set(self, *parts: Any) -> None:
        names = ("t", "coefficients", "extrapolate", "is_uniform")
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(self, name, part)

    def __call__(self, time: ArrayLike) -> Array:
        """Return the value at a time, or at each of an array of times (its axes lead)."""
        time = jnp.asarray(time)
        if time.ndim:
            flat = jax.vmap(self._at)(time.reshape(-1))
            return flat.reshape(*time.shape, *flat.shape[1:])
        return self._at(time)

    def derivative(self, time: ArrayLike) -> Array:
        """Return the derivative by time, likewise; at a kink that of the piece behind it."""
        time = jnp.asarray(time, self.t.dtype)
        if time.ndim:
            flat = jax.vmap(self.derivative)(time.reshape(-1))
            return flat.reshape(*time.shape, *flat.shape[1:])
        return jax.jvp(self._at, (time,), (jnp.ones_like(time),))[1]

    def _at(self, time: Array) -> Array:
        first, last = self.t[0], self.t[-1]
        if self.extrapolate == "periodic":
            period = last - first
            time = time - period * lax.stop_gradient(jnp.floor((time - first) / period))
        inside = jnp.where(time < first, first, jnp.where(time > last, last, time))
        index = self._index(lax.stop_gradient(inside))
        start = lax.dynamic_index_in_dim(self.t, index, keepdims=False)
        piece = lax.dynamic_index_in_dim(self.coefficients, index, keepdims=False)
        value = _polynomial(piece, inside - start)
        if self.extrapolate == "linear":
            value = value + (time - inside) * _slope(piece, inside - start)
        if self.extrapolate == "nan":
            value = jnp.where((time < first) | (time > last), jnp.nan, value)
        return value

    def _index(self, time: Array) -> Array:
        """Return in which piece a time lies; at a time between two, the one behind it."""
        n_pieces = self.coefficients.shape[0]
        if self.is_uniform:
            first = lax.stop_gradient(self.t[0])
            per_piece = n_pieces / (lax.stop_gradient(self.t[-1]) - first)
            # Rounding at a knot chooses one of two pieces, which agree there.
            place = (time - first) * per_piece
            return jnp.clip(place, 0, n_pieces - 1).astype(jnp.int32)
        index = jnp.zeros((), jnp.int32)
        step = 1 << max(n_pieces - 1, 0).bit_length()
        while step > 1:
            step //= 2
            further = index + step
            knot = lax.dynamic_index_in_dim(
                lax.stop_gradient(self.t), jnp.minimum(further, n_pieces - 1), keepdims=False
            )
            index = jnp.where((further < n_pieces) & (knot <= time), further, index)
        return index

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Split into leaves with their names and the static part."""
        children = [
            (jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in ("t", "coefficients")
        ]
        return children, (self.extrapolate, self.is_uniform)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Self:
        """Rebuild without checks: the leaves may be anything that JAX puts there."""
        new = object.__new__(cls)
        new._set(*children, *static)
        return new

    def __repr__(self) -> str:
        shape = getattr(self.coefficients, "shape", None)
        if shape is None:
            return "Interpolation(...)"
        kind = "cubic" if shape[1] == 4 else "linear"
        return f"Interpolation({kind}, {shape[0] + 1} times, values of shape {shape[2:]})"


def _polynomial(piece: Array, x: Array) -> Array:
    value = piece[-1]
    for i in range(piece.shape[0] - 2, -1, -1):
        value = value * x + piece[i]
    return value


def _slope(piece: Array, x: Array) -> Array:
    n = piece.shape[0] - 1
    value = n * piece[n]
    for i in range(n - 1, 0, -1):
        value = value * x + i * piece[i]
    return value


def _numbers(name: str, value: Any) -> Any:
    """Return `value` as an array of real floating numbers."""
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
        value = value.astype(jnp.result_type(float)) if value.dtype.kind in "fiu" else value
    if not is_array(value) or dtype_of(value).kind not in "fiu":
        raise TypeError(f"`{name}` of Interpolation must be real numbers, but {value!r} arrived.")
    check_x64(make_leaf(name, value))
    if dtype_of(value).kind == "f":
        return value
    return jnp.asarray(value).astype(float)


def _check_points(t: Any, values: Any) -> None:
    shape = np.shape(t)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            "`t` of Interpolation must hold at least two times in one axis, but an array of shape "
            f"{shape} arrived."
        )
    if np.shape(values)[:1] != shape:
        raise ValueError(
            f"`values` of Interpolation must have one entry for each of the {shape[0]} times along "
            f"the first axis, but an array of shape {np.shape(values)} arrived."
        )
    for name, numbers in (("t", known(t)), ("values", known(values))):
        if numbers is not None and not np.isfinite(numbers).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
            raise ValueError(
                f"`{name}` of Interpolation must be finite, but entry "
                f"{where[0] if len(where) == 1 else where} is {numbers[where]}; leave missing "
                "points out."
            )
    times = known(t)
    if times is not None and not (np.diff(times) > 0).all():
        where = int(np.argmin(np.diff(times) > 0)) + 1
        raise ValueError(
            f"`t` of Interpolation must increase, but entry {where} is {times[where]:.9g}, after "
            f"{times[where - 1]:.9g}; sort the points, and keep one of equal times."
        )


def _is_uniform(t: Any) -> bool:
    times = known(t)
    if times is None:
        return False
    grid = np.linspace(times[0], times[-1], times.size)
    eps = float(jnp.finfo(jnp.result_type(t)).eps)
    return bool(np.abs(times - grid).max() <= _UNIFORM_EPS * eps * np.abs(times).max())
