"""The problems that are measured: vector fields, inputs by the thousand, spans and tolerances.

A vector field is written twice, for JAX and for NumPy (which SciPy calls); the compiled loop has
its own in `tsit5.cpp`, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Field = Callable[[Any, Any, Any], Any]
SEED = 20_240_601


class Inputs(NamedTuple):
    """The arrays of an ensemble; what all trajectories share has no trajectory axis.

    Attributes:
        y0: initial states, `(state,)` or `(trajectory, state)`.
        params: parameters, a pytree; with respect to these gradients are taken.
    """

    y0: Any
    params: Any


@dataclass(frozen=True)
class Case:
    """A problem.

    Attributes:
        name: how it is called on the command line and in `tsit5.cpp`.
        title: how it is called in tables.
        field: the vector field in JAX.
        numpy_field: the same in NumPy.
        make: inputs of `n` trajectories in double precision.
        shared_params: whether all trajectories share the parameters, and differ in `y0` alone.
        t1: end of the span, which begins at 0.
        n_saves: equidistant saved times, the last one at `t1`; 0 saves the end alone.
        tol: relative and absolute tolerance, unless others are asked for.
    """

    name: str
    title: str
    field: Field
    numpy_field: Field
    make: Callable[[int, np.random.Generator], Inputs]
    shared_params: bool
    t1: float
    n_saves: int = 0
    tol: float = 1e-6

    @property
    def save_times(self) -> np.ndarray | None:
        """Saved times, or None for the end alone."""
        if not self.n_saves:
            return None
        return np.linspace(0.0, self.t1, self.n_saves + 1)[1:]


def make_inputs(case: Case, n: int, dtype: str = "float64") -> Inputs:
    """Return the inputs of `n` trajectories, the same ones in every process."""
    inputs = case.make(n, np.random.default_rng(SEED))
    return cast(inputs, dtype)


def cast(inputs: Inputs, dtype: str) -> Inputs:
    """Return inputs in another precision, as NumPy arrays."""
    params = inputs.params
    if isinstance(params, tuple):
        new = tuple(np.asarray(p, dtype) for p in params)
    else:
        new = np.asarray(params, dtype)
    return Inputs(np.asarray(inputs.y0, dtype), new)


def first(case: Case, inputs: Inputs, n: int) -> Inputs:
    """Return the inputs of the first `n` trajectories."""
    if case.shared_params:
        return inputs._replace(y0=inputs.y0[:n])
    return inputs._replace(params=inputs.params[:n])


def _lorenz(t, y, rho):
    del t
    return jnp.stack([10.0 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1],
                      y[0] * y[1] - (8.0 / 3.0) * y[2]])  # fmt: skip


def _lorenz_numpy(t, y, rho):
    del t
    a, b, c = y
    return np.array([10.0 * (b - a), a * (rho - c) - b, a * b - (8.0 / 3.0) * c])


def _lorenz_inputs(n: int, rng: np.random.Generator) -> Inputs:
    return Inputs(np.array([1.0, 0.0, 0.0]), rng.uniform(0.0, 21.0, n))


def _lotka_volterra(t, y, p):
    del t
    prey, predator = y
    return jnp.stack([p[0] * prey - p[1] * prey * predator,
                      p[2] * prey * predator - p[3] * predator])  # fmt: skip


def _lotka_volterra_numpy(t, y, p):
    del t
    prey, predator = y
    return np.array([p[0] * prey - p[1] * prey * predator,
                     p[2] * prey * predator - p[3] * predator])  # fmt: skip


def _lotka_volterra_inputs(n: int, rng: np.random.Generator) -> Inputs:
    centre = np.array([1.1, 0.4, 0.1, 0.4])
    return Inputs(np.array([10.0, 5.0]), centre * rng.uniform(0.6, 1.4, (n, 4)))


def _van_der_pol(t, y, mu):
    del t
    return jnp.stack([y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]])


def _van_der_pol_numpy(t, y, mu):
    del t
    return np.array([y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]])


def _van_der_pol_inputs(n: int, rng: np.random.Generator) -> Inputs:
    return Inputs(np.array([2.0, 0.0]), 10.0 ** rng.uniform(-1.0, 2.0, n))


_HIDDEN = 32


def _network(t, y, weights):
    del t
    w1, b1, w2, b2, w3, b3 = weights
    hidden = jnp.tanh(w1 @ y + b1)
    hidden = jnp.tanh(w2 @ hidden + b2)
    return w3 @ hidden + b3


def _network_numpy(t, y, weights):
    del t
    w1, b1, w2, b2, w3, b3 = weights
    hidden = np.tanh(w1 @ y + b1)
    hidden = np.tanh(w2 @ hidden + b2)
    return w3 @ hidden + b3


def _network_inputs(n: int, rng: np.random.Generator) -> Inputs:
    """Return states spread over a square and the weights of a field with gentle vortices."""
    h = _HIDDEN
    weights = (
        rng.normal(0.0, 1.0, (h, 2)),
        rng.normal(0.0, 1.0, h),
        rng.normal(0.0, 1.2 / np.sqrt(h), (h, h)),
        rng.normal(0.0, 0.3, h),
        rng.normal(0.0, 1.5 / np.sqrt(h), (2, h)),
        np.zeros(2),
    )
    return Inputs(rng.uniform(-2.0, 2.0, (n, 2)), weights)


CASES = {
    case.name: case
    for case in (
        Case("lorenz", "Lorenz", _lorenz, _lorenz_numpy, _lorenz_inputs, False, t1=10.0),
        Case(
            "lotka_volterra", "Lotka–Volterra, 20 saves", _lotka_volterra, _lotka_volterra_numpy,
            _lotka_volterra_inputs, False, t1=20.0, n_saves=20,
        ),
        Case(
            "van_der_pol", "Van der Pol, unequal", _van_der_pol, _van_der_pol_numpy,
            _van_der_pol_inputs, False, t1=20.0,
        ),
        Case(
            "mlp", "2 x 32 network", _network, _network_numpy, _network_inputs, True, t1=10.0,
        ),
    )
}  # fmt: skip
