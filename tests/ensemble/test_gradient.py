"""`pb.value_and_grad`: the gradient of `jax.value_and_grad`, and how far it can be trusted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor

T_END = 1.0


def field(t, y, rate):
    return -rate * y


PROBLEM = pb.ODEProblem(field, 1.0, (0.0, T_END), 1.0)


def end(rate, y0=1.0, executor=ANY, rtol=1e-5):
    problem = PROBLEM.replace(params=rate, y0=y0)
    return pb.solve(problem, pb.Heun(), executor, rtol=rtol, atol=1e-8).y_end


def assert_resolved(stats):
    assert bool(stats.resolved)
    assert int(stats.n_unresolved) == 0
    # Something was estimated, and it is of the order of the tolerance (1e-5), not of the gradient.
    assert 0 < float(stats.error_estimate) < 1e-2


@each_executor
def test_value_gradient_and_estimate(executor):
    def loss(rate):
        return end(rate, executor=executor)

    value, grad, stats = pb.value_and_grad(loss)(2.0)
    expected = jax.value_and_grad(loss)(2.0)
    np.testing.assert_allclose([value, grad], expected, rtol=1e-14)
    np.testing.assert_allclose(grad, -T_END * np.exp(-2.0 * T_END), rtol=1e-3)  # 100 x rtol
    assert_resolved(stats)


def test_a_function_that_was_jitted_and_called_before():
    calls = []

    @jax.jit
    def loss(rate):
        calls.append(1)
        return end(rate)

    plain = jax.value_and_grad(loss)(2.0)
    for _ in range(3):
        value, grad, stats = pb.value_and_grad(loss)(2.0)
        np.testing.assert_allclose([value, grad], plain, rtol=1e-14)
        assert_resolved(stats)
    assert len(calls) == 2


def test_inside_jit():
    stats = jax.jit(pb.value_and_grad(end))(2.0)[2]
    assert_resolved(stats)
    eager = pb.value_and_grad(end)(2.0)[2]
    np.testing.assert_allclose(stats.error_estimate, eager.error_estimate, rtol=1e-6)


def test_solve_inside_scan_and_vmap():
    rates = jnp.array([1.0, 2.0])

    def by_vmap(scale):
        return jax.vmap(lambda rate: end(scale * rate))(rates).sum()

    def by_scan(scale):
        return jax.lax.scan(lambda total, rate: (total + end(scale * rate), None), 0.0, rates)[0]

    expected = -(rates * jnp.exp(-rates)).sum()
    for loss in (by_vmap, by_scan):
        _, grad, stats = pb.value_and_grad(loss)(1.0)
        np.testing.assert_allclose(grad, expected, rtol=1e-3)  # 100 x rtol
        assert_resolved(stats)


def test_under_vmap():
    rates = jnp.array([1.0, 2.0])
    value, grad, stats = jax.vmap(pb.value_and_grad(end))(rates)
    np.testing.assert_allclose(value, jnp.exp(-rates), rtol=1e-4)
    np.testing.assert_allclose(grad, -jnp.exp(-rates), rtol=1e-3)
    assert stats.error_estimate.shape == stats.resolved.shape == (2,)
    assert stats.resolved.all()


def test_argnums_and_auxiliary_data():
    def loss(label, params, y0, *, power):
        assert label == "plain"
        out = end(params["rate"], y0)
        return out**power, {"end": out, "label": label, "n": 3}

    run = pb.value_and_grad(loss, argnums=(1, 2), has_aux=True)
    (value, aux), (by_params, by_y0), stats = run("plain", {"rate": 2.0}, 3.0, power=2)
    np.testing.assert_allclose(value, aux["end"] ** 2, rtol=1e-15)
    assert (aux["label"], int(aux["n"])) == ("plain", 3)
    np.testing.assert_allclose(by_params["rate"], -2 * value, rtol=1e-3)
    np.testing.assert_allclose(by_y0, 2 * value / 3.0, rtol=1e-3)
    assert_resolved(stats)
    last = pb.value_and_grad(lambda a, b: a * end(b), argnums=-1)(2.0, 1.0)
    np.testing.assert_allclose(last[1], -2 * np.exp(-1), rtol=1e-3)


def test_without_a_solve_there_is_nothing_to_resolve():
    value, grad, stats = pb.value_and_grad(jnp.sin)(0.5)
    np.testing.assert_allclose([value, grad], [np.sin(0.5), np.cos(0.5)], rtol=1e-15)
    assert float(stats.error_estimate) == 0.0
    assert bool(stats.resolved)


def test_docstring_and_name_are_those_of_the_function():
    assert pb.value_and_grad(end).__name__ == "end"


# ------------------------------------------------------------------------------- unresolved


# A constant solution whose neighbours grow like exp(rate t): step control on the state alone sees
# nothing, and the plain mesh has a handful of steps.
CONSTANT = pb.ODEProblem(lambda t, u, rate: rate * (u - 1.0), 1.0, (0.0, 5.0), 2.0)


def unresolved_loss(on_unresolved, executor=ANY):
    adjoint = pb.DiscreteAdjoint(slack=1e6, on_unresolved=on_unresolved)

    def loss(u0):
        problem = CONSTANT.replace(y0=u0)
        return pb.solve(problem, pb.Bosh3(), executor, rtol=1e-3, adjoint=adjoint).y_end

    return loss


@each_executor
def test_an_unresolved_gradient_is_flagged_and_warned_about(executor):
    loss = unresolved_loss("warn", executor)
    with pytest.warns(pb.GradientUnresolvedWarning):
        _, grad, stats = pb.value_and_grad(loss)(1.0)
        jax.effects_barrier()
    assert np.isfinite(grad)
    assert not bool(stats.resolved)
    assert int(stats.n_unresolved) == 1
    assert float(stats.error_estimate) > 1e-2


def test_an_unresolved_gradient_is_nan_on_request():
    _, grad, stats = pb.value_and_grad(unresolved_loss("nan"))(1.0)
    assert np.isnan(grad)
    assert not bool(stats.resolved)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_unresolved_gradient_is_an_error_on_request(caplog):
    with pytest.raises(pb.GradientUnresolvedError, match="above one per cent"):
        pb.value_and_grad(unresolved_loss("error"))(1.0)


def test_a_warning_that_is_an_error_is_raised_itself():
    with pytest.raises(pb.GradientUnresolvedWarning, match="Some gradients of a solve"):
        pb.value_and_grad(unresolved_loss("warn"))(1.0)


def test_an_unresolved_gradient_is_ignored_on_request():
    _, grad, stats = pb.value_and_grad(unresolved_loss("ignore"))(1.0)
    assert np.isfinite(grad)
    assert int(stats.n_unresolved) == 1
    assert not bool(stats.resolved)


@pytest.mark.parametrize(
    "options", [{"dt": 0.1}, {"adjoint": pb.DiscreteAdjoint(resolve=False)}], ids=str
)
def test_what_was_not_estimated_is_not_known_to_be_resolved(options):
    def loss(rate):
        return pb.solve(PROBLEM.replace(params=rate), pb.Heun(), ANY, **options).y_end

    _, grad, stats = pb.value_and_grad(loss)(1.0)
    np.testing.assert_allclose(grad, -np.exp(-1.0), rtol=1e-1)
    assert np.isnan(stats.error_estimate)
    assert int(stats.n_unresolved) == 0
    assert not bool(stats.resolved)


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("f", "got"), [(lambda x: jnp.ones(2) * x, r"float64 of shape \(2,\)"), (lambda x: 3, "int")]
)
def test_value_must_be_a_real_scalar(f, got):
    with pytest.raises(
        TypeError, match=f"`f` of value_and_grad must return one real number.*{got}"
    ):
        pb.value_and_grad(f)(1.0)


def test_argnums_out_of_range():
    with pytest.raises(ValueError, match="`argnums`=1 does not name one of the 1 positional"):
        pb.value_and_grad(end, argnums=1)(1.0)


@pytest.mark.parametrize("argnums", [(1, 1), (1, -1)])
def test_argnums_twice(argnums):
    with pytest.raises(ValueError, match="names an argument twice"):
        pb.value_and_grad(lambda a, b: a * b, argnums=argnums)(1.0, 2.0)


def test_f_must_be_a_function():
    with pytest.raises(TypeError, match="`f` must be a function, but a float arrived"):
        pb.value_and_grad(1.0)
