"""A Runge-Kutta method in plain JAX, with events where the test says, to compare derivatives with.

Its derivative follows the documented rules: step sizes are frozen, the time is carried, and steps
that aim at a time absorb it.
"""

import jax
import jax.numpy as jnp


def rk4(field, t, y, h):
    k1 = field(t, y)
    k2 = field(t + h / 2, y + h / 2 * k1)
    k3 = field(t + h / 2, y + h / 2 * k2)
    k4 = field(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def run(field, y, stops, *, at_stop, at_step):
    """Return (t, y) behind every step.

    Args:
        field: the vector field of (t, y).
        y: the state at t = 0.
        stops: where steps end, pairs of a time and "free", "preset" or "end".
        at_stop: state behind a preset event, of (t, y).
        at_step: state behind a step, of (t, y).
    """
    t, rows = jnp.zeros(()), []
    for end, kind in stops:
        h = end - t
        h = jax.lax.stop_gradient(h) if kind == "free" else h
        y = rk4(field, t, y, h)
        t = t + h
        if kind == "preset":
            y = at_stop(t, y)
        y = at_step(t, y)
        rows.append((t, y))
    return rows
