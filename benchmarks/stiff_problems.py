"""Stiff test problems with published end values.

References:
    The IVP test set of the University of Bari (HIRES, Robertson, Oregonator, Van der Pol, pollution
    problem), recomputed with Radau at 1e-11.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class StiffProblem:
    """One problem: its field, start, end, parameters, end value and the scale of each component."""

    field: Callable
    y0: np.ndarray
    t1: float
    params: np.ndarray
    end: np.ndarray
    unit: float  # atol / rtol


def robertson(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] * y[1]
    return jnp.stack([-a + b, a - b - c, c])


def hires(t, y, p):
    q = p[0] * y[5] * y[7]
    return jnp.stack(
        [
            -p[1] * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007,
            p[1] * y[0] - 8.75 * y[1],
            -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4],
            8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3],
            -1.745 * y[4] + 0.43 * (y[5] + y[6]),
            -q + 0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5] + 0.69 * y[6],
            q - 1.81 * y[6],
            -q + 1.81 * y[6],
        ]
    )


def oregonator(t, y, p):
    return jnp.stack(
        [
            p[0] * (y[1] + y[0] * (1.0 - p[1] * y[0] - y[1])),
            (y[2] - (1.0 + y[0]) * y[1]) / p[0],
            p[2] * (y[0] - y[2]),
        ]
    )


def van_der_pol(t, y, p):
    return jnp.stack([y[1], ((1.0 - y[0] * y[0]) * y[1] - y[0]) / p[0]])


def pollution(t, y, k):
    r = jnp.stack(
        [
            k[0] * y[0],
            k[1] * y[1] * y[3],
            k[2] * y[4] * y[1],
            k[3] * y[6],
            k[4] * y[6],
            k[5] * y[6] * y[5],
            k[6] * y[8],
            k[7] * y[8] * y[5],
            k[8] * y[10] * y[1],
            k[9] * y[10] * y[0],
            k[10] * y[12],
            k[11] * y[9] * y[1],
            k[12] * y[13],
            k[13] * y[0] * y[5],
            k[14] * y[2],
            k[15] * y[3],
            k[16] * y[3],
            k[17] * y[15],
            k[18] * y[15],
            k[19] * y[16] * y[5],
            k[20] * y[18],
            k[21] * y[18],
            k[22] * y[0] * y[3],
            k[23] * y[18] * y[0],
            k[24] * y[19],
        ]
    )
    return jnp.stack(
        [
            -r[0]
            - r[9]
            - r[13]
            - r[22]
            - r[23]
            + r[1]
            + r[2]
            + r[8]
            + r[10]
            + r[11]
            + r[21]
            + r[24],
            -r[1] - r[2] - r[8] - r[11] + r[0] + r[20],
            -r[14] + r[0] + r[16] + r[18] + r[21],
            -r[1] - r[15] - r[16] - r[22] + r[14],
            -r[2] + 2.0 * r[3] + r[5] + r[6] + r[12] + r[19],
            -r[5] - r[7] - r[13] - r[19] + r[2] + 2.0 * r[17],
            -r[3] - r[4] - r[5] + r[12],
            r[3] + r[4] + r[5] + r[6],
            -r[6] - r[7],
            -r[11] + r[6] + r[8],
            -r[8] - r[9] + r[7] + r[10],
            r[8],
            -r[10] + r[9],
            -r[12] + r[11],
            r[13],
            -r[17] - r[18] + r[15],
            -r[19],
            r[19],
            -r[20] - r[21] - r[23] + r[22] + r[24],
            -r[24] + r[23],
        ]
    )


_POLLUTION_START = np.zeros(20)
_POLLUTION_START[[1, 3, 6, 7, 8, 16]] = [0.2, 0.04, 0.1, 0.3, 0.01, 0.007]


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


_RATES = _numbers(
    """.35 .266e2 .123e5 .86e-3 .82e-3 .15e5 .13e-3 .24e5 .165e5 .9e4 .22e-1 .12e5 .188e1 .163e5
    .48e7 .35e-3 .175e-1 .1e9 .444e12 .124e4 .21e1 .578e1 .474e-1 .178e4 .312e1"""
)


STIFF = {
    "robertson": StiffProblem(
        robertson,
        np.array([1.0, 0.0, 0.0]),
        1e11,
        np.array([0.04, 1e4, 3e7]),
        _numbers("0.2083340149701255e-7 0.8333360770334713e-13 0.9999999791665050"),
        1e-6,
    ),
    "hires": StiffProblem(
        hires,
        np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057]),
        321.8122,
        np.array([280.0, 1.71]),
        _numbers(
            """0.7371312573325668e-3 0.1442485726316185e-3 0.5888729740967575e-4
            0.1175651343283149e-2 0.2386356198831331e-2 0.6238968252742796e-2
            0.2849998395185769e-2 0.2850001604814231e-2"""
        ),
        1e-4,
    ),
    "oregonator": StiffProblem(
        oregonator,
        np.array([1.0, 2.0, 3.0]),
        360.0,
        np.array([77.27, 8.375e-6, 0.161]),
        _numbers("0.1000814870318523e1 0.1228178521549917e4 0.1320554942846706e3"),
        1.0,
    ),
    "van_der_pol": StiffProblem(
        van_der_pol,
        np.array([2.0, 0.0]),
        2.0,
        np.array([1e-6]),
        _numbers("0.1706167732170483e1 -0.8928097010247975"),
        1.0,
    ),
    "pollution": StiffProblem(
        pollution,
        _POLLUTION_START,
        60.0,
        _RATES,
        _numbers(
            """.5646255480022769e-1 .1342484130422339 .4139734331099427e-8 .5523140207484359e-2
            .2018977262302196e-6 .1464541863493966e-6 .7784249118997964e-1 .3245075353396018
            .7494013383880406e-2 .1622293157301561e-7 .1135863833257075e-7 .2230505975721359e-2
            .2087162882798630e-3 .1396921016840158e-4 .8964884856898295e-2 .4352846369330103e-17
            .6899219696263405e-2 .1007803037365946e-3 .1772146513969984e-5 .5682943292316392e-4"""
        ),
        1e-4,
    ),
}
