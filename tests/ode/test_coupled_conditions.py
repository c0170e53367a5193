"""Order conditions of methods in two parts, and the proof of the tableaus that have them."""

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pullback.ode.additive_tableau import make_additive_tableau
from pullback.ode.coupled_conditions import (
    coloured_trees,
    coupled_dense_residuals,
    coupled_residuals,
)
from pullback.ode.order_conditions import rooted_trees, tree_order, verified_order, weight_residuals
from pullback.ode.symplectic_tableau import make_symplectic_tableau, partitioned
from pullback.ode.tableaus import ADDITIVE_TABLEAUS, KENCARP3, RK4, SYMPLECTIC_TABLEAUS, YOSHIDA4

REFERENCES = Path(__file__).parents[2] / "references.bib"
ADDITIVE = pytest.mark.parametrize(
    "tableau", ADDITIVE_TABLEAUS.values(), ids=ADDITIVE_TABLEAUS.keys()
)
SYMPLECTIC = pytest.mark.parametrize(
    "tableau", SYMPLECTIC_TABLEAUS.values(), ids=SYMPLECTIC_TABLEAUS.keys()
)
# Coefficients of size 1 rounded to float64 one by one.
FLOAT64 = 1e-15


def exact(rows):
    return [[Fraction(x) for x in row] for row in rows]


def matrices(tableau):
    return [exact(tableau.explicit), exact(tableau.implicit.a)]


def test_numbers_of_coloured_trees():
    assert [len(coloured_trees(n)) for n in range(1, 6)] == [2, 4, 14, 52, 214]
    # Two colourings of each tree, chosen by the root's.
    assert [len(coloured_trees(n, alternating=True)) for n in range(1, 6)] == [
        2 * len(rooted_trees(n)) for n in range(1, 6)
    ]


def test_two_equal_parts_are_one_method():
    a, b = RK4.exact.a, RK4.exact.b
    plain = {r.tree: r.value for r in weight_residuals(a, b, 5)}
    for residual in coupled_residuals([a, a], [b, b], 5):
        assert residual.value == plain[residual.tree]


def test_two_methods_of_order_two_need_not_be_one():
    """Heun's method and the midpoint rule: the nodes differ, so that order two is lost."""
    heun, midpoint = exact([[], [1]]), exact([[], [Fraction(1, 2)]])
    weights = [[Fraction(1, 2)] * 2, [Fraction(0), Fraction(1)]]
    assert verified_order(coupled_residuals([heun, heun], [weights[0]] * 2, 3)) == 2
    assert verified_order(coupled_residuals([midpoint, midpoint], [weights[1]] * 2, 3)) == 2
    assert verified_order(coupled_residuals([heun, midpoint], weights, 3)) == 1


# ---- implicit and explicit


@ADDITIVE
def test_step_has_exactly_the_claimed_order(tableau):
    b = list(map(Fraction, tableau.implicit.b))
    residuals = coupled_residuals(matrices(tableau), [b, b], tableau.order + 1)
    assert verified_order(residuals, FLOAT64) == tableau.order
    missed = [r.relative for r in residuals if tree_order(r.tree) == tableau.order + 1]
    assert max(missed) > Fraction(1, 100)


@ADDITIVE
def test_embedded_weights_have_exactly_the_claimed_order(tableau):
    pairs = zip(tableau.implicit.b, tableau.implicit.b_err, strict=True)
    b_hat = [Fraction(x) - Fraction(y) for x, y in pairs]
    residuals = coupled_residuals(matrices(tableau), [b_hat, b_hat], tableau.order)
    assert verified_order(residuals, FLOAT64) == tableau.embedded_order


@ADDITIVE
def test_dense_output_has_exactly_the_claimed_order_at_every_theta(tableau):
    dense = exact(tableau.implicit.dense)
    residuals = coupled_dense_residuals(matrices(tableau), dense, tableau.dense_order + 1)
    assert verified_order(residuals, FLOAT64) == tableau.dense_order


@ADDITIVE
def test_implicit_half_is_l_stable(tableau):
    half = tableau.implicit
    a = np.zeros((half.n_stages, half.n_stages))
    for i, row in enumerate(half.a):
        a[i, : len(row)] = row

    def stability(z):
        inside = np.linalg.solve(np.eye(len(a)) - z * a, np.ones(len(a)))
        return abs(1.0 + z * np.array(half.b) @ inside)

    assert max(stability(1j * y) for y in np.geomspace(1e-3, 1e4, 400)) <= 1.0 + 1e-13
    assert stability(-1e6) < 1e-4
    assert half.is_stiffly_accurate
    assert np.abs(a @ half.c - np.array(half.c) ** 2 / 2).max() < 1e-15  # stage order two


@ADDITIVE
@pytest.mark.parametrize("where", ["explicit", "b"])
def test_any_tampered_coefficient_is_noticed(tableau, where):
    """One part in a million, refused by the checks or by an order condition."""
    half = tableau.implicit
    changed = list(half.b) if where == "b" else [list(row) for row in tableau.explicit]
    if where == "b":
        changed[2] *= 1.0 + 1e-6
        b = list(map(Fraction, changed))
    else:
        # The row sum stays, so that only the conditions can tell.
        changed[3][1] += 1e-6
        changed[3][2] -= 1e-6
        tableau = dataclasses.replace(tableau, explicit=tuple(map(tuple, changed)))
        b = list(map(Fraction, half.b))
    residuals = coupled_residuals(matrices(tableau), [b, b], tableau.order)
    assert verified_order(residuals, FLOAT64) < tableau.order


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[], [1], [1, 0]], r"`explicit` must have rows of length \(0, 1, 2, 3\)"),
        ([[], [1], [1, 0], [0, 0, 1]], "row 1 of `explicit` must sum to the node 0.871"),
    ],
)
def test_additive_tableaus_that_contradict_themselves(rows, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_additive_tableau(KENCARP3.implicit, rows)


# ---- symplectic


@SYMPLECTIC
def test_partitioned_method_has_exactly_the_claimed_order(tableau):
    tables, weights = partitioned(*exact([tableau.kicks, tableau.drifts]))
    residuals = coupled_residuals(tables, weights, tableau.order + 1, alternating=True)
    assert verified_order(residuals, FLOAT64) == tableau.order


@SYMPLECTIC
def test_method_is_symplectic(tableau):
    """b_i A_ij + B_j a_ji = b_i B_j, [HLW06] theorem VI.4.6, on which all else rests."""
    (of_x, of_v), (b_x, b_v) = partitioned(*exact([tableau.kicks, tableau.drifts]))
    n = len(b_x)
    for i in range(n):
        for j in range(n):
            assert b_x[i] * of_v[i][j] + b_v[j] * of_x[j][i] == b_x[i] * b_v[j]


def test_tampered_yoshida_is_noticed():
    kicks, drifts = exact([YOSHIDA4.kicks, YOSHIDA4.drifts])
    drifts[0] += Fraction(1, 10**6)
    drifts[1] -= Fraction(2, 10**6)
    drifts[2] += Fraction(1, 10**6)
    tables, weights = partitioned(kicks, drifts)
    assert verified_order(coupled_residuals(tables, weights, 4, alternating=True), FLOAT64) == 2


@pytest.mark.parametrize(
    ("kicks", "drifts", "sentence"),
    [
        (["1/2", "1/2"], [1, 0], "`kicks` must be one more than `drifts`, got 2 and 2"),
        (["1/2", "1/4"], [1], "`kicks` must add up to 1, got 0.75"),
        (["1/4", "3/4"], [1], "`kicks` must read the same from both ends"),
    ],
)
def test_symplectic_tableaus_that_contradict_themselves(kicks, drifts, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_symplectic_tableau(
            name="none", kicks=kicks, drifts=drifts, order=1, dense_order=1, reference=""
        )


@pytest.mark.parametrize("tableau", [*ADDITIVE_TABLEAUS.values(), *SYMPLECTIC_TABLEAUS.values()])
def test_sources_are_in_the_bibliography(tableau):
    keys = re.findall(r"\[([A-Z]\w+\d{2})\]", tableau.reference)
    assert keys
    assert all(f"{{{key}," in REFERENCES.read_text() for key in keys)
