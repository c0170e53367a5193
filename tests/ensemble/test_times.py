"""`t_span` and `saveat`: which rows are saved, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY


def field(t, y, params):
    return -y


def solve(saveat=None, t_span=(0.0, 1.0), y0=1.0, **options):
    problem = pb.ODEProblem(field, y0, t_span)
    return pb.solve(problem, pb.Tsit5(), ANY, saveat=saveat, **options)


def solve_two(saveat=None, t_span=None, **options):
    ensemble = pb.EnsembleProblem(pb.ODEProblem(field, 1.0, (0.0, 1.0)), t_span=t_span)
    return pb.solve(ensemble, pb.Tsit5(), ANY, trajectories=2, saveat=saveat, **options)


# ------------------------------------------------------------------------------- rows


def test_none_saves_the_end():
    sol = solve()
    assert sol.t.shape == sol.y.shape == (1,)
    assert (float(sol.t[0]), float(sol.t_end), int(sol.n_saved)) == (1.0, 1.0, 1)
    assert sol.y[0] == sol.y_end


@pytest.mark.parametrize(
    ("t_span", "spacing", "expected"),
    [
        ((0.0, 1.0), 0.25, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ((0.0, 1.0), 0.4, [0.0, 0.4, 0.8, 1.0]),
        ((0.0, 0.3), 0.1, [0.0, 0.1, 0.2, 0.3]),
        ((1.0, 0.0), 0.5, [1.0, 0.5, 0.0]),
        ((0.0, 1.0), 5.0, [0.0, 1.0]),
        ((2.0, 2.0), 0.5, [2.0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spacing_starts_at_t0_and_ends_at_t1(t_span, spacing, expected, dtype):
    sol = solve(spacing, t_span, y0=dtype(1.0), rtol=1e-5)
    # One rounding of t0 + k * spacing, one of the cast.
    np.testing.assert_allclose(sol.t, expected, rtol=4 * np.finfo(dtype).eps)
    assert sol.t[-1] == dtype(t_span[1])
    assert int(sol.n_saved) == len(expected)
    start, times = t_span[0], np.asarray(expected)
    np.testing.assert_allclose(sol.y, np.exp(start - times), rtol=1e-4)  # 10 x rtol


@pytest.mark.parametrize("kind", [list, tuple, np.asarray, jnp.asarray])
def test_listed_times(kind):
    sol = solve(kind([0.0, 0.5, 0.5, 0.75]), rtol=1e-8)
    np.testing.assert_array_equal(sol.t, [0.0, 0.5, 0.5, 0.75])
    np.testing.assert_allclose(sol.y, np.exp(-sol.t), rtol=1e-6)  # dense output, 100 x rtol
    assert (float(sol.t_end), int(sol.n_saved)) == (1.0, 4)


def test_times_of_each_trajectory():
    times = np.array([[0.1, 0.2, 0.9], [0.5, 0.6, 1.0]])
    sol = solve_two(times, rtol=1e-8)
    np.testing.assert_array_equal(sol.t, times)
    np.testing.assert_allclose(sol.y, np.exp(-times), rtol=1e-6)


def test_spacing_with_spans_of_different_length():
    sol = solve_two(0.5, t_span=np.array([[0.0, 1.0], [0.0, 2.0]]), rtol=1e-8)
    np.testing.assert_array_equal(sol.t, [[0.0, 0.5, 1.0, 1.0, 1.0], [0.0, 0.5, 1.0, 1.5, 2.0]])
    np.testing.assert_array_equal(sol.n_saved, [3, 5])
    np.testing.assert_allclose(sol.y, np.exp(-sol.t), rtol=1e-6)


def test_every_step():
    sol = solve("steps", max_saves=50)
    n = int(sol.n_saved)
    assert n == int(sol.stats["n_accepted"])
    assert 0.0 < float(sol.t[0]) < float(sol.t[n - 1]) == 1.0
    assert (np.diff(sol.t[:n]) > 0).all()
    np.testing.assert_array_equal(sol.t[n:], 1.0)
    np.testing.assert_array_equal(sol.y[n:], sol.y_end)


def test_every_step_has_room_by_default_for_one_problem_only():
    assert solve("steps").t.shape == (4096,)
    with pytest.raises(ValueError, match=r"`max_saves` is missing.*reserves that many rows"):
        solve_two("steps")


def test_too_few_rows_for_the_steps():
    sol = solve("steps", max_saves=3, rtol=1e-9)
    assert pb.Status(int(sol.status)) is pb.Status.save_overflow


def test_end_times_a_rounding_outside_the_span_are_its_ends():
    times = np.array([-1e-16, 0.1 * 3, 1.0 + 2e-16])
    sol = solve(times)
    np.testing.assert_array_equal(sol.t, [0.0, 0.1 * 3, 1.0])
    assert bool(sol.ok)


def test_zero_length_span():
    sol = solve([2.0, 2.0], (2.0, 2.0))
    np.testing.assert_array_equal(sol.y, [1.0, 1.0])
    assert bool(sol.ok)
    assert int(sol.stats["n_attempts"]) == 0
    assert float(sol.t_end) == 2.0


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("saveat", "where"), [([0.5, 1.5], "entry 1 is 1.5"), ([-0.25, 0.5], "entry 0 is -0.25")]
)
def test_outside_t_span(saveat, where):
    with pytest.raises(
        ValueError, match=rf"`saveat` must lie inside `t_span`, .*{where}.*\(0, 1\)"
    ):
        solve(saveat)


def test_outside_the_span_of_one_trajectory():
    with pytest.raises(ValueError, match=r"its entry \(1, 0\) is 0.75 and the span is \(0, 0.5\)"):
        solve_two([0.75], t_span=(0.0, np.array([1.0, 0.5])))


@pytest.mark.parametrize(
    ("t_span", "saveat"), [((0.0, 1.0), [0.2, 0.5, 0.4]), ((1.0, 0.0), [0.6, 0.4, 0.5])]
)
def test_unsorted(t_span, saveat):
    with pytest.raises(ValueError, match=r"`saveat` must be sorted .* its entry 2 comes after"):
        solve(saveat, t_span)


def test_nan_in_saveat():
    with pytest.raises(ValueError, match="`saveat` must hold numbers, but its entry 1 is NaN"):
        solve([0.5, np.nan])


@pytest.mark.parametrize("spacing", [0.0, -0.1, np.nan, np.inf])
def test_spacing_must_be_positive(spacing):
    with pytest.raises(ValueError, match=r"`saveat` as a number is the spacing.* must be positive"):
        solve(spacing)


def test_too_many_rows():
    with pytest.raises(ValueError, match=r"`saveat`=1e-12 gives 1e\+12 save times"):
        solve(1e-12)


@pytest.mark.parametrize("saveat", ["step", True, object(), {"a": 1.0}])
def test_not_a_saveat(saveat):
    with pytest.raises((TypeError, ValueError), match="`saveat` must be None, a number, an array"):
        solve(saveat)


def test_wrong_number_of_axes():
    with pytest.raises(ValueError, match=r"`saveat` must have shape \(save,\), .*\(2, 2\) arrived"):
        solve(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"\(save,\) or \(trajectory, save\), .*\(1, 1, 1\)"):
        solve_two(np.zeros((1, 1, 1)))


def test_rows_and_trajectories_disagree():
    with pytest.raises(ValueError, match="`saveat` has 3 rows, but there are 2 trajectories"):
        solve_two(np.zeros((3, 1)))


def test_no_times():
    with pytest.raises(ValueError, match="`saveat` holds no times; pass saveat=None"):
        solve([])


def test_max_saves_without_steps():
    with pytest.raises(ValueError, match="`max_saves`=9 is the number of rows of saveat"):
        solve(0.5, max_saves=9)
    with pytest.raises(ValueError, match="`max_saves` must be an integer of at least 1"):
        solve("steps", max_saves=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_t_span_must_be_finite(bad):
    with pytest.raises(ValueError, match=rf"`t_span\[1\]` must be finite, but {bad} arrived"):
        solve(t_span=(0.0, bad))
    with pytest.raises(ValueError, match=rf"`t_span\[1\]` must be finite, but {bad} arrived"):
        solve_two(t_span=(0.0, np.array([1.0, bad])))


def test_t_span_must_be_numbers():
    with pytest.raises(TypeError, match=r"`t_span\[0\]` must be a real number, but str arrived"):
        solve(t_span=("0", 1.0))
    with pytest.raises(
        ValueError, match=r"`t_span\[1\]` must be one number per trajectory.*\(2,\)"
    ):
        solve(t_span=(0.0, np.ones(2)))


# ------------------------------------------------------------------------------- traced


def test_spacing_with_a_traced_span():
    with pytest.raises(ValueError, match=r"how many times that gives is unknown.*pass an array"):
        jax.jit(lambda t1: solve(0.1, (0.0, t1)))(1.0)


def test_spacing_with_a_span_from_prob_func():
    problem = pb.ODEProblem(field, 1.0, (0.0, 1.0))
    ensemble = pb.EnsembleProblem(problem, lambda p, c: p.replace(t_span=(0.0, c.sim_id + 1.0)))
    sol = pb.solve(ensemble, pb.Tsit5(), ANY, trajectories=2, saveat=1.0)
    np.testing.assert_array_equal(sol.t, [[0.0, 1.0, 1.0], [0.0, 1.0, 2.0]])


def test_array_with_a_traced_span():
    sol = jax.jit(lambda t1: solve(jnp.linspace(0.0, t1, 3), (0.0, t1)))(2.0)
    np.testing.assert_array_equal(sol.t, [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("t_span", "saveat"),
    [
        ((0.0, np.nan), [0.0]),
        ((np.nan, 1.0), [0.5]),
        ((0.0, 1.0), [0.5, 0.25]),
        ((0.0, 1.0), [0.5, 1.5]),
        ((0.0, 1.0), [np.nan, 1.0]),
    ],
    ids=["nan t1", "nan t0", "unsorted", "outside", "nan time"],
)
def test_bad_traced_values_are_the_status_of_their_trajectory(t_span, saveat):
    good = (np.array([0.0, 1.0]), np.linspace(0.0, 1.0, len(saveat)))
    spans = np.stack([good[0], t_span])
    times = np.stack([good[1], saveat])

    @jax.jit
    def run(spans, times):
        ensemble = pb.EnsembleProblem(pb.ODEProblem(field, 1.0, (0.0, 1.0)), t_span=spans)
        return pb.solve(ensemble, pb.Tsit5(), ANY, saveat=times)

    sol = run(spans, times)
    assert sol.status.tolist() == [int(pb.Status.success), int(pb.Status.invalid_input)]
    np.testing.assert_allclose(sol.y[0], np.exp(-good[1]), rtol=1e-2)  # 10 x rtol
