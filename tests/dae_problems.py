"""Differential-algebraic test problems of index one, in semi-explicit form, with end values.

Where the published form has a mass matrix whose algebraic equations are not rows of zeros, rows are
combined and variables are differences. End values come from SciPy on an ordinary equation that is
equivalent, as each problem says; those of the test set agree with the published ones.

References:
    The IVP test set of the University of Bari: chemical Akzo Nobel problem, transistor amplifier,
    Robertson's problem.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class DaeProblem:
    """One problem: its field, mass matrix, start, end, parameters and end value.

    The algebraic variables of `y0` are a guess where they are not consistent.
    """

    field: Callable
    mass: tuple[float, ...]
    y0: np.ndarray
    t1: float
    params: np.ndarray
    end: np.ndarray
    unit: float  # atol / rtol


def akzo_nobel(t, y, p):
    """Six concentrations; the last one follows from an equilibrium.

    Parameters: equilibrium constant, inflow coefficient, rate of the first reaction.
    """
    root = jnp.sqrt(y[1])
    r1 = p[2] * y[0] ** 4 * root
    r2 = 0.58 * y[2] * y[3]
    r3 = 0.58 / 34.4 * y[0] * y[4]
    r4 = 0.09 * y[0] * y[3] ** 2
    r5 = 0.42 * y[5] ** 2 * root
    inflow = p[1] * (0.9 / 737.0 - y[1])
    return jnp.stack(
        [
            -2.0 * r1 + r2 - r3 - r4,
            -0.5 * r1 - r4 - 0.5 * r5 + inflow,
            r1 - r2 + r3,
            -r2 + r3 - 2.0 * r4,
            r2 - r3 + r5,
            p[0] * y[0] * y[3] - y[5],
        ]
    )


def akzo_nobel_ode(t, y, p):
    """The first five, the last one put in."""
    whole = jnp.concatenate([y, (p[0] * y[0] * y[3])[None]])
    return akzo_nobel(t, whole, p)[:5]


_CAPACITIES = np.arange(1.0, 6.0) * 1e-6
_RESISTANCE = 9000.0  # of all resistors but the first


def amplifier_voltages(y):
    """Return the voltages of the eight nodes.

    The first five components are u2 - u1, u3, u5 - u4, u6 and u8 - u7, what the capacitors see;
    the last three are u1, u4 and u7.
    """
    return jnp.stack([y[5], y[5] + y[0], y[1], y[6], y[6] + y[2], y[3], y[7], y[7] + y[4]])


def amplifier(t, y, p):
    """Two transistors that amplify a sine.

    Parameters: supply voltage, saturation current in units of 1e-6, current gain, amplitude.
    """
    supply, current, gain, amplitude = p
    u = amplifier_voltages(y)
    signal = amplitude * jnp.sin(200.0 * np.pi * t)
    first = 1e-6 * current * jnp.expm1((u[1] - u[2]) / 0.026)
    second = 1e-6 * current * jnp.expm1((u[4] - u[5]) / 0.026)
    # What flows out of each node through resistors and transistors.
    f1 = (u[0] - signal) / 1000.0
    f2 = (2.0 * u[1] - supply) / _RESISTANCE + (1.0 - gain) * first
    f3 = u[2] / _RESISTANCE - first
    f4 = (u[3] - supply) / _RESISTANCE + gain * first
    f5 = (2.0 * u[4] - supply) / _RESISTANCE + (1.0 - gain) * second
    f6 = u[5] / _RESISTANCE - second
    f7 = (u[6] - supply) / _RESISTANCE + gain * second
    f8 = u[7] / _RESISTANCE
    return jnp.stack([f1, -f3, f4, -f6, f7, f1 + f2, f4 + f5, f7 + f8])


def pendulum(t, y, p):
    """A mass on a rod of length one, in Cartesian coordinates, with the tension for a variable.

    The constraint was differentiated twice. Parameters: gravity, damping.
    """
    x, z, u, w, tension = y
    return jnp.stack(
        [
            u,
            w,
            -tension * x - p[1] * u,
            -tension * z - p[1] * w - p[0],
            u * u + w * w - tension * (x * x + z * z) - p[0] * z,
        ]
    )


def pendulum_angle(t, y, p):
    """The same as an angle and its rate."""
    return jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1]])


def pendulum_state(y, p):
    """Return the Cartesian state that belongs to an angle and its rate."""
    s, c = jnp.sin(y[0]), jnp.cos(y[0])
    u, w = y[1] * c, y[1] * s
    return jnp.stack([s, -c, u, w, u * u + w * w + p[0] * c])


def robertson(t, y, p):
    """Robertson's problem with conservation in place of its last equation."""
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
    return jnp.stack([b - a, a - b - c, y[0] + y[1] + y[2] - p[3]])


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


ANGLE = np.array([0.4 * np.pi, 0.0])

DAE = {
    # Radau, rtol 1e-12, on the five equations with the sixth variable put in.
    "akzo_nobel": DaeProblem(
        akzo_nobel,
        (1.0, 1.0, 1.0, 1.0, 1.0, 0.0),
        np.array([0.444, 0.00123, 0.0, 0.007, 0.0, 0.3]),
        180.0,
        np.array([115.83, 3.3, 18.7]),
        _numbers(
            """0.11507949206616196 0.0012038314715677192 0.1611562887408015 0.0003656156421249047
            0.017080108852644705 0.00487353131030679"""
        ),
        1e-3,
    ),
    # Radau, rtol 1e-12, on the five capacitors, the other voltages by a scalar Newton iteration.
    "amplifier": DaeProblem(
        amplifier,
        (*_CAPACITIES, 0.0, 0.0, 0.0),
        np.array([3.0, 3.0, -3.0, 3.0, -6.0, 0.1, 5.5, 5.0]),
        0.05,
        np.array([6.0, 1.0, 0.99, 0.1]),
        _numbers(
            """-0.00556193809649823 3.006521530057329 2.8499578317321546 3.4672884627439724
            2.434184477483978 2.4949640523729903 5.535355377834846 0.4726943459111972"""
        ),
        1.0,
    ),
    # DOP853, rtol 1e-13, on the angle.
    "pendulum": DaeProblem(
        pendulum,
        (1.0, 1.0, 1.0, 1.0, 0.0),
        np.array([np.sin(ANGLE[0]), -np.cos(ANGLE[0]), 0.0, 0.0, 1.0]),
        3.0,
        np.array([9.81, 0.0]),
        _numbers(
            """-0.6809204004866931 -0.7323574319968641 -2.110656073933439 1.9624144118176743
            15.490365794031064"""
        ),
        1.0,
    ),
    # Radau, rtol 1e-12, on the ordinary equation.
    "robertson": DaeProblem(
        robertson,
        (1.0, 1.0, 0.0),
        np.array([1.0, 0.0, 0.3]),
        1e4,
        np.array([0.04, 1e4, 3e7, 1.0]),
        _numbers("0.107300428537804 4.80016697257e-7 0.892699091445497"),
        1e-4,
    ),
}
# The published end of the amplifier, at t = 0.2, and of the other voltages the same as above.
AMPLIFIER_END = _numbers(
    """-0.005562145012261682 3.006522471903045 2.8499587886081317 2.926422536206278
    2.704617865010595 2.761837778393053 4.770927631616809 1.2369958680915052"""
)
