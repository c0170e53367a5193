"""Measured orders of the methods: a plain loop on a problem with a closed form.

Arithmetic is mpmath's to fifty digits in NumPy object arrays, because the high orders reach
the rounding of float64 before their asymptotic range.
"""

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pullback.ode.tableau import ButcherTableau
from pullback.ode.tableaus import TABLEAUS

DIGITS = 50
T0 = mpmath.mpf(1) / 2


@dataclasses.dataclass(frozen=True)
class Range:
    """Step sizes 2**-exponent, the end of the integration, what the slope may differ by."""

    exponents: tuple[int, ...]
    t1: mpmath.mpf
    tolerance: float


# A slope differs from the order by O(h), here less than 0.03; one order away is 1. The steps
# are small because the error constants of the Verner pairs are: the next order hides them
# above h = 1e-3. The interval is short so that few steps do.
ASYMPTOTIC = Range((10, 11, 12), T0 + mpmath.mpf(1) / 64, 0.1)
# The eighteen digits of this pair end the range at errors of 1e-18, before it is asymptotic.
RANGES = {"Dopri8": Range((4, 5, 6), T0 + mpmath.mpf(1) / 2, 0.4)}

Array = np.ndarray
METHODS = pytest.mark.parametrize("tableau", TABLEAUS.values(), ids=TABLEAUS.keys())


@pytest.fixture(autouse=True)
def _precision():
    with mpmath.workdps(DIGITS):
        yield


def vector_field(t, y: Array) -> Array:
    """Return a nonlinear and non-autonomous field whose solution is `solution`."""
    return np.array(
        [
            2 * t * mpmath.root(y[1], 5) * y[3],
            10 * t * mpmath.exp(5 * (y[2] - 1)) * y[3],
            2 * t * y[3],
            -2 * t * mpmath.log(y[0]),
        ]
    )


def solution(t) -> Array:
    sine = mpmath.sin(t * t)
    return np.array([mpmath.exp(sine), mpmath.exp(5 * sine), sine + 1, mpmath.cos(t * t)])


def relative_error(y: Array, t) -> mpmath.mpf:
    return max(abs(y / solution(t) - 1))


def numbers(row: Sequence[Fraction]) -> list[mpmath.mpf]:
    return [mpmath.mpf(x.numerator) / x.denominator for x in row]


class Stepper:
    """One method, as its definition says."""

    def __init__(self, tableau: ButcherTableau) -> None:
        exact = tableau.exact
        assert exact is not None
        self.main = list(zip(map(numbers, exact.a), numbers(exact.c), strict=True))
        self.extra = list(zip(map(numbers, exact.dense_a), numbers(exact.dense_c), strict=True))
        self.b = numbers(exact.b)
        self.b_err = None if exact.b_err is None else numbers(exact.b_err)
        self.dense = [numbers(row) for row in exact.dense]

    def stages(self, t, y: Array, h, with_extra: bool = False) -> list[Array]:
        k: list[Array] = []
        for row, node in self.main + self.extra * with_extra:
            k.append(vector_field(t + node * h, y + h * combine(row, k)))
        return k

    def step(self, t, y: Array, h) -> Array:
        return y + h * combine(self.b, self.stages(t, y, h))

    def dense_weights(self, theta) -> list[mpmath.mpf]:
        return [sum(x * theta ** (j + 1) for j, x in enumerate(row)) for row in self.dense]


def combine(weights: Sequence, k: Sequence[Array]) -> Array:
    zero = np.array([mpmath.mpf(0)] * 4)
    return sum((w * x for w, x in zip(weights, k, strict=True) if w), zero)


def assert_slope(
    tableau: ButcherTableau, error_of: Callable[[mpmath.mpf], mpmath.mpf], expected: int
) -> None:
    """Fit log2(error) = slope * log2(h)."""
    steps = RANGES.get(tableau.name, ASYMPTOTIC)
    errors = [mpmath.log(error_of(mpmath.mpf(2) ** -m), 2) for m in steps.exponents]
    slope = -float(np.polyfit(steps.exponents, np.array(errors, dtype=float), 1)[0])
    assert slope == pytest.approx(expected, abs=steps.tolerance)


@METHODS
def test_step_converges_at_its_order(tableau):
    stepper = Stepper(tableau)
    t1 = RANGES.get(tableau.name, ASYMPTOTIC).t1

    def error_of(h):
        n_steps = int((t1 - T0) / h)
        y = solution(T0)
        for i in range(n_steps):
            y = stepper.step(T0 + i * h, y, h)
        return relative_error(y, t1)

    assert_slope(tableau, error_of, tableau.order)


@METHODS
def test_dense_output_converges_at_its_order(tableau):
    """One step from the exact state errs by h^(order + 1), at the worst theta."""
    stepper = Stepper(tableau)
    thetas = [mpmath.mpf(i) / 8 for i in range(1, 9)]

    def error_of(h):
        y = solution(T0)
        k = stepper.stages(T0, y, h, with_extra=True)
        values = [y + h * combine(stepper.dense_weights(theta), k) for theta in thetas]
        return max(relative_error(v, T0 + s * h) for v, s in zip(values, thetas, strict=True))

    assert_slope(tableau, error_of, tableau.dense_order + 1)


@pytest.mark.parametrize("name", [n for n, t in TABLEAUS.items() if t.b_err is not None])
def test_error_estimate_converges_at_the_embedded_order(name):
    stepper = Stepper(TABLEAUS[name])

    def error_of(h):
        return max(abs(h * combine(stepper.b_err, stepper.stages(T0, solution(T0), h))))

    assert_slope(TABLEAUS[name], error_of, TABLEAUS[name].embedded_order + 1)
