"""The Rosenbrock tableaus: their checks, and the proof of their orders and stability."""

import dataclasses
import itertools
import re
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from pullback.ode.order_conditions import (
    Residual,
    rooted_trees,
    tree_order,
    verified_order,
    weight_residuals,
)
from pullback.ode.rosenbrock_conditions import rosenbrock_dense_residuals, rosenbrock_residuals
from pullback.ode.rosenbrock_tableau import ClassicalForm, classical_form, rodas_dense
from pullback.ode.tableaus import DOPRI5, RODAS4, RODAS5P, ROSENBROCK23, ROSENBROCK_TABLEAUS

METHODS = pytest.mark.parametrize(
    "tableau", ROSENBROCK_TABLEAUS.values(), ids=ROSENBROCK_TABLEAUS.keys()
)
RODAS = pytest.mark.parametrize("tableau", [RODAS4, RODAS5P], ids=["Rodas4", "Rodas5P"])
REFERENCES = Path(__file__).parents[2] / "references.bib"

# Sixteen digits; the measured worst case is 2.6e-15 of the absolute terms (dense output of
# Rodas5P, whose coefficients are up to 150), and 1.4e-13 in absolute value.
DIGITS = 1e-14
ABSOLUTE = 1e-12


def embedded_weights(form: ClassicalForm) -> list[Fraction]:
    return [x - y for x, y in zip(form.b, form.b_err, strict=True)]


def square(rows) -> np.ndarray:
    matrix = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = [float(x) for x in row]
    return matrix


def floats(row) -> np.ndarray:
    return np.array([float(x) for x in row])


# ---- orders


def test_names_are_the_keys():
    assert list(ROSENBROCK_TABLEAUS) == ["Rosenbrock23", "Rodas4", "Rodas5P"]
    assert all(tableau.name == name for name, tableau in ROSENBROCK_TABLEAUS.items())
    stages = [tableau.n_stages for tableau in ROSENBROCK_TABLEAUS.values()]
    assert stages == [3, 6, 8]


def test_claimed_orders():
    claims = [(t.order, t.embedded_order, t.dense_order) for t in ROSENBROCK_TABLEAUS.values()]
    assert claims == [(2, 3, 2), (4, 3, 3), (5, 4, 4)]


@METHODS
def test_step_has_exactly_the_claimed_order(tableau):
    form = classical_form(tableau)
    residuals = rosenbrock_residuals(form, form.b, tableau.order + 1)
    assert verified_order(residuals, DIGITS) == tableau.order
    assert largest(residuals, tableau.order) < ABSOLUTE
    assert largest(residuals, tableau.order + 1) > 1e-3


@METHODS
def test_embedded_weights_have_exactly_the_claimed_order(tableau):
    form = classical_form(tableau)
    order = tableau.embedded_order
    residuals = rosenbrock_residuals(form, embedded_weights(form), order + 1)
    assert verified_order(residuals, DIGITS) == order
    assert largest(residuals, order) < ABSOLUTE
    assert largest(residuals, order + 1) > 1e-3


@METHODS
def test_dense_output_has_exactly_the_claimed_order_at_every_theta(tableau):
    residuals = rosenbrock_dense_residuals(classical_form(tableau), tableau.dense_order + 1)
    assert verified_order(residuals, DIGITS) == tableau.dense_order
    assert largest(residuals, tableau.dense_order) < ABSOLUTE


def largest(residuals: tuple[Residual, ...], up_to: int) -> float:
    return max(abs(float(r.value)) for r in residuals if tree_order(r.tree) <= up_to)


def test_conditions_of_order_three_written_out():
    """[HW96] table IV.7.1, for the eight stages of Rodas5P without the diagonal's help."""
    form = classical_form(RODAS5P)
    alpha, beta, b = square(form.alpha), square(form.beta), floats(form.b)
    nodes, slopes = alpha.sum(axis=1), beta.sum(axis=1)
    expected = {
        (): b.sum() - 1,
        ((),): b @ slopes - 1 / 2,
        ((), ()): b @ nodes**2 - 1 / 3,
        (((),),): b @ beta @ slopes - 1 / 6,
    }
    # Order four has one tree where alpha and beta meet in either order.
    expected[(((), ()),)] = b @ beta @ nodes**2 - 1 / 12
    expected[((), ((),))] = b @ (nodes * (alpha @ slopes)) - 1 / 8
    found = {r.tree: float(r.value) for r in rosenbrock_residuals(form, form.b, 4)}
    # Roundings of products of up to four entries of size 10.
    assert {t: found[t] for t in expected} == pytest.approx(expected, abs=1e-11)
    tampered = [x + Fraction(1, 1000) for x in form.b]
    found = {r.tree: float(r.value) for r in rosenbrock_residuals(form, tampered, 2)}
    assert found[()] == pytest.approx(8e-3, abs=1e-12)
    assert found[((),)] == pytest.approx(slopes.sum() / 1000, abs=1e-12)


def test_without_gamma_the_conditions_are_those_of_runge_and_kutta():
    exact = DOPRI5.exact
    zeros = tuple((Fraction(0),) * (i + 1) for i in range(DOPRI5.n_stages))
    form = ClassicalForm(exact.a, zeros, exact.b, exact.b_err, exact.dense)
    expected = {r.tree: r.value for r in weight_residuals(exact.a, exact.b, 6)}
    assert {r.tree: r.value for r in rosenbrock_residuals(form, form.b, 6)} == expected
    assert verified_order(rosenbrock_dense_residuals(form, 5)) == DOPRI5.dense_order


@METHODS
def test_time_enters_as_one_more_component_would(tableau):
    """Nodes and coefficients of f_t are row sums, [HW96] eqs. (IV.7.9)."""
    form = classical_form(tableau)
    nodes = [float(sum(row)) for row in form.alpha]
    sums = [float(sum(row)) for row in form.gamma]
    # Rounding of coefficients up to 150.
    assert tableau.alpha == pytest.approx(nodes, rel=0, abs=1e-13)
    assert tableau.gamma_sums == pytest.approx(sums, rel=0, abs=1e-13)


@RODAS
def test_conditions_of_differential_algebraic_equations_of_index_one(tableau):
    """[HW96] section VI.4: sum b_i alpha_i alpha_ij w_jk alpha_k^2 = 1/4, sum b w alpha^2 = 1."""
    form = classical_form(tableau)
    alpha, beta, b = square(form.alpha), square(form.beta), floats(form.b)
    nodes = alpha.sum(axis=1)
    solved = np.linalg.solve(beta, nodes**2)
    assert b @ solved == pytest.approx(1, abs=1e-12)
    assert b @ (nodes * (alpha @ solved)) == pytest.approx(1 / 4, abs=1e-12)
    # Of the algebraic component, order four: sum b_i w_ij alpha_j alpha_jk w_kl alpha_l^2 = 1.
    assert b @ np.linalg.solve(beta, nodes * (alpha @ solved)) == pytest.approx(1, abs=1e-12)


# ---- stability


@METHODS
def test_stiff_components_are_damped_and_the_imaginary_axis_is_stable(tableau):
    form = classical_form(tableau)
    beta, b = square(form.beta), floats(form.b)
    ones = np.ones(len(b))
    # R(infinity) = 1 - b beta^-1 1, [HW96] eq. (IV.7.14).
    assert 1 - b @ np.linalg.solve(beta, ones) == pytest.approx(0, abs=1e-12)
    for y in np.logspace(-3, 6, 200):
        growth = 1 + 1j * y * b @ np.linalg.solve(np.eye(len(b)) - 1j * y * beta, ones)
        assert abs(growth) <= 1 + 1e-13


@METHODS
def test_dense_output_of_a_stiff_component_stays_between_its_ends(tableau):
    """y' = -1e8 y: in exact arithmetic the output decays; a Hermite cubic would reach 1e7."""
    form = classical_form(tableau)
    z = -1e8
    matrix = np.eye(tableau.n_stages) - z * square(form.beta)
    increments = square(form.gamma) @ (z * np.linalg.solve(matrix, np.ones(tableau.n_stages)))
    for theta in np.linspace(0, 1, 21):
        weights = [sum(x * theta ** (j + 1) for j, x in enumerate(row)) for row in tableau.dense]
        assert abs(1 + np.dot(weights, increments)) <= 1 + 1e-5


@RODAS
def test_stiffly_accurate_methods_add_the_last_stage(tableau):
    assert tableau.is_stiffly_accurate
    assert (*tableau.a[-1], 1.0) == tableau.m
    assert tableau.e == (0.0,) * (tableau.n_stages - 1) + (1.0,)
    form = classical_form(tableau)
    assert form.beta[-1] == form.b


def test_last_stage_of_rosenbrock23_is_at_the_new_point():
    assert (*ROSENBROCK23.a[-1], 0.0) == ROSENBROCK23.m
    assert ROSENBROCK23.alpha[-1] == 1.0
    assert not ROSENBROCK23.is_stiffly_accurate


# ---- numbers


def test_numbers_of_rosenbrock23_are_those_of_the_published_form():
    """The step as printed in [SR97] section 3, with W = I - h d J, against the tableau."""
    rng = np.random.default_rng(3)
    jacobian = rng.normal(size=(3, 3))
    h, y = 0.3, rng.normal(size=3)
    slope = rng.normal(size=3)

    def f(t, y):
        return jacobian @ y + np.sin(y) * 0.2 + slope * t**2

    def f_y(y):
        return jacobian + np.diag(np.cos(y)) * 0.2

    t = 0.7
    d, e32 = 1 / (2 + np.sqrt(2)), 6 + np.sqrt(2)
    f_t = 2 * t * slope
    w = np.eye(3) - h * d * f_y(y)
    f0 = f(t, y)
    k1 = np.linalg.solve(w, f0 + h * d * f_t)
    f1 = f(t + h / 2, y + h / 2 * k1)
    k2 = np.linalg.solve(w, f1 - k1) + k1
    f2 = f(t + h, y + h * k2)
    k3 = np.linalg.solve(w, f2 - e32 * (k2 - f1) - 2 * (k1 - f0) + h * d * f_t)
    y1, err, u = step(ROSENBROCK23, f, lambda t, y: f_y(y), lambda t, y: 2 * t * slope, t, y, h)
    assert y1 == pytest.approx(y + h * k2, rel=1e-13)
    assert -err == pytest.approx(h / 6 * (k1 - 2 * k2 + k3), rel=1e-11)
    theta = 0.4
    middle = y + sum(
        x * theta ** (j + 1) * u[i]
        for i, row in enumerate(ROSENBROCK23.dense)
        for j, x in enumerate(row)
    )
    expected = y + h / (1 - 2 * d) * (theta * (1 - theta) * k1 + theta * (theta - 2 * d) * k2)
    assert middle == pytest.approx(expected, rel=1e-13)


def test_irrational_numbers_are_rounded_once():
    with mpmath.workdps(40):
        root = mpmath.sqrt(2)
        assert ROSENBROCK23.gamma == float(1 / (2 + root))
        assert ROSENBROCK23.c[2] == (float(-4 - 2 * root), float(-14 - 8 * root))
        assert ROSENBROCK23.a[1] == (float(1 + root / 2),)
        assert ROSENBROCK23.e[1] == float(-(10 + 6 * root) / 6)
        assert ROSENBROCK23.dense[1] == (float(-2 - 2 * root), float(4 + 3 * root))


@METHODS
def test_every_number_is_a_plain_float(tableau):
    rows = (*tableau.a, *tableau.c, tableau.alpha, tableau.gamma_sums, tableau.m, tableau.e)
    found = {type(x) for x in itertools.chain(*rows, *tableau.dense)}
    assert found == {float} == {type(tableau.gamma)}


@METHODS
def test_reference_is_in_the_bibliography(tableau):
    keys = re.findall(r"^@\w+\{(\w+),", REFERENCES.read_text(), re.MULTILINE)
    cited = re.findall(r"\[(\w+)\]", tableau.reference)
    assert cited
    assert set(cited) <= set(keys)


def test_rodas_dense_expands_the_published_form():
    rows = rodas_dense([1, 2], [[3, 5], [7, 11]])
    theta = Fraction(2, 7)
    values = [sum(x * theta ** (j + 1) for j, x in enumerate(row)) for row in rows]
    assert values == [
        theta * (m + (1 - theta) * (h2 + theta * h3)) for m, h2, h3 in [(1, 3, 7), (2, 5, 11)]
    ]


# ---- a step taken as the docstring says


def step(tableau, f, jacobian, f_t, t, y, dt, mass=None):
    """Take one step of the transformed form, dense and in numpy."""
    mass = np.eye(len(y)) if mass is None else mass
    matrix = mass / (dt * tableau.gamma) - jacobian(t, y)
    u = []
    for a, c, node, gamma_sum in zip(
        tableau.a, tableau.c, tableau.alpha, tableau.gamma_sums, strict=True
    ):
        at = y + sum(x * v for x, v in zip(a, u, strict=True))
        coupled = sum((x / dt * v for x, v in zip(c, u, strict=True)), np.zeros_like(y))
        right = f(t + node * dt, at) + mass @ coupled + gamma_sum * dt * f_t(t, y)
        u.append(np.linalg.solve(matrix, right))
    y1 = y + sum(x * v for x, v in zip(tableau.m, u, strict=True))
    return y1, sum(x * v for x, v in zip(tableau.e, u, strict=True)), u


@METHODS
def test_steps_converge_on_a_nonlinear_problem_that_depends_on_time(tableau):
    """y' = -y^2 cos(t), y = 1 / (1 + sin t), and its square as a second component."""

    def f(t, y):
        return np.array([-(y[0] ** 2) * np.cos(t), -2 * y[0] * y[1] * np.cos(t)])

    def jacobian(t, y):
        return -2 * np.cos(t) * np.array([[y[0], 0], [y[1], y[0]]])

    def f_t(t, y):
        return np.sin(t) * np.array([y[0] ** 2, 2 * y[0] * y[1]])

    errors = []
    for n_steps in (8, 16, 32):
        y = np.ones(2)
        for i in range(n_steps):
            y, _, _ = step(tableau, f, jacobian, f_t, i / n_steps, y, 1 / n_steps)
        exact = 1 / (1 + np.sin(1))
        errors.append(np.abs(y - [exact, exact**2]).max())
    # Slope between the last two; the next term of the error is a few per cent of the first.
    assert np.log2(errors[1] / errors[2]) == pytest.approx(tableau.order, abs=0.2)


@RODAS
def test_steps_converge_on_a_differential_algebraic_problem(tableau):
    """y' = cos(t) z, 0 = y (y - z), so that y = z = exp(sin t)."""

    def f(t, y):
        return np.array([np.cos(t) * y[1], y[0] ** 2 - y[0] * y[1]])

    def jacobian(t, y):
        return np.array([[0, np.cos(t)], [2 * y[0] - y[1], -y[0]]])

    def f_t(t, y):
        return np.array([-np.sin(t) * y[1], 0.0])

    errors = []
    for n_steps in (8, 16, 32):
        y = np.ones(2)
        for i in range(n_steps):
            y, _, _ = step(
                tableau, f, jacobian, f_t, i / n_steps, y, 1 / n_steps, np.diag([1.0, 0.0])
            )
        errors.append(np.abs(y - np.exp(np.sin(1))).max())
    assert np.log2(errors[1] / errors[2]) > tableau.order - 0.25


# ---- wrong tableaus


WRONG = {
    "ragged a": ({"a": ((), (), (1.0, 1.0))}, r"`a` must have length \(0, 1, 2\) .*\(0, 0, 2\)"),
    "ragged c": ({"c": ((), (1.0,), ())}, r"`c` must have length \(0, 1, 2\) .*\(0, 1, 0\)"),
    "short alpha": ({"alpha": (0.0, 0.5)}, r"`alpha` must have length 3 .*, got 2"),
    "short e": ({"e": (0.0, 0.5)}, r"`e` must have length 3 .*, got 2"),
    "node": (
        {"alpha": (0.0, 0.25, 1.0)},
        r"tableau Rosenbrock23: `alpha\[1\]` must be the row sum 0\.(5|4999)\d* .*, got 0\.25",
    ),
    "gamma sum": (
        {"gamma_sums": (0.0, 0.0, 0.0)},
        r"`gamma_sums\[0\]` must be the row sum 0\.29\d*",
    ),
    "gamma": ({"gamma": -1.0}, r"`gamma` must be positive, got -1\.0"),
    "dense end": (
        {"dense": ((1.0, 0.0), (0.0, 0.0), (0.0, 0.0))},
        r"row 0 of `dense` must sum to m\[0\] = 3\.4\d* .*, got 1\.0",
    ),
    "ragged dense": (
        {"dense": ((1.0, 0.0), (0.0,), (0.0, 0.0))},
        r"rows of `dense` must have one length \(the degree\), got \(2, 1, 2\); pad",
    ),
    "stiff accuracy": (
        {"is_stiffly_accurate": True},
        r"`is_stiffly_accurate` must tell whether the weights `m` are the last row .* got True",
    ),
    "nan": ({"alpha": (0.0, float("nan"), 1.0)}, r"`alpha\[1\]` must be the row sum .*, got nan"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_tableaus_are_refused_with_a_reason(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ROSENBROCK23, **changes)


@METHODS
def test_any_tampered_coefficient_is_noticed(tableau):
    """One part in a million, refused by the checks or by an order condition."""
    sample = list(mutants(tableau))
    assert len(sample) >= 15
    assert [where for where, changes in sample if is_accepted(tableau, changes)] == []


@pytest.mark.parametrize(("name", "stride"), [("Rosenbrock23", 1), ("Rodas4", 1), ("Rodas5P", 5)])
def test_the_conditions_alone_notice_any_tampered_coefficient(name, stride):
    """Where no check of row sums helps them: in the form with slopes as stages."""
    tableau = ROSENBROCK_TABLEAUS[name]
    form = classical_form(tableau)
    sample = list(form_mutants(form))[::stride]
    assert len(sample) >= 10
    missed = [where for where, changed in sample if meets_all(tableau, changed)]
    assert missed == []


def mutants(tableau):
    factor = 1 + 1e-6
    yield "gamma", {"gamma": tableau.gamma * factor}
    # In the RODAS family any multiple of the last stage estimates the error: tested above.
    vectors = ("alpha", "gamma_sums", "m") + (() if tableau.is_stiffly_accurate else ("e",))
    for field in vectors:
        for changed in changed_rows(getattr(tableau, field), factor):
            yield field, {field: changed}
    for field in ("a", "c", "dense"):
        rows = getattr(tableau, field)
        for i, row in enumerate(rows):
            for changed in changed_rows(row, factor):
                yield f"{field}[{i}]", {field: (*rows[:i], changed, *rows[i + 1 :])}


def changed_rows(row, factor):
    for i, x in enumerate(row):
        if abs(x) > 1e-12:  # what the inverse transformation leaves of a zero is no coefficient
            yield (*row[:i], x * factor, *row[i + 1 :])


def is_accepted(tableau, changes) -> bool:
    try:
        form = classical_form(dataclasses.replace(tableau, **changes))
    except ValueError:
        return False
    return meets_all(tableau, form)


def form_mutants(form: ClassicalForm):
    factor = Fraction(1_000_001, 1_000_000)
    for field in ("alpha", "gamma", "dense"):
        rows = getattr(form, field)
        for i, row in enumerate(rows):
            for changed in changed_rows(row, factor):
                rows_changed = (*rows[:i], changed, *rows[i + 1 :])
                yield f"{field}[{i}]", dataclasses.replace(form, **{field: rows_changed})
    for changed in changed_rows(form.b, factor):
        yield "b", dataclasses.replace(form, b=changed)


def meets_all(tableau, form: ClassicalForm) -> bool:
    """Tell whether the form has all orders that the tableau claims."""
    residuals = [
        *rosenbrock_residuals(form, form.b, tableau.order),
        *rosenbrock_residuals(form, embedded_weights(form), tableau.embedded_order),
        *rosenbrock_dense_residuals(form, tableau.dense_order),
    ]
    return all(r.holds(DIGITS) for r in residuals)


def test_all_trees_are_compared():
    form = classical_form(RODAS4)
    trees = [r.tree for r in rosenbrock_residuals(form, form.b, 4)]
    assert trees == [tree for n in range(1, 5) for tree in rooted_trees(n)]
