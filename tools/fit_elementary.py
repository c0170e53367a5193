"""Fit the polynomials and rational functions of `pullback.lanes.elementary`.

    python tools/fit_elementary.py            print the degree and error of every fit
    python tools/fit_elementary.py --write    also write elementary/coefficients.py
    python tools/fit_elementary.py tanh erf   only these

Each fit minimises the largest weighted error over an interval by Remez' exchange in 80-digit
arithmetic. Rounding to the format follows: first the whole denominator, then the numerator from the
lowest degree up, where the coefficients still free make up for the rounding of the earlier ones.
Takes about a minute; needs mpmath.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp

DIGITS = 80
MANTISSA = {"f64": 53, "f32": 24}
TARGET = Path(__file__).parents[1] / "src/pullback/lanes/elementary/coefficients.py"

# What `error_function` and `gamma` add to the fits of the same name.
CENTRES = {"erfc": 0.75, "lgamma": 0.46875, "digamma": 0.78125}

Real = mp.mpf
Function = Callable[[Real], Real]
Grid = tuple[Real, ...]
Degrees = tuple[int, int]


@dataclass(frozen=True)
class Fit:
    """A function to fit: P(u)/Q(u) with Q(0) = 1, or a polynomial where `degrees[1]` is 0.

    `grid` are the points at which the error is looked at; `leading` fixes P(0).
    """

    name: str
    dtype: str
    meaning: str
    function: Function
    weight: Function
    grid: Grid
    degrees: Degrees
    leading: Real | None = None

    @property
    def n_free(self) -> int:
        """Number of coefficients to find."""
        return sum(self.degrees) + (1 if self.leading is None else 0)


@dataclass(frozen=True)
class Fitted:
    """Coefficients, lowest degree first, and the largest weighted error before rounding."""

    numerator: tuple[Real, ...]
    denominator: tuple[Real, ...]
    error: Real

    def __call__(self, u: Real) -> Real:
        """Evaluate at `u`."""
        return polynomial(self.numerator, u) / polynomial(self.denominator, u)


def polynomial(coefficients: Sequence[Real], u: Real) -> Real:
    """Evaluate a polynomial, lowest degree first."""
    result = mp.mpf(0)
    for c in reversed(coefficients):
        result = result * u + c
    return result


def round_to(x: Real, dtype: str) -> Real:
    """Round to the nearest number of the format."""
    with mp.workprec(MANTISSA[dtype]):
        return +mp.mpf(x)


def largest_error(fit: Fit, fitted: Fitted) -> Real:
    """Return the largest weighted error on the grid."""
    with mp.workdps(DIGITS):
        return max(abs(fit.weight(u) * (fitted(u) - fit.function(u))) for u in fit.grid)


def rounded(fit: Fit, best: Fitted) -> Fitted:
    """Return `best` with coefficients of the format: see the top of this file.

    With the denominator rounded, the numerator should be T = P/Q·(rounded Q). Its coefficients are
    rounded in turn, and the free ones follow T by weighted least squares.
    """
    with mp.workdps(DIGITS):
        scale = _common_factor(fit, best)
        denominator = tuple(round_to(scale * q, fit.dtype) for q in best.denominator)
        q_rounded = [polynomial(denominator, u) for u in fit.grid]
        target = [best(u) * q for u, q in zip(fit.grid, q_rounded, strict=True)]
        weights = [fit.weight(u) / q for u, q in zip(fit.grid, q_rounded, strict=True)]
        numerator = [] if fit.leading is None else [round_to(fit.leading, fit.dtype)]
        while len(numerator) <= fit.degrees[0]:
            first = _lowest_free(fit, numerator, target, weights)
            numerator.append(round_to(first, fit.dtype))
    return Fitted(tuple(numerator), denominator, best.error)


def _common_factor(fit: Fit, best: Fitted) -> Real:
    """Return the factor for P and Q with which P(0) is nearest to a number of the format.

    P(0)/Q(0) is the function at 0: nothing else could make up for its rounding.
    """
    if fit.leading is not None or fit.degrees[1] == 0:
        return mp.mpf(1)
    candidates = [1 + mp.mpf(k) / 256 for k in range(256)]
    first = best.numerator[0]
    return min(candidates, key=lambda c: abs(round_to(c * first, fit.dtype) / c - first))


def _lowest_free(
    fit: Fit, fixed: list[Real], target: Sequence[Real], weights: Sequence[Real]
) -> Real:
    """Return the lowest coefficient after `fixed` in the least-squares polynomial."""
    k, columns = len(fixed), fit.degrees[0] + 1 - len(fixed)
    matrix, right = mp.matrix(len(fit.grid), columns), mp.matrix(len(fit.grid), 1)
    for row, (u, t, w) in enumerate(zip(fit.grid, target, weights, strict=True)):
        for j in range(columns):
            matrix[row, j] = w * u ** (k + j)
        right[row] = w * (t - polynomial(fixed, u))
    return mp.lu_solve(matrix, right)[0]


# Remez' exchange. For a rational function the levelled error E enters the equations as E·Q(u), so
# each exchange solves a short fixed-point iteration for E.


def minimax(fit: Fit, exchanges: int = 25) -> Fitted:
    """Return the best weighted approximation on the grid of `fit`."""
    with mp.workdps(DIGITS):
        values = [fit.function(u) for u in fit.grid]
        weights = [fit.weight(u) for u in fit.grid]
        n_free = fit.n_free
        indices = [len(fit.grid) * (1 + 2 * i) // (2 * n_free) for i in range(n_free)]
        current, level = _solve(fit, values, weights, indices, mp.mpf(0), 1)
        best: Fitted | None = None
        for attempt in range(exchanges):
            errors = [
                w * (current(u) - f) for u, f, w in zip(fit.grid, values, weights, strict=True)
            ]
            largest = max(map(abs, errors))
            if (best is None or largest < best.error) and not _has_pole(current, fit.grid):
                best = Fitted(current.numerator, current.denominator, largest)
            if attempt and largest < abs(level) * mp.mpf("1.02"):
                break
            extrema = _alternating_extrema(errors, n_free + 1)
            if extrema is None:
                break
            current, level = _level(fit, values, weights, extrema, errors)
    if best is None:
        raise ArithmeticError(f"the fit of {fit.name} in {fit.dtype} has a pole on its interval")
    return best


def _solve(
    fit: Fit,
    values: Sequence[Real],
    weights: Sequence[Real],
    indices: Sequence[int],
    level: Real,
    sign: int,
) -> tuple[Fitted, Real]:
    """Solve for the coefficients, and for the level where there is one equation more."""
    m, n = fit.degrees
    lowest = 0 if fit.leading is None else 1
    n_numerator, size = m + 1 - lowest, len(indices)
    has_level = size == fit.n_free + 1
    matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
    for row, i in enumerate(indices):
        u, s = fit.grid[i], sign * (-1) ** row
        target = values[i] + (s * level / weights[i] if has_level else 0)
        for j in range(n_numerator):
            matrix[row, j] = u ** (j + lowest)
        for j in range(n):
            matrix[row, n_numerator + j] = -target * u ** (j + 1)
        if has_level:
            matrix[row, size - 1] = -s / weights[i]
        right[row] = values[i] - (fit.leading or 0)
    solution = mp.lu_solve(matrix, right)
    leading = () if fit.leading is None else (fit.leading,)
    numerator = (*leading, *(solution[j] for j in range(n_numerator)))
    denominator = (mp.mpf(1), *(solution[n_numerator + j] for j in range(n)))
    new_level = solution[size - 1] if has_level else mp.mpf(0)
    return Fitted(numerator, denominator, abs(new_level)), new_level


def _level(
    fit: Fit,
    values: Sequence[Real],
    weights: Sequence[Real],
    extrema: Sequence[int],
    errors: Sequence[Real],
) -> tuple[Fitted, Real]:
    """Return the function whose errors at `extrema` alternate with one size."""
    sign = 1 if errors[extrema[0]] > 0 else -1
    level = min(abs(errors[i]) for i in extrema)
    for _ in range(30):
        fitted, new_level = _solve(fit, values, weights, extrema, level, sign)
        settled = abs(new_level - level) <= abs(new_level) * mp.mpf(10) ** -6
        level = new_level
        if settled:
            break
    return fitted, level


def _alternating_extrema(errors: Sequence[Real], count: int) -> list[int] | None:
    """Return where the error is largest within each run of one sign, `count` of them."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if not runs or (error > 0) != (errors[runs[-1]] > 0):
            runs.append(i)
        elif abs(error) > abs(errors[runs[-1]]):
            runs[-1] = i
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs if len(runs) == count else None


def _has_pole(fitted: Fitted, grid: Sequence[Real]) -> bool:
    denominators = [polynomial(fitted.denominator, u) for u in grid]
    return min(denominators) < 0 < max(denominators)


# The functions. Removable singularities are stepped over by `TINY`.

TINY = mp.mpf(10) ** -18


def chebyshev(low: float, high: float, n: int, centre: float | None = None) -> Grid:
    """Return n points, dense at the ends; with `centre`, in the variable (x - c)/(x + c)."""
    with mp.workdps(DIGITS):
        low, high = mp.mpf(low), mp.mpf(high)
        if centre is not None:
            low, high = (low - centre) / (low + centre), (high - centre) / (high + centre)
        mean, half = (low + high) / 2, (high - low) / 2
        points = [mean - half * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
        if centre is not None:
            points = [centre * (1 + t) / (1 - t) for t in points]
        return tuple(points)


def squares(points: Sequence[Real]) -> Grid:
    """Return the squares of the points."""
    with mp.workdps(DIGITS):
        return tuple(x * x for x in points)


def of_root(function: Function) -> Function:
    """Turn a function of x into one of u = x², away from 0."""
    return lambda u: function(mp.sqrt(max(u, TINY)))


def relative(function: Function) -> Function:
    """Return the weight that makes the error relative."""
    return lambda u: 1 / function(u)


def _exp_rest(r: Real) -> Real:
    r = r if abs(r) > TINY else TINY
    return (mp.exp(r) - 1 - r) / r**2


def _pow_rest(s: Real) -> Real:
    first, third = 2 / mp.log(2), 2 / (3 * mp.log(2))
    return ((first * mp.atanh(s) / s - first) / s**2 - third) / s**2


def _lgamma_quotient(t: Real) -> Real:
    for zero, limit in ((0, mp.euler), (1, 1 - mp.euler)):
        if abs(t - zero) < TINY:
            return limit
    return mp.loggamma(1 + t) / (t * (t - 1))


def _digamma_quotient(t: Real) -> Real:
    zero = mp.findroot(mp.digamma, 1.46) - 1
    return mp.digamma(1 + t) / (t - zero)


def _stirling_remainder(x: Real) -> Real:
    main = (x - mp.mpf(1) / 2) * mp.log(x) - x + mp.log(2 * mp.pi) / 2
    return (mp.loggamma(x) - main) * x


def _digamma_remainder(x: Real) -> Real:
    return (mp.log(x) - mp.digamma(x)) * x


def _erfc_factor(x: Real) -> Real:
    return (1 + x) * mp.exp(x * x) * mp.erfc(x)


def fits() -> list[Fit]:
    """Return every fit of the package."""
    with mp.workdps(DIGITS):
        return [fit for dtype in MANTISSA for fit in (*_polynomials(dtype), *_rationals(dtype))]


def _polynomials(dtype: str) -> list[Fit]:
    wide = dtype == "f64"
    third = mp.mpf(1) / 3
    log_top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) * mp.mpf("1.0001")
    exp_top = mp.log(2) / 2 * mp.mpf("1.001")
    quarter_turn = mp.pi / 4 * mp.mpf("1.0005")
    atan_top = (mp.sqrt(2) - 1) * mp.mpf("1.0001")
    sin_rest = of_root(lambda r: (mp.sin(r) - r) / r**3)
    cos_rest = of_root(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4)
    log_rest = of_root(lambda s: 2 * (mp.atanh(s) / s - 1) / s**2)
    atan_rest = of_root(lambda z: (mp.atan(z) - z) / z**3)
    asin_rest = of_root(lambda s: (mp.asin(s) - s) / s**3)

    def fit(
        name: str, meaning: str, function: Function, weight: Function, grid: Grid, degree: int
    ) -> Fit:
        return Fit(name, dtype, meaning, function, weight, grid, (degree, 0))

    def to(top: Real, n: int = 96) -> Grid:
        return squares(chebyshev(0, top, n))

    return [
        fit("exp", "(e^r - 1 - r)/r², |r| <= ln(2)/2", _exp_rest, lambda r: r * r,
            chebyshev(-exp_top, exp_top, 96), 9 if wide else 4),
        fit("sin", "(sin r - r)/r³ in r², |r| <= pi/4", sin_rest, lambda u: u,
            to(quarter_turn), 5 if wide else 2),
        fit("cos", "(cos r - 1 + r²/2)/r⁴ in r²", cos_rest, lambda u: u * u,
            to(quarter_turn), 5 if wide else 2),
        fit("log", "(2 atanh(s)/s - 2)/s² in s², |s| <= 0.1716", log_rest, lambda z: z / 2,
            to(log_top), 6 if wide else 2),
        fit("pow", "((2 log2(e) atanh(s)/s - c1)/s² - c3)/s² in s²", of_root(_pow_rest),
            lambda z: z * z / 3, to(log_top), 7 if wide else 3),
        fit("atan", "(atan z - z)/z³ in z², |z| <= tan(pi/8)", atan_rest, lambda u: u,
            to(atan_top), 10 if wide else 4),
        fit("asin", "(asin s - s)/s³ in s², |s| <= 1/2", asin_rest, lambda u: u,
            to(mp.mpf("0.5001"), 128), 12 if wide else 5),
        fit("cbrt", "m^(-1/3), 1 <= m < 2", lambda m: m**-third, lambda m: m**third,
            chebyshev(1, 2, 96), 5 if wide else 2),
        fit("tanh", "(tanh h - h)/h³ in h², |h| <= ln(2)/4",
            of_root(lambda h: (mp.tanh(h) - h) / h**3), lambda u: u, to(exp_top / 2),
            5 if wide else 2),
        fit("erf", "erf(x)/x - 1 in x², |x| <= 1", of_root(lambda x: mp.erf(x) / x - 1),
            lambda u: 1, to(mp.mpf("1.0001")), 12 if wide else 6),
        fit("log_erfc", "log(erfc(x)), 1 <= x until erf(x) rounds to 1",
            lambda x: mp.log(mp.erfc(x)), lambda x: mp.erfc(x) / mp.erf(x),
            chebyshev(1, 5.95 if wide else 3.95, 200), 16 if wide else 6),
    ]  # fmt: skip


def _rationals(dtype: str) -> list[Fit]:
    wide = dtype == "f64"
    stirling = of_root(_stirling_remainder)

    def fit(
        name: str, meaning: str, function: Function, weight: Function, grid: Grid, degrees: Degrees
    ) -> Fit:
        return Fit(name, dtype, meaning, function, weight, grid, degrees)

    def around(
        name: str,
        meaning: str,
        function: Function,
        grid: Grid,
        degrees: Degrees,
        at_zero: int | None = None,
    ) -> Fit:
        """Fit the distance from a typical value: its rounding errors then count less."""
        centre = CENTRES[name]
        leading = None if at_zero is None else mp.mpf(at_zero) - centre
        return Fit(
            name,
            dtype,
            f"{meaning} - {centre}",
            lambda u: function(u) - centre,
            relative(function),
            grid,
            degrees,
            leading,
        )

    return [
        around("erfc", "(1 + x) e^(x²) erfc(x), x >= 0 until erfc underflows,", _erfc_factor,
               chebyshev(0, 27.3 if wide else 10.1, 200, 3), (11, 11) if wide else (5, 5), 1),
        around("lgamma", "lgamma(1 + t)/(t (t - 1)), -0.2 <= t <= 2,", _lgamma_quotient,
               chebyshev(-0.2, 2, 140), (9, 9) if wide else (5, 5)),
        around("digamma", "digamma(1 + t)/(t - t0), 0 <= t <= 2,", _digamma_quotient,
               chebyshev(0, 2, 140), (7, 7) if wide else (4, 4)),
        fit("stirling", "x times the remainder of Stirling's formula, in x², x >= 3", stirling,
            lambda v: 1 / (mp.sqrt(v) * mp.loggamma(mp.sqrt(v))),
            squares(chebyshev(3, 2**24 if wide else 2**12, 200, 4)), (6, 6) if wide else (2, 2)),
        fit("digamma_remainder", "x (log x - digamma x), x >= 3", _digamma_remainder,
            lambda x: 1 / (x * mp.digamma(x)),
            chebyshev(3, 2**30 if wide else 2**14, 200, 4), (7, 7) if wide else (3, 3)),
    ]  # fmt: skip


def table_text(results: Sequence[tuple[Fit, Fitted]]) -> str:
    """Return the source of coefficients.py."""
    polynomials = [(fit, r) for fit, r in results if fit.degrees[1] == 0]
    rationals = [(fit, r) for fit, r in results if fit.degrees[1] > 0]
    lines = [
        '"""Coefficients fitted by `tools/fit_elementary.py`, lowest degree first; do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        "Coefficients = tuple[float, ...]",
        "",
        "",
        "def _exact(*literals: str) -> Coefficients:",
        "    return tuple(float.fromhex(literal) for literal in literals)",
        "",
        "",
        "POLYNOMIALS: dict[str, dict[str, Coefficients]] = {",
        *_entries(polynomials, lambda fit, r: [*_tuple(r.numerator, 8)]),
        "}",
        "",
        "# (numerator, denominator)",
        "RATIONALS: dict[str, dict[str, tuple[Coefficients, Coefficients]]] = {",
        *_entries(rationals, _ratio),
        "}",
        "",
    ]
    return "\n".join(lines)


def _entries(
    results: Sequence[tuple[Fit, Fitted]], body: Callable[[Fit, Fitted], list[str]]
) -> list[str]:
    lines = []
    for name in dict.fromkeys(fit.name for fit, _ in results):
        of_name = [(fit, r) for fit, r in results if fit.name == name]
        lines += [f"    # {of_name[0][0].meaning}", f'    "{name}": {{']
        for fit, fitted in of_name:
            bits = float(mp.log(fitted.error, 2))
            lines.append(f"        # {fit.dtype}: largest weighted error 2^{bits:.1f}")
            first, *rest = body(fit, fitted)
            lines += [f'        "{fit.dtype}": {first.strip()}', *rest]
        lines.append("    },")
    return lines


def _ratio(fit: Fit, fitted: Fitted) -> list[str]:
    return ["(", *_tuple(fitted.numerator, 12), *_tuple(fitted.denominator, 12), "        ),"]


def _tuple(values: Sequence[Real], indent: int) -> list[str]:
    pad = " " * indent
    return [
        f"{pad}_exact(",
        *(f'{pad}    "{float(v).hex()}",' for v in values),
        f"{pad}),",
    ]


def main() -> None:
    """Run the fits and report or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these fits")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    options = parser.parse_args()
    if options.write and options.names:
        parser.error("`--write` needs all fits; leave the names out")
    results = []
    for fit in fits():
        if options.names and fit.name not in options.names:
            continue
        best = minimax(fit)
        fitted = rounded(fit, best)
        error = largest_error(fit, fitted)
        print(
            f"{fit.name:18s} {fit.dtype} degrees {fit.degrees} "
            f"error 2^{float(mp.log(best.error, 2)):.1f}, "
            f"rounded 2^{float(mp.log(error, 2)):.1f}",
            flush=True,
        )
        results.append((fit, Fitted(fitted.numerator, fitted.denominator, error)))
    if options.write:
        TARGET.write_text(table_text(results))


if __name__ == "__main__":
    main()
