"""The right-hand side of one trajectory, bound to its arrays, as methods see it."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode.field import FlatField
from pullback.ode.flat_function import FlatFunction, inputs_read
from pullback.ode.mass import MassMatrix, placed
from pullback.ode.noise import Increments, NoiseSpec
from pullback.ode.split import SplitParts

__all__ = ["System"]

# Up to so many states the columns of the Jacobian are computed one by one, so that the zeros of
# each basis vector are known where the kernel is built; beyond it the code would be too large.
_LARGEST_UNROLLED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """M y' = field(t, y, theta) for given theta.

    Attributes:
        field: The vector field.
        theta: Its arrays.
        mass: The matrix M; None for the identity.
        rtol: Relative tolerance of equations solved inside a step.
        atol: Absolute tolerance, likewise.
        index: Number of the step, from 0; None outside a step.
        noise: How noise enters; None for an ordinary equation.
        is_stiff: Whether the stiff one of two methods takes the step; None where there is one.
        jac: The Jacobian of the vector field, `(n, n)`; None derives it.
        split: The two parts of the vector field; None where it is not split.
    """

    field: FlatField | FlatFunction
    theta: tuple[Array, ...]
    mass: MassMatrix | None
    rtol: Array
    atol: Array
    index: MaybeArray = None
    noise: NoiseSpec | None = None
    is_stiff: MaybeArray = None
    jac: FlatFunction | None = None
    split: SplitParts | None = None

    def __call__(self, t: Array, y: Array) -> Array:
        """Evaluate the vector field."""
        return self.field(t, y, self.theta)

    @property
    def is_autonomous(self) -> bool:
        """Whether the vector field does not mention time."""
        return not _uses_time(self.field)

    def time_derivative(self, t: Array, y: Array) -> Array:
        """Return the partial derivative of the vector field by time."""
        return jax.jvp(lambda s: self(s, y), (t,), (jnp.ones_like(t),))[1]

    def jacobian(self, t: Array, y: Array) -> list[Array]:
        """Return the columns of the Jacobian of the vector field by the state."""
        if self.jac is not None:
            matrix = self.jac(t, y, self.theta)
            return [matrix[:, j] for j in range(y.shape[0])]
        return jacobian_columns(self.field, t, y, self.theta)

    @property
    def stiff_part(self) -> System:
        """The system of the stiff part of the vector field; all of it where it is not split."""
        if self.split is None:
            return self
        return dataclasses.replace(self, field=self.split.implicit, jac=None, split=None)

    def other_part(self, t: Array, y: Array) -> MaybeArray:
        """Evaluate the part of the vector field that is not stiff; None where it is not split."""
        return None if self.split is None else self.split.explicit(t, y, self.theta)

    def mass_times(self, x: Array) -> Array:
        """Return M x."""
        return x if self.mass is None else self.mass.times(x)

    def mass_columns(self, scale: Array, n: int) -> list[Array]:
        """Return the columns of `scale` M."""
        if self.mass is None:
            return [placed(scale, j, n) for j in range(n)]
        return self.mass.columns(scale)

    def diffusion(self, t: Array, y: Array) -> Array:
        """Evaluate what multiplies the noise."""
        return self._noise.diffusion(t, y, self.theta)

    def increments(self, h: Array, *, with_dz: bool = False) -> Increments:
        """Return the increments of the Wiener processes over this step, whose size is h."""
        assert self.index is not None
        return self._noise.increments(self.theta, self.index, h, with_dz=with_dz)

    def spread(self, diffusion: Array, dw: Array) -> Array:
        """Return what increments do to the state, for a value of the diffusion."""
        return self._noise.spread(diffusion, dw)

    @property
    def _noise(self) -> NoiseSpec:
        assert self.noise is not None
        return self.noise


def jacobian_columns(
    field: FlatField | FlatFunction, t: Array, y: Array, theta: tuple[Array, ...]
) -> list[Array]:
    """Return the columns of df/dy, by forward mode in the direction of each component."""

    def of_state(x: Array) -> Array:
        return field(t, x, theta)

    n = y.shape[0]
    if n > _LARGEST_UNROLLED:
        matrix = jax.jacfwd(of_state)(y)
        return [matrix[:, j] for j in range(n)]
    one = jnp.ones((), y.dtype)
    push = jax.linearize(of_state, y)[1]
    return [push(placed(one, j, n)) for j in range(n)]


@functools.lru_cache(maxsize=256)
def _uses_time(field: FlatField | FlatFunction) -> bool:
    return inputs_read(field.jaxpr)[0]
