"""Ask a small ocean which salinity its temperature depends on.

Three boxes, two at the surface and one below them, exchange water at a rate that depends on their
densities; air and fresh water force the upper two. The model makes 10 000 leapfrog steps of ten
days with a Robert filter. The gradient of the first box's temperature is with respect to the
initial temperatures and salinities. The model is Stommel's of 1961 with a third box, as in the
tests of Checkpointing.jl, which give the temperature and one number of the gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

DAY = 86400.0  # [s]
YEAR = 365 * DAY
STEP = 10 * DAY
LENGTH = np.array([5000e5, 1000e5, 5000e5])  # from south to north [cm]
DEPTH = np.array([1e5, 5e5, 4e5])  # [cm]
WIDTH = 4000e5  # [cm]
AREA = LENGTH * WIDTH
VOLUME = AREA * DEPTH
UPPER_SHARE = DEPTH[0] / (DEPTH[0] + DEPTH[2])
TRANSPORT = 16e12 / 0.0004  # per unit of density [cm3/s]
EXPANSION, CONTRACTION = 1668e-7, 0.7811e-3  # of density with temperature and salinity
RELAXATION = 1 / (300 * DAY)
AIR = np.array([22.0, 0.0, 0.0])  # [degrees Celsius]
IS_SURFACE = np.array([1.0, 1.0, 0.0])
# Salinity times the evaporation of the first box, 35 per metre and year, which rains on the second.
SALT = (100.0 / YEAR) * 35.0 * AREA[0] * np.array([1.0, -1.0, 0.0]) / VOLUME
FILTER = 0.25
START = np.array([[20.0, 1.0, 1.0], [35.5, 34.5, 34.5]])  # temperatures, salinities
PUBLISHED = {"temperature": 21.41890316892692, "gradient": 0.00616139595759519}


class Result(NamedTuple):
    """The end, and what it depends on.

    Attributes:
        temperature: of the first box at the end [degrees Celsius].
        by_temperature: its derivative with respect to the temperatures before the start, (3,).
        by_salinity: the same for the salinities.
        slope: change of the temperature by a small change of the second salinity, divided by it.
    """

    temperature: float
    by_temperature: np.ndarray
    by_salinity: np.ndarray
    slope: float


def tendency(boxes):
    """Return the rates of change of temperatures and salinities."""
    temperature, salinity = boxes
    density = -EXPANSION * temperature + CONTRACTION * salinity
    upper = UPPER_SHARE * density[0] + (1 - UPPER_SHARE) * density[2]
    flow = TRANSPORT * (density[1] - upper)
    # Water comes from the neighbour in the one direction or in the other.
    source = jnp.where(flow > 0, jnp.roll(boxes, 1, axis=1), jnp.roll(boxes, -1, axis=1))
    sign = jnp.where(flow > 0, 1.0, -1.0)
    exchange = sign * flow * (source - boxes) / VOLUME[None, :]
    return exchange + jnp.stack([RELAXATION * IS_SURFACE * (AIR - temperature), jnp.array(SALT)])


def leapfrog(carry, _):
    old, now = carry
    new = old + 2 * STEP * tendency(now)
    return (now + FILTER * (new - 2 * now + old), new), None


def temperature_of_first_box(old, n_steps: int, n_snapshots: int):
    (old, _), _ = pb.checkpointed_scan(
        leapfrog, (old, jnp.array(START)), None, n_steps, scheme=pb.Revolve(n_snapshots), block=1
    )
    return old[0, 0]


def main(n_steps: int = 10_000, n_snapshots: int = 500) -> Result:
    with jax.enable_x64(True):
        f = jax.jit(lambda old: temperature_of_first_box(old, n_steps, n_snapshots))
        value, gradient = jax.jit(jax.value_and_grad(f))(jnp.array(START))
        change = np.zeros_like(START)
        change[1, 1] = 1e-3
        slope = (f(START + change) - f(START - change)) / (2 * change[1, 1])
        by_temperature, by_salinity = np.asarray(gradient)
        result = Result(float(value), by_temperature, by_salinity, float(slope))
    print(f"temperature of the first box after {n_steps} steps: {result.temperature:.14f}")
    print("box   by temperature   by salinity")
    for i in range(3):
        print(f"{i + 1:3d}   {by_temperature[i]:14.10f}   {by_salinity[i]:11.8f}")
    print(f"by the second salinity {by_salinity[1]:.17f}; as a slope {slope:.12f}")
    if n_steps == 10_000:
        print(f"published: {PUBLISHED['temperature']:.14f} and {PUBLISHED['gradient']:.17f}")
    return result


if __name__ == "__main__":
    main()
