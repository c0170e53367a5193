"""The diagonally implicit tableaus: their checks, and the proof of their orders and stability."""

import dataclasses
import itertools
import re
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor, stage_value_dense
from pullback.ode.order_conditions import (
    dense_residuals,
    tree_order,
    verified_order,
    weight_residuals,
)
from pullback.ode.tableau import hermite_dense
from pullback.ode.tableaus import (
    DIRK_TABLEAUS,
    IMPLICIT_EULER,
    KVAERNO3,
    KVAERNO5,
    TRAPEZOID,
    TRBDF2,
)

METHODS = pytest.mark.parametrize("tableau", DIRK_TABLEAUS.values(), ids=DIRK_TABLEAUS.keys())
L_STABLE = pytest.mark.parametrize(
    "tableau",
    [t for t in DIRK_TABLEAUS.values() if t is not TRAPEZOID],
    ids=[name for name in DIRK_TABLEAUS if name != "Trapezoid"],
)
REFERENCES = Path(__file__).parents[2] / "references.bib"

# Coefficients of size 1 rounded to float64 one by one; the measured worst case is 1e-16.
FLOAT64 = 1e-15


def fraction_rows(rows) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in rows]


def b_hat(tableau) -> list[Fraction]:
    return [Fraction(x) - Fraction(y) for x, y in zip(tableau.b, tableau.b_err, strict=True)]


def matrix_of(tableau) -> np.ndarray:
    matrix = np.zeros((tableau.n_stages, tableau.n_stages))
    for i, row in enumerate(tableau.a):
        matrix[i, : len(row)] = row
    return matrix


def weights_at(tableau, theta: float) -> np.ndarray:
    return np.array([sum(x * theta ** (j + 1) for j, x in enumerate(row)) for row in tableau.dense])


# ---- orders


def test_names_are_the_keys():
    assert list(DIRK_TABLEAUS) == ["ImplicitEuler", "Trapezoid", "TRBDF2", "Kvaerno3", "Kvaerno5"]
    assert all(tableau.name == name for name, tableau in DIRK_TABLEAUS.items())
    assert [t.n_stages for t in DIRK_TABLEAUS.values()] == [2, 2, 3, 4, 7]
    assert all(t.is_first_explicit for t in DIRK_TABLEAUS.values())


def test_claimed_orders():
    claims = [(t.order, t.embedded_order, t.dense_order) for t in DIRK_TABLEAUS.values()]
    assert claims == [(1, 2, 1), (2, 1, 2), (2, 3, 2), (3, 2, 3), (5, 4, 4)]


@METHODS
def test_step_has_exactly_the_claimed_order(tableau):
    a, b = fraction_rows(tableau.a), list(map(Fraction, tableau.b))
    residuals = weight_residuals(a, b, tableau.order + 1)
    assert verified_order(residuals, FLOAT64) == tableau.order
    missed = [r.relative for r in residuals if tree_order(r.tree) == tableau.order + 1]
    assert max(missed) > Fraction(1, 1000)


@METHODS
def test_embedded_weights_have_exactly_the_claimed_order(tableau):
    residuals = weight_residuals(
        fraction_rows(tableau.a), b_hat(tableau), tableau.embedded_order + 1
    )
    assert verified_order(residuals, FLOAT64) == tableau.embedded_order


@METHODS
def test_dense_output_has_exactly_the_claimed_order_at_every_theta(tableau):
    residuals = dense_residuals(
        fraction_rows(tableau.a), fraction_rows(tableau.dense), tableau.dense_order + 1
    )
    assert verified_order(residuals, FLOAT64) == tableau.dense_order


@METHODS
def test_stages_have_order_two_but_those_of_euler(tableau):
    """sum_j a_ij c_j = c_i^2 / 2, on which the conditions of the dense output rest."""
    a, c = matrix_of(tableau), np.array(tableau.c)
    gap = np.abs(a @ c - c**2 / 2).max()
    assert gap == (0.5 if tableau is IMPLICIT_EULER else pytest.approx(0, abs=1e-15))


@METHODS
def test_any_tampered_coefficient_is_noticed(tableau):
    """One part in a million, refused by the checks or by an order condition."""
    sample = list(mutants(tableau))
    assert len(sample) >= 5
    assert [where for where, changes in sample if is_accepted(tableau, changes)] == []


def mutants(tableau):
    for field in ("b", "b_err", "c"):
        for changed in changed_rows(getattr(tableau, field)):
            yield field, {field: changed}
    for field in ("a", "dense"):
        rows = getattr(tableau, field)
        for i, row in enumerate(rows):
            for changed in changed_rows(row):
                yield f"{field}[{i}]", {field: (*rows[:i], changed, *rows[i + 1 :])}


def changed_rows(row):
    for i, x in enumerate(row):
        if x:
            yield (*row[:i], x * (1 + 1e-6), *row[i + 1 :])


def is_accepted(tableau, changes) -> bool:
    try:
        changed = dataclasses.replace(tableau, **changes)
    except ValueError:
        return False
    a = fraction_rows(changed.a)
    residuals = [
        *weight_residuals(a, list(map(Fraction, changed.b)), tableau.order),
        *weight_residuals(a, b_hat(changed), tableau.embedded_order),
        *dense_residuals(a, fraction_rows(changed.dense), tableau.dense_order),
    ]
    return all(r.holds(FLOAT64) for r in residuals)


# ---- stability


def growth(tableau, weights, z: complex) -> complex:
    """Return 1 + z weights (I - z a)^-1 1, what y' = lambda y is multiplied by, z = dt lambda."""
    n_stages = tableau.n_stages
    slopes = np.linalg.solve(np.eye(n_stages) - z * matrix_of(tableau), np.ones(n_stages))
    return 1 + z * (np.asarray(weights) @ slopes)


@METHODS
def test_the_imaginary_axis_is_stable(tableau):
    for y in np.logspace(-3, 6, 200):
        # Roundings of numbers of size y in the trapezoidal rule, which conserves the modulus.
        assert abs(growth(tableau, tableau.b, 1j * y)) <= 1 + 1e-15 * max(100, y)


def growth_at_infinity(tableau, row) -> float:
    """Return the limit of a stage value whose row of `a` is given, for z to minus infinity.

    In Y[i] = y + a[i][0] z y + sum_{j > 0} a[i][j] z Y[j] all Y are bounded, hence
    sum_{j > 0} a[i][j] Y[j] = -a[i][0] y, and y1 is one of the Y.
    """
    a = matrix_of(tableau)
    values = np.linalg.solve(a[1:, 1:], -a[1:, 0])
    return float(values[row - 1])


@L_STABLE
def test_stiff_components_are_damped(tableau):
    """The stage value y1 vanishes in the limit, [HW96] section IV.3."""
    assert growth_at_infinity(tableau, tableau.n_stages - 1) == pytest.approx(0, abs=1e-13)
    # And it does so like 1 / z.
    assert abs(growth(tableau, tableau.b, -1e6)) < 1e-5


def test_the_trapezoidal_rule_does_not_damp():
    assert growth_at_infinity(TRAPEZOID, 1) == -1.0


@pytest.mark.parametrize(("tableau", "bound"), [(KVAERNO3, 0.957), (KVAERNO5, 0.749)])
def test_the_embedded_solutions_of_kvaerno_are_a_stable(tableau, bound):
    """So that the error of a stiff component is bounded by itself without a filter."""
    assert not tableau.filters_error
    assert tuple(map(float, b_hat(tableau)))[:-1] == pytest.approx(tableau.a[-2], abs=1e-16)
    assert abs(growth_at_infinity(tableau, tableau.n_stages - 2)) < bound
    embedded = [float(x) for x in b_hat(tableau)]
    for y in np.logspace(-3, 6, 50):
        assert abs(growth(tableau, embedded, 1j * y)) <= 1 + 1e-15 * max(100, y)


@pytest.mark.parametrize("tableau", [IMPLICIT_EULER, TRAPEZOID, TRBDF2])
def test_filtered_estimates_are_bounded_and_unfiltered_ones_are_not(tableau):
    """[HW96] section IV.8: err / (1 - dt gamma lambda) for lambda to minus infinity."""
    assert tableau.filters_error
    z = -1e6
    err = growth(tableau, tableau.b_err, z) - 1
    assert abs(err) > 1e4
    # At most that of the largest change a stable method makes, from y to -y.
    assert abs(err / (1 - z * tableau.gamma)) < 2


@L_STABLE
def test_dense_output_of_a_stiff_component_stays_between_its_ends(tableau):
    """y' = -1e8 y: a Hermite cubic through f(t0, y0) would reach 1e7."""
    for theta in np.linspace(0, 1, 21):
        # Stage values are found to eps; the sum of their differences has weights of size 10.
        assert abs(stiff_value(tableau, weights_at(tableau, theta))) <= 1 + 1e-5
    cubic = [float(sum(x * Fraction(1, 2) ** (j + 1) for j, x in enumerate(row)))
             for row in hermite_dense(tableau.b)]  # fmt: skip
    assert abs(stiff_value(tableau, np.array(cubic))) > 1e6


def stiff_value(tableau, weights: np.ndarray) -> float:
    return float(growth(tableau, weights, -1e8).real)


@METHODS
def test_dense_output_ends_at_the_new_point(tableau):
    assert weights_at(tableau, 1.0) == pytest.approx(tableau.b, rel=0, abs=1e-14)


# ---- numbers


def test_irrational_numbers_are_rounded_once():
    with mpmath.workdps(40):
        root = mpmath.sqrt(2)
        d, w = 1 - root / 2, root / 4
        assert TRBDF2.gamma == float(d)
        assert TRBDF2.c == (0.0, float(2 - root), 1.0)
        assert TRBDF2.b == (float(w), float(w), float(d))
        assert TRBDF2.b_err == (float((4 * w - 1) / 3), float(-mpmath.mpf(1) / 3), float(2 * d / 3))
        gamma = mpmath.findroot(lambda x: 6 * x**3 - 18 * x**2 + 9 * x - 1, 0.43)
        assert KVAERNO3.gamma == float(gamma)
        assert KVAERNO3.b[1] == float(1 / (12 * gamma * (1 - 2 * gamma)))


def test_nodes():
    assert IMPLICIT_EULER.c == TRAPEZOID.c == (0.0, 1.0)
    assert KVAERNO3.c == (0.0, 2 * KVAERNO3.gamma, 1.0, 1.0)
    nodes = (0, 0.52, 1.230333209967908, 0.8957659843500759, 0.43639360985864756, 1, 1)
    assert KVAERNO5.c == pytest.approx(nodes, rel=0, abs=2e-16)


@METHODS
def test_every_number_is_a_plain_float(tableau):
    rows = (*tableau.a, tableau.b, tableau.b_err, tableau.c, *tableau.dense, *tableau.predictor)
    assert {type(x) for x in itertools.chain(*rows)} == {float} == {type(tableau.gamma)}


@METHODS
def test_reference_is_in_the_bibliography(tableau):
    keys = re.findall(r"^@\w+\{(\w+),", REFERENCES.read_text(), re.MULTILINE)
    cited = re.findall(r"\[(\w+)\]", tableau.reference)
    assert cited
    assert set(cited) <= set(keys)


def test_signs_of_the_error_weights():
    assert IMPLICIT_EULER.b_err == (-0.5, 0.5)
    assert TRAPEZOID.b_err == (-0.5, 0.5)


# ---- predictors and dense output as functions


@pytest.mark.parametrize("tableau", [TRAPEZOID, TRBDF2, KVAERNO3, KVAERNO5])
def test_predictors_extrapolate(tableau):
    """Exact for y' constant, from the second implicit stage on for y' linear; and bounded."""
    nodes = np.array(tableau.c)
    for i, row in enumerate(tableau.predictor[1:], start=1):
        assert sum(row) == pytest.approx(nodes[i], abs=1e-14)
        if i > 1:
            assert row @ nodes[:i] == pytest.approx(nodes[i] ** 2 / 2, abs=1e-14)
        assert sum(map(abs, row)) < 2


def test_predictors_of_kvaerno_end_with_the_embedded_solution():
    assert KVAERNO3.predictor[3] == KVAERNO3.a[2]
    assert KVAERNO5.predictor[6] == KVAERNO5.a[5]


def test_slopes_are_extrapolated_by_the_polynomial_through_them():
    """A quadratic slope is predicted exactly: Y[3] then solves its equation at once."""
    a = [[0], ["1/3", "1/3"], ["1/5", "1/2", "1/3"], ["1/7", "2/5", "-1/9", "1/3"]]
    rows = fraction_rows(a)
    nodes = [sum(row) for row in rows]
    slopes = [2 - 3 * c + 5 * c**2 for c in nodes]
    value = sum(x * k for x, k in zip(rows[3], slopes, strict=True))
    assert sum(x * k for x, k in zip(slope_predictor(a)[3], slopes, strict=False)) == value
    two = slope_predictor(a, n_nodes=2)[3]
    assert two[2] == rows[3][2]
    assert sum(two) == nodes[3]


def test_dense_output_is_a_sum_of_stage_values():
    """Of Kvaerno's, of order 3: the rows of `a` alone span it, at every power of theta."""
    a, dense = matrix_of(KVAERNO3)[1:], np.array(KVAERNO3.dense)
    assert dense.shape == (4, 3)
    weights = np.linalg.lstsq(a.T, dense, rcond=None)[0]
    assert a.T @ weights == pytest.approx(dense, abs=1e-14)
    assert weights.sum(axis=1) == pytest.approx([0, 0, 1], abs=1e-14)


def test_second_stage_of_kvaernos_five_has_no_weight_in_dense_output():
    assert KVAERNO5.dense[1] == (0.0,) * 4
    assert all(any(row) for i, row in enumerate(KVAERNO5.dense) if i != 1)


def test_dense_output_of_the_implicit_euler_method_is_linear():
    assert stage_value_dense([[0], [0, 1]], [1]) == ((0,), (1,))
    assert IMPLICIT_EULER.dense == ((0.0,), (1.0,))


# ---- a step taken as the docstring says


def step(tableau, f, jacobian, t, y, dt):
    """Take one step, every stage by Newton's iteration from its predictor, in numpy."""
    slopes = [f(t, y)]
    for row, node, start in zip(tableau.a[1:], tableau.c[1:], tableau.predictor[1:], strict=True):
        known = y + dt * sum(x * k for x, k in zip(row, slopes, strict=False))
        at = y + dt * sum(x * k for x, k in zip(start, slopes, strict=True))
        for _ in range(8):
            residual = at - known - dt * row[-1] * f(t + node * dt, at)
            newton = np.eye(len(y)) - dt * row[-1] * jacobian(t + node * dt, at)
            at = at - np.linalg.solve(newton, residual)
        slopes.append((at - known) / (dt * row[-1]))
    return at, y + dt * sum(x * k for x, k in zip(tableau.b, slopes, strict=True)), slopes


@METHODS
def test_steps_converge_on_a_nonlinear_problem_that_depends_on_time(tableau):
    """y' = -y^2 cos(t), y = 1 / (1 + sin t), and its square as a second component."""

    def f(t, y):
        return np.array([-(y[0] ** 2) * np.cos(t), -2 * y[0] * y[1] * np.cos(t)])

    def jacobian(t, y):
        return -2 * np.cos(t) * np.array([[y[0], 0], [y[1], y[0]]])

    errors = []
    for n_steps in (8, 16, 32):
        y = np.ones(2)
        for i in range(n_steps):
            last, y, _ = step(tableau, f, jacobian, i / n_steps, y, 1 / n_steps)
            assert tableau.is_stiffly_accurate
            assert last == pytest.approx(y, rel=1e-13)
        exact = 1 / (1 + np.sin(1))
        errors.append(np.abs(y - [exact, exact**2]).max())
    # Slope between the last two; the next term of the error is a few per cent of the first.
    assert np.log2(errors[1] / errors[2]) == pytest.approx(tableau.order, abs=0.2)


# ---- wrong tableaus


def build(**changes):
    arguments = {
        "name": "Test",
        "gamma": "1/2",
        "a": [[0], ["1/2", "1/2"]],
        "b": ["1/2", "1/2"],
        "order": 2,
        "dense": [["1/2"], ["1/2"]],
        "dense_order": 1,
        "is_stiffly_accurate": True,
        "predictor": [[], [1]],
        "reference": "[HW96]",
    }
    return make_dirk_tableau(**{**arguments, **changes})


WRONG = {
    "ragged a": ({"a": [[0], [1]]}, r"tableau Test: `a` must have length \(1, 2\) .*\(1, 1\)"),
    "gamma": (
        {"gamma": "1/3"},
        r"the diagonal of `a` must be a positive `gamma` = 0\.33\d* .*, got \(0\.0, 0\.5\)",
    ),
    "dense end": (
        {"dense": [["1/2"], [1]]},
        r"row 1 of `dense` must sum to b\[1\] = 0\.5, got 1\.0",
    ),
    "dense rows": ({"dense": [["1/2"]]}, r"`dense` must have length 2 .*, got 1"),
    "ragged dense": (
        {"dense": [["1/2"], ["1/2", 0]]},
        r"rows of `dense` must have one length \(the degree\), got \(1, 2\); pad",
    ),
    "predictor": ({"predictor": [[1], [1]]}, r"`predictor` must have length \(0, 1\) .*\(1, 1\)"),
    "embedded order": (
        {"embedded_order": 1},
        r"`b_err` and `embedded_order` must both be given or both be None",
    ),
    "stiff accuracy": (
        {"is_stiffly_accurate": False},
        r"`is_stiffly_accurate` must tell whether the last row of `a` equals `b` .* got False",
    ),
}


def test_the_tableau_that_the_wrong_ones_start_from_is_right():
    assert build().b_err is None
    assert build().c == (0.0, 1.0)
    assert not build(gamma=1, a=[[1], [0, 1]], b=[0, 1], dense=[[0], [1]]).is_first_explicit


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_tableaus_are_refused_with_a_reason(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


def test_wrong_nodes_and_nan_are_refused():
    with pytest.raises(ValueError, match=r"row 1 of `a` must sum to c\[1\] = 0\.9, got 1\.0"):
        dataclasses.replace(TRAPEZOID, c=(0.0, 0.9))
    with pytest.raises(ValueError, match=r"row 1 of `dense` must sum to b\[1\]"):
        dataclasses.replace(TRAPEZOID, dense=((1.0, -0.5), (float("nan"), 0.5)))
    with pytest.raises(ValueError, match=r"`b_err` must have length 2 .*, got 1"):
        dataclasses.replace(TRAPEZOID, b_err=(0.0,))
