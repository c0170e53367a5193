"""Spiking neurons: an ensemble with jumps, firing rates, and the gradient of a spike's time.

Izhikevich's model has two equations and a reset. When the membrane potential reaches its peak, the
neuron has fired: an event sets the potential back and raises the recovery variable. Four types of
cells at many input currents are one ensemble; the events count their spikes. The time of a spike
is differentiated by the current, through all spikes before it.

References:
    E. M. Izhikevich: Simple model of spiking neurons. IEEE Transactions on Neural Networks 14(6),
    1569-1572, 2003.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

# a [1/ms], b, c [mV], d of Izhikevich's figure 2.
CELLS = {
    "regular spiking": (0.02, 0.2, -65.0, 8.0),
    "chattering": (0.02, 0.2, -50.0, 2.0),
    "fast spiking": (0.1, 0.2, -65.0, 2.0),
    "low threshold": (0.02, 0.25, -65.0, 2.0),
}
PEAK = 30.0
SPIKE = 4  # the one whose time is differentiated


class Result(NamedTuple):
    """What the neurons do.

    Attributes:
        rates: spikes per second, `(type, current)`.
        gradient: derivative of the time of a spike by the current [ms per unit], `(type,)`.
        difference: the same by a difference of two solves.
    """

    rates: np.ndarray
    gradient: np.ndarray
    difference: np.ndarray


def neuron(t, y, p):
    """Return the rates of change of the potential [mV/ms] and the recovery variable."""
    v, u = y
    current, a, b = p[0], p[1], p[2]
    return jnp.stack([0.04 * v**2 + 5.0 * v + 140.0 - u + current, a * (b * v - u)])


def reset(t, y, p):
    """Return the state behind a spike."""
    return jnp.stack([p[3], y[1] + p[4]])


FIRES = pb.Event(lambda t, y, p: y[0] - PEAK, reset, direction=1)


def simulate(cells, t1, tolerance):
    """Return the solution of neurons with parameters (current, a, b, c, d), `(neuron, 5)`."""
    rest = jnp.stack([jnp.full(len(cells), -65.0), -65.0 * cells[:, 2]], axis=1)
    one = pb.ODEProblem(neuron, rest[0], (0.0, t1), cells[0], events=[FIRES])
    ensemble = pb.EnsembleProblem(one, y0=rest, params=cells)
    return pb.solve(ensemble, pb.Tsit5(), rtol=tolerance, atol=tolerance)


def spike_times(current, t1, tolerance=1e-9):
    """Return the time of one spike of a neuron of each type, `(type,)`."""
    types = jnp.array(list(CELLS.values()))
    cells = jnp.concatenate([jnp.full((len(types), 1), current), types], axis=1)
    return simulate(cells, t1, tolerance).events.t[:, SPIKE - 1]


def main(n_currents: int = 50, t1: float = 1000.0, current: float = 10.0) -> Result:
    """Count spikes for each type and current, and differentiate a spike's time."""
    jax.config.update("jax_enable_x64", True)
    currents = jnp.linspace(4.0, 20.0, n_currents)
    types = jnp.array(list(CELLS.values()))
    cells = jnp.concatenate(
        [jnp.tile(currents, len(types))[:, None], jnp.repeat(types, n_currents, axis=0)], axis=1
    )
    sol = simulate(cells, t1, 1e-6).raise_if_failed()
    rates = np.asarray(sol.events.count).reshape(len(types), n_currents) * 1000.0 / t1
    gradient = jax.jvp(lambda x: spike_times(x, 200.0), (current,), (1.0,))[1]
    ends = (spike_times(current + sign * 1e-4, 200.0) for sign in (1.0, -1.0))
    difference = (next(ends) - next(ends)) / 2e-4
    result = Result(rates, np.asarray(gradient), np.asarray(difference))
    print(f"{'':>16}{'spikes per second at current':>30}    time of spike {SPIKE} by current")
    shown = [0, n_currents // 2, n_currents - 1]
    print(f"{'':>16}" + "".join(f"{float(currents[i]):10.1f}" for i in shown), end="")
    print(f"{'gradient':>14}{'difference':>14}")
    for i, name in enumerate(CELLS):
        print(f"{name:>16}" + "".join(f"{rates[i, j]:10.1f}" for j in shown), end="")
        print(f"{result.gradient[i]:14.6f}{result.difference[i]:14.6f}")
    return result


if __name__ == "__main__":
    main()
