"""The tableau data class: its checks, its floats, and facts of each method's data."""

import dataclasses
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from pullback.ode.tableau import ButcherTableau, hermite_dense, make_tableau
from pullback.ode.tableaus import BOSH3, DOPRI5, HEUN, TABLEAUS, TSIT5

METHODS = pytest.mark.parametrize("tableau", TABLEAUS.values(), ids=TABLEAUS.keys())
C1_METHODS = ("Bosh3", "Tsit5", "Dopri5", "Vern7", "Dopri8", "Vern9")
REFERENCES = Path(__file__).parents[2] / "references.bib"
# Forty digits of coefficients up to 1e4.
PUBLISHED_DIGITS = Fraction(1, 10**34)


def test_names_are_the_keys():
    assert list(TABLEAUS) == [
        "Euler", "Heun", "Midpoint", "RK4", "Bosh3", "Tsit5", "Dopri5", "Vern7", "Dopri8",
        "Vern9",
    ]  # fmt: skip
    assert all(tableau.name == name for name, tableau in TABLEAUS.items())


@METHODS
def test_floats_are_the_exact_numbers_rounded_once(tableau):
    for field in ("b", "c", "b_err", "dense_c"):
        exact = getattr(tableau.exact, field)
        assert getattr(tableau, field) == (exact and tuple(map(float, exact)))
    for field in ("a", "dense", "dense_a"):
        exact_rows = getattr(tableau.exact, field)
        assert getattr(tableau, field) == tuple(tuple(map(float, row)) for row in exact_rows)


@METHODS
def test_every_number_is_a_plain_float(tableau):
    rows = (*tableau.a, tableau.b, tableau.c, *tableau.dense, *tableau.dense_a, tableau.dense_c)
    assert {type(x) for x in itertools.chain(*rows, tableau.b_err or ())} == {float}


@METHODS
def test_reference_is_in_the_bibliography(tableau):
    keys = re.findall(r"^@\w+\{(\w+),", REFERENCES.read_text(), re.MULTILINE)
    cited = re.findall(r"\[(\w+)\]", tableau.reference)
    assert cited
    assert set(cited) <= set(keys)
    assert len(keys) == len(set(keys))


def test_every_key_cited_in_the_sources_is_in_the_bibliography():
    folder = Path(__file__).parents[2] / "src" / "pullback" / "ode"
    files = [folder / "tableau.py", folder / "order_conditions.py", *folder.glob("tableaus/*.py")]
    cited = {key for file in files for key in re.findall(r"\[([A-Z]\w*\d\d)\]", file.read_text())}
    keys = re.findall(r"^@\w+\{(\w+),", REFERENCES.read_text(), re.MULTILINE)
    assert cited >= {"HNW93", "Tsi11", "DP80", "PD81", "BS89", "Ver10", "But16"}
    assert cited <= set(keys)


@METHODS
def test_dense_output_ends_at_the_new_point_exactly(tableau):
    exact = tableau.exact
    tolerance = 0 if exact.is_rational else PUBLISHED_DIGITS
    weights = exact.b + (Fraction(0),) * len(exact.dense_c)
    gaps = [abs(sum(row) - w) for row, w in zip(exact.dense, weights, strict=True)]
    assert max(gaps) <= tolerance


@METHODS
def test_dense_output_starts_with_the_slope_of_the_first_stage(tableau):
    slopes = [row[0] for row in tableau.exact.dense]
    assert slopes == [1] + [0] * (len(slopes) - 1)


@pytest.mark.parametrize("name", C1_METHODS)
def test_dense_output_ends_with_the_slope_at_the_new_point(name):
    exact = TABLEAUS[name].exact
    last = TABLEAUS[name].n_stages - 1 if TABLEAUS[name].fsal else TABLEAUS[name].n_stages
    slopes = [sum((j + 1) * x for j, x in enumerate(row)) for row in exact.dense]
    tolerance = 0 if exact.is_rational else PUBLISHED_DIGITS
    assert max(abs(s - (i == last)) for i, s in enumerate(slopes)) <= tolerance
    # That stage is f at the new point: its row holds the weights of the step.
    row = (exact.a + exact.dense_a)[last]
    assert row == exact.b[: len(row)]
    assert (exact.c + exact.dense_c)[last] == 1


@METHODS
def test_errors_of_float_dense_output_are_roundings(tableau):
    """Horner's rule in float64 against the exact polynomial, in units of a step's increment."""
    worst = 0.0
    for theta in (0.1, 0.37, 0.5, 0.82, 1.0):
        for row, exact_row in zip(tableau.dense, tableau.exact.dense, strict=True):
            value = 0.0
            for x in reversed(row):
                value = (value + x) * theta
            exact = sum(x * Fraction(theta) ** (j + 1) for j, x in enumerate(exact_row))
            worst = max(worst, abs(float(Fraction(value) - exact)))
    # Coefficients of up to 1e4 (Vern9) and 1e3 (Vern7) cost that many half ulps.
    largest = max(abs(x) for row in tableau.dense for x in row)
    assert worst <= 2.0**-52 * max(1.0, largest)


@METHODS
def test_error_weights_sum_to_zero(tableau):
    if tableau.b_err is not None:
        assert abs(math.fsum(tableau.b_err)) <= 1e-15  # ten weights below 1, eps / 2 each
        assert any(tableau.b_err)


def test_known_values_of_the_tsitouras_pair():
    """Sixteen digits as published."""
    assert TSIT5.b[:6] == pytest.approx(
        (
            0.09646076681806523,
            0.01,
            0.4798896504144996,
            1.379008574103742,
            -3.290069515436081,
            2.324710524099774,
        ),
        rel=1e-15,
        abs=0,
    )
    quartic = (
        -1.0530884977290216,
        0.1017,
        2.490627285651252793,
        -16.54810288924490272,
        47.37952196281928122,
        -34.87065786149660974,
        2.5,
    )
    assert [row[3] for row in TSIT5.dense] == pytest.approx(quartic, rel=1e-15, abs=0)


def test_sign_of_the_error_weights():
    """`b_err` is b - b_hat: Heun's estimate is the step less Euler's."""
    assert HEUN.b_err == (-0.5, 0.5)
    assert DOPRI5.b_err[-1] == -1 / 40
    assert DOPRI5.b_err[0] == float(Fraction(71, 57600))


def test_fsal_and_counts():
    assert [name for name, t in TABLEAUS.items() if t.fsal] == ["Bosh3", "Tsit5", "Dopri5"]
    stages = {name: (t.n_stages, t.n_dense_stages) for name, t in TABLEAUS.items()}
    assert stages["Tsit5"] == (7, 0)
    assert stages["Vern7"] == (10, 6)
    assert stages["Dopri8"] == (13, 5)
    assert stages["Vern9"] == (16, 10)


def test_equality_and_hash_are_by_content():
    copy = dataclasses.replace(TSIT5, exact=None)
    assert copy == TSIT5
    assert hash(copy) == hash(TSIT5)
    assert TSIT5 != DOPRI5


def test_hermite_cubic_is_the_known_one():
    """y0, y1, f0, f1 of the cubic t^3 give it back: only k_last = 3 and the increment count."""
    rows = hermite_dense(BOSH3.exact.b)
    slopes = [Fraction(0), Fraction(1), Fraction(3, 2), Fraction(3)]  # b . slopes = 1 = y1 - y0
    assert sum(b * s for b, s in zip(BOSH3.exact.b, slopes, strict=True)) == 1
    coefficients = [sum(row[j] * s for row, s in zip(rows, slopes, strict=True)) for j in range(3)]
    assert coefficients == [0, 0, 1]


def build(**changes) -> ButcherTableau:
    arguments = {
        "name": "Test",
        "a": [[], ["1/2"], [0, 1]],
        "b": [0, 1, 0],
        "b_hat": [1, 0, 0],
        "c": [0, "1/2", 1],
        "order": 2,
        "embedded_order": 1,
        "fsal": True,
        "dense": [[1, -1], [0, 1], [0, 0]],
        "dense_order": 2,
        "reference": "[HNW93]",
    }
    return make_tableau(**{**arguments, **changes})


WRONG = {
    "ragged a": (
        {"a": [[], ["1/2"], [1]]},
        r"tableau Test: `a` must have length \(0, 1, 2\) to go with 3 weights in `b`, "
        r"got \(0, 1, 1\)",
    ),
    "short c": ({"c": [0, "1/2"]}, r"`c` must have length 3 .*, got 2"),
    "row sum": (
        {"c": [0, "1/3", 1]},
        r"row 1 of `a` must sum to c\[1\] = 0\.333\d*, got 0\.5",
    ),
    "fsal weights": (
        {"b": ["1/2", "1/2", 0], "dense": [[1, "-1/2"], [0, "1/2"], [0, 0]]},
        r"with `fsal` the last row of `a` must equal `b` and its node must be 1, "
        r"got row \(0\.0, 1\.0\), b \(0\.5, 0\.5, 0\.0\), node 1\.0",
    ),
    "dense end": (
        {"dense": [[1, -1], [0, 2], [0, 0]]},
        r"row 1 of `dense` must sum to b\[1\] = 1\.0 .*, got 2\.0",
    ),
    "dense rows": ({"dense": [[1], [0]]}, r"`dense` must have length 3 .*, got 2"),
    "ragged dense": (
        {"dense": [[1, -1], [0, 1, 0], [0, 0]]},
        r"rows of `dense` must have one length \(the degree\), got \(2, 3, 2\); pad",
    ),
    "extra stages": (
        {"dense_a": [[1, 0]], "dense_c": [1]},
        r"`dense_a` must have length \(3,\) .*, got \(2,\)",
    ),
    "embedded order": (
        {"embedded_order": None},
        r"`b_err` and `embedded_order` must both be given or both be None",
    ),
    "last row sum": (
        {"a": [[], ["1/2"], [0, 2]], "fsal": False},
        r"row 2 of `a` must sum to c\[2\] = 1\.0, got 2\.0",
    ),
    "fsal node": (
        {"b": ["1/2", 0, 0], "a": [[], ["1/2"], ["1/2", 0]], "c": [0, "1/2", "1/2"]},
        r"with `fsal` the last row of `a` must equal `b` and its node must be 1, .* node 0\.5",
    ),
}


def test_the_tableau_that_the_wrong_ones_start_from_is_right():
    assert build().n_stages == 3
    assert build(b_hat=None, embedded_order=None).b_err is None


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_tableaus_are_refused_with_a_reason(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


def test_short_error_weights_are_refused():
    with pytest.raises(ValueError, match=r"`b_err` must have length 7 .*, got 6"):
        dataclasses.replace(DOPRI5, b_err=DOPRI5.b_err[:-1])


def test_nan_is_refused():
    with pytest.raises(ValueError, match=r"row 1 of `a` must sum to c\[1\]"):
        dataclasses.replace(HEUN, a=((), (float("nan"),)))
