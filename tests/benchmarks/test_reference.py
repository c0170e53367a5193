"""The truth that errors are measured against is SciPy's truth too."""

import numpy as np
import pytest
from benchmarks.cases import CASES, Inputs, first, make_inputs
from benchmarks.others import members, scipy_solve
from benchmarks.reference import errors, reference
from benchmarks.solver import GRADIENT, PRIMAL
from scipy.integrate import solve_ivp

# DOP853 at this tolerance is off by about 1e-10 after amplification.
TIGHT = 1e-12
AGREED = 1e-8


@pytest.mark.parametrize("name", CASES)
def test_solutions(name):
    case = CASES[name]
    inputs = make_inputs(case, 4)
    found = [s.y.T for s in scipy_solve(case, inputs, TIGHT, "DOP853")]
    values = np.stack(found if case.n_saves else [y[-1:] for y in found])
    assert errors(values, reference(case, inputs, PRIMAL)).largest < AGREED


@pytest.mark.parametrize("name", ["lorenz", "van_der_pol"])
def test_gradients_by_complex_steps(name):
    # The imaginary part of an analytic function of p + i·eps is eps times its derivative.
    case, eps = CASES[name], 1e-30
    inputs = make_inputs(case, 3)
    moved = Inputs(inputs.y0.astype(complex), inputs.params + 1j * eps)
    ends = [
        solve_ivp(case.numpy_field, (0.0, case.t1), y0, "DOP853", args=(p,), rtol=TIGHT, atol=TIGHT)
        for y0, p in members(case, moved)
    ]
    gradients = np.array([[end.y[:, -1].imag.sum() / eps] for end in ends])
    truth = reference(case, inputs, GRADIENT)
    assert errors(gradients, truth).largest < 1e-7


@pytest.mark.slow
def test_shared_parameters_have_one_gradient():
    case = CASES["mlp"]
    assert reference(case, make_inputs(case, 2), GRADIENT).shape == (
        1,
        32 * (2 + 1 + 32 + 1 + 2) + 2,
    )


def test_first_trajectories_are_the_same_whatever_the_number():
    for case in CASES.values():
        few, many = make_inputs(case, 3), make_inputs(case, 50)
        for a, b in zip(members(case, few), members(case, first(case, many, 3)), strict=True):
            np.testing.assert_array_equal(a[0], b[0])


def test_errors_are_relative_and_see_one_bad_trajectory():
    truth = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 0.0]])
    off = truth + np.array([[0.0, 0.0], [0.0, 0.0], [0.6, 0.0]])
    assert errors(truth, truth) == (0.0, 0.0)
    assert errors(off, truth) == (0.0, pytest.approx(0.1))
    assert errors(off[:2], truth) == (0.0, 0.0)
