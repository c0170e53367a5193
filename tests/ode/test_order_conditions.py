"""The rooted trees, and the proof by them of every tableau's orders."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import pytest

from pullback.ode.order_conditions import (
    dense_residuals,
    density,
    rooted_trees,
    tree_order,
    verified_order,
    weight_residuals,
)
from pullback.ode.tableau import ExactTableau
from pullback.ode.tableaus import RK4, TABLEAUS

METHODS = pytest.mark.parametrize("tableau", TABLEAUS.values(), ids=TABLEAUS.keys())
ADAPTIVE = pytest.mark.parametrize("name", [n for n, t in TABLEAUS.items() if t.b_err is not None])

# Decimal tableaus have forty digits; products of up to nine entries of size up to 200 leave 36.
PUBLISHED_DIGITS = Fraction(1, 10**36)
# Fractions of ten-digit integers that approximate algebraic numbers to 1e-18.
RATIONAL_APPROXIMATIONS = {"Dopri8": Fraction(1, 10**16)}
# Rounding forty digits to float64 (eps / 2 an entry, up to nine factors) must stay below this.
FLOAT64 = Fraction(1, 10**14)


def tolerance_of(tableau):
    if tableau.exact.is_rational:
        return 0
    return RATIONAL_APPROXIMATIONS.get(tableau.name, PUBLISHED_DIGITS)


def b_hat(exact: ExactTableau) -> list[Fraction]:
    assert exact.b_err is not None
    return [x - y for x, y in zip(exact.b, exact.b_err, strict=True)]


def symmetry(tree) -> int:
    return math.prod(
        math.factorial(times) * symmetry(subtree) ** times
        for subtree, times in Counter(tree).items()
    )


def test_rooted_trees_have_the_known_numbers():
    """OEIS A000081."""
    counts = [len(rooted_trees(n)) for n in range(1, 11)]
    assert counts == [1, 1, 2, 4, 9, 20, 48, 115, 286, 719]


@pytest.mark.parametrize("n_vertices", range(1, 10))
def test_monotonic_labellings_of_all_trees_add_up(n_vertices):
    """[But16] section 30: n! / (symmetry density), summed over the trees, is (n - 1)!."""
    trees = rooted_trees(n_vertices)
    labellings = [
        Fraction(math.factorial(n_vertices), symmetry(tree) * density(tree)) for tree in trees
    ]
    assert all(tree_order(tree) == n_vertices for tree in trees)
    assert len(set(trees)) == len(trees)
    assert sum(labellings) == math.factorial(n_vertices - 1)


def test_residuals_equal_the_conditions_written_out():
    """The eight conditions of order four, [HNW93] section II.1, for arbitrary numbers."""
    a = [[], [Fraction(2, 3)], [Fraction(-1, 5), Fraction(3, 4)]]
    b = [Fraction(1, 7), Fraction(2, 9), Fraction(-3, 8)]
    c = [sum(row, Fraction(0)) for row in a]
    ac = [sum((x * c[j] for j, x in enumerate(row)), Fraction(0)) for row in a]
    acc = [sum((x * c[j] ** 2 for j, x in enumerate(row)), Fraction(0)) for row in a]
    aac = [sum((x * ac[j] for j, x in enumerate(row)), Fraction(0)) for row in a]
    leaf = ()
    chain = (leaf,)
    expected = {
        leaf: sum(b) - 1,
        chain: dot(b, c) - Fraction(1, 2),
        (leaf, leaf): dot(b, [x**2 for x in c]) - Fraction(1, 3),
        (chain,): dot(b, ac) - Fraction(1, 6),
        (leaf, leaf, leaf): dot(b, [x**3 for x in c]) - Fraction(1, 4),
        (leaf, chain): dot(b, [x * y for x, y in zip(c, ac, strict=True)]) - Fraction(1, 8),
        ((leaf, leaf),): dot(b, acc) - Fraction(1, 12),
        ((chain,),): dot(b, aac) - Fraction(1, 24),
    }
    assert {r.tree: r.value for r in weight_residuals(a, b, 4)} == expected


def dot(x, y):
    return sum(p * q for p, q in zip(x, y, strict=True))


def test_scale_is_the_sum_of_absolute_terms():
    a, b = [[], [Fraction(1)]], [Fraction(3), Fraction(-2)]
    (leaf, chain) = weight_residuals(a, b, 2)
    assert (leaf.value, leaf.scale, leaf.relative) == (0, 6, 0)
    assert (chain.value, chain.scale) == (Fraction(-5, 2), Fraction(5, 2))
    assert not chain.holds(0.99)
    assert chain.holds(1)


@hypothesis.given(st.fractions().filter(bool))
def test_two_stages_reach_order_two_for_any_node(node):
    """[HNW93] section II.1: b2 = 1 / (2 c2), whatever c2; order three is out of reach."""
    last = 1 / (2 * node)
    assert verified_order(weight_residuals([[], [node]], [1 - last, last], 3)) == 2


@METHODS
def test_step_has_exactly_the_claimed_order(tableau):
    residuals = weight_residuals(tableau.exact.a, tableau.exact.b, tableau.order + 1)
    assert verified_order(residuals, tolerance_of(tableau)) == tableau.order


@ADAPTIVE
def test_embedded_weights_have_exactly_the_claimed_order(name):
    tableau = TABLEAUS[name]
    assert tableau.embedded_order == tableau.order - 1
    residuals = weight_residuals(tableau.exact.a, b_hat(tableau.exact), tableau.order)
    assert verified_order(residuals, tolerance_of(tableau)) == tableau.embedded_order


@METHODS
def test_dense_output_has_exactly_the_claimed_order_at_every_theta(tableau):
    rows = tableau.exact.a + tableau.exact.dense_a
    residuals = dense_residuals(rows, tableau.exact.dense, tableau.dense_order + 1)
    assert verified_order(residuals, tolerance_of(tableau)) == tableau.dense_order


@METHODS
def test_order_is_not_reached_by_a_small_miss(tableau):
    """Above the claimed order some condition fails by far more than any rounding."""
    order = tableau.order + 1
    residuals = weight_residuals(tableau.exact.a, tableau.exact.b, order)
    assert max(r.relative for r in residuals if tree_order(r.tree) == order) > Fraction(1, 1000)


@METHODS
def test_floats_meet_the_conditions_to_rounding(tableau):
    floats = dataclasses.replace(
        tableau.exact,
        a=[[Fraction(x) for x in row] for row in tableau.a],
        b=[Fraction(x) for x in tableau.b],
        b_err=tableau.b_err and [Fraction(x) for x in tableau.b_err],
        dense=[[Fraction(x) for x in row] for row in tableau.dense],
        dense_a=[[Fraction(x) for x in row] for row in tableau.dense_a],
    )
    assert orders_met(tableau, floats, FLOAT64)


def orders_met(tableau, exact, tolerance) -> bool:
    """Tell whether `exact` has all orders that `tableau` claims."""
    residuals = [*weight_residuals(exact.a, exact.b, tableau.order)]
    if exact.b_err is not None:
        residuals += weight_residuals(exact.a, b_hat(exact), tableau.embedded_order)
    rows = [*exact.a, *exact.dense_a]
    residuals += dense_residuals(rows, exact.dense, tableau.dense_order)
    return all(residual.holds(tolerance) for residual in residuals)


def mutants(exact: ExactTableau) -> Iterator[tuple[str, ExactTableau]]:
    """Change every coefficient that is not zero by one part in a million, one at a time."""
    for field in ("a", "dense", "dense_a"):
        rows = getattr(exact, field)
        for i, row in enumerate(rows):
            for changed in _changed_rows(row):
                yield (
                    f"{field}[{i}]",
                    dataclasses.replace(exact, **{field: (*rows[:i], changed, *rows[i + 1 :])}),
                )
    for field in ("b", "b_err"):
        for changed in _changed_rows(getattr(exact, field) or ()):
            yield field, dataclasses.replace(exact, **{field: changed})


def _changed_rows(row: tuple[Fraction, ...]) -> Iterator[tuple[Fraction, ...]]:
    for i, x in enumerate(row):
        if x:
            yield (*row[:i], x * Fraction(1_000_001, 1_000_000), *row[i + 1 :])


@pytest.mark.parametrize("name", ["Euler", "Heun", "Midpoint", "RK4", "Bosh3", "Tsit5", "Dopri5"])
def test_any_tampered_coefficient_is_noticed(name):
    tableau = TABLEAUS[name]
    missed = [
        where
        for where, mutant in mutants(tableau.exact)
        if orders_met(tableau, mutant, tolerance_of(tableau))
    ]
    assert missed == []


@pytest.mark.parametrize(("name", "stride"), [("Vern7", 10), ("Dopri8", 20), ("Vern9", 60)])
def test_tampered_coefficients_of_the_large_tableaus_are_noticed(name, stride):
    """Every `stride`-th coefficient, because one check of these takes a while."""
    tableau = TABLEAUS[name]
    sample = list(mutants(tableau.exact))[::stride]
    missed = [where for where, m in sample if orders_met(tableau, m, tolerance_of(tableau))]
    assert len(sample) >= 5
    assert missed == []


def test_missing_dense_powers_are_conditions_too():
    """Cutting the highest power must be seen although no coefficient is left to compare."""
    rows = RK4.exact.a
    linear = [row[:1] for row in RK4.exact.dense]
    assert verified_order(dense_residuals(rows, linear, 3)) == 1
