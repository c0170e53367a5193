"""The nonstiff benchmark: known ends are reached, and every peer solves the same problem."""

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.solver import SkippedError
from benchmarks.stiff import Row

import pullback as pb
from benchmarks import explicit

# They compile other libraries' solvers, and say nothing about the package.
pytestmark = pytest.mark.slow

# Errors in units of |known value| + 1 that a tolerance of 1e-12 leaves: measured, times five
# to ten. Close passages amplify the errors of steps, most of all those of the Arenstorf orbit.
TIGHT = {"pleiades": 1e-10, "lorenz": 5e-13, "arenstorf": 2e-9}
# The same at 1e-9, whoever solves: ten times the worst of them.
LOOSE = {"pleiades": 1.5e-6, "lorenz": 4e-8, "arenstorf": 8e-5}


def solve(name, peer, n, tol):
    problem = explicit.PROBLEMS[name]
    try:
        return explicit.PEERS[peer].make(problem, explicit.inputs(problem, n))(tol)
    except SkippedError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", explicit.PROBLEMS)
def test_known_ends_are_reached(name):
    ends = solve(name, "kernel, Vern9", 3, 1e-12)
    assert explicit.PROBLEMS[name].error_of(ends) < TIGHT[name]


@pytest.mark.parametrize("name", explicit.PROBLEMS)
@pytest.mark.parametrize("peer", explicit.PEERS)
def test_peers_solve_the_same_problem(name, peer):
    ends = solve(name, peer, 3, 1e-9)
    assert explicit.PROBLEMS[name].error_of(ends) < LOOSE[name]
    # The others too, whose ends are not known.
    right = solve(name, "kernel, Vern9", 3, 1e-12)
    assert ends.shape == right.shape
    np.testing.assert_array_less(np.abs(ends - right) / (np.abs(right) + 1.0), LOOSE[name])


@pytest.mark.parametrize("peer", ["heyoka, 1 thread", "heyoka, 2 threads"])
@pytest.mark.parametrize("n", [1, 21])
def test_batches_that_are_not_full(peer, n):
    ends = solve("lorenz", peer, n, 1e-9)
    assert ends.shape == (n, 3)
    right = solve("lorenz", "kernel, Vern9", n, 1e-12)
    np.testing.assert_allclose(ends, right, atol=1e-7)


# Lorenz' equations at t = 1 from (1, 0, 0): values of SciPy's DOP853 at 1e-13, given to 15 digits.
AT_ONE = {
    0.0: [4.53999297625586e-5, 0.0, 0.0],
    5.25: [3.89118928695391, 4.58669076835703, 2.56829000414508],
    10.5: [2.8322908390997, 1.28394561878206, 11.1070868519342],
    21.0: [-6.45057914731862, -8.89521147866778, 14.6491458666042],
}


def test_lorenz_sweep_after_one_unit_of_time():
    problem = explicit.PROBLEMS["lorenz"]._replace(t1=1.0)
    given = explicit.Inputs(np.tile(problem.y0, (len(AT_ONE), 1)), np.array(list(AT_ONE)))
    ends = explicit.package(pb.Vern9(), pb.EnsembleKernel())(problem, given)(1e-13)
    # A tolerance of 1e-13 and its propagation; the digits of the values.
    np.testing.assert_allclose(ends, list(AT_ONE.values()), rtol=3e-12, atol=1e-14)


@pytest.mark.parametrize("name", explicit.PROBLEMS)
def test_both_forms_of_a_field_agree(name, rng):
    problem = explicit.PROBLEMS[name]
    y = problem.y0 * rng.uniform(0.9, 1.1, problem.y0.size)
    scalar = explicit.scalar_field(problem)(0.0, jnp.asarray(y), 7.0)
    for xp in (jnp, np):
        # Sums of up to 28 terms in another order.
        np.testing.assert_allclose(explicit.array_field(problem, xp)(0.0, y, 7.0), scalar, 1e-12)


def test_first_trajectory_is_the_known_one():
    for problem in explicit.PROBLEMS.values():
        states, params = explicit.inputs(problem, 5)
        np.testing.assert_array_equal(states[0], problem.y0)
        assert problem.sweep is None or (params[0], params[-1]) == problem.sweep
        assert len(np.unique(np.column_stack([states, params]), axis=0)) == 5


def test_ratios_are_to_the_quickest_kernel():
    rows = {name: [Row(1e-6, 1, 1e-6, 1e-2, 0.0)] for name in explicit.KERNEL}
    rows["kernel, Vern9"] = [Row(1e-6, 1, 2e-6, 1e-4, 0.0)]
    rows["other"] = [Row(1e-6, 1, 8e-6, 1e-3, 0.0)]
    # Only the slower one has achieved the error of the other.
    assert explicit.quickest(rows, 1e-3) == pytest.approx(2e-6)
    assert np.isnan(explicit.quickest(rows, 1e-9)), "nobody knows"
    assert explicit.quickest(rows, 1e-1) == pytest.approx(1e-6)
    assert explicit.table("a", rows)[-1][4:] == ("8", "1.0e-03", "8", "4")


def test_measures_who_is_there(monkeypatch, capsys):
    def absent(problem, given):
        raise SkippedError("not installed")

    few = {name: explicit.PEERS[name] for name in explicit.KERNEL}
    monkeypatch.setattr(explicit, "PEERS", {**few, "nobody": explicit.Peer(absent)})
    rows = explicit.measure(explicit.PROBLEMS["lorenz"], 4, 1, (1e-6,))
    assert list(rows) == list(explicit.KERNEL)
    assert all(row.n == 4 and row.error < 1e-3 and row.each > 0 for [row] in rows.values())
    assert "skipped: nobody: not installed" in capsys.readouterr().err
