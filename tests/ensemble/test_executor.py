"""Which back end an executor means here."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.ensemble import executor as module
from pullback.ensemble.executor import resolve_executor


def test_array_is_always_there():
    assert resolve_executor(pb.EnsembleArray()) == ("array", False)


@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_a_device_that_is_not_there(backend):
    with pytest.raises(
        pb.UnsupportedBackend, match=rf"backend='{backend}'\) is not available here.*EnsembleArray"
    ):
        resolve_executor(pb.EnsembleKernel(backend=backend))


def test_unknown_backend():
    with pytest.raises(ValueError, match=r"`backend` of EnsembleKernel must be .*'tpu' arrived"):
        resolve_executor(pb.EnsembleKernel(backend="tpu"))


def test_without_a_kernel(monkeypatch):
    monkeypatch.setattr(module, "kernel_backends", lambda: ())
    monkeypatch.setattr(module, "_warned", set())
    with pytest.raises(pb.UnsupportedBackend, match="available: none"):
        resolve_executor(pb.EnsembleKernel())
    with pytest.warns(pb.KernelFallbackWarning, match=r"EnsembleArray\(\) is used.*no kernel"):
        assert resolve_executor(None) == ("array", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert resolve_executor(None) == ("array", True)


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_with_a_kernel(backend):
    assert resolve_executor(pb.EnsembleKernel(backend=backend)) == ("cpu", False)


def test_the_kernel_is_the_default():
    assert resolve_executor(None) == ("cpu", True)


def without_a_rule(t, y, params):
    return -jnp.linalg.solve(jnp.eye(2), y)


@pytest.mark.parametrize("outside", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_default_falls_back_where_the_kernel_does_not_compile(outside, monkeypatch):
    monkeypatch.setattr(module, "_warned", set())
    problem = pb.ODEProblem(without_a_rule, np.ones(2), (0.0, 1.0))

    def run(y0, executor=None):
        return pb.solve(problem.replace(y0=y0), pb.RK4(), executor, dt=0.125).y_end

    match = "EnsembleArray.*cannot compile.*silently"
    with pytest.warns(pb.KernelFallbackWarning, match=match) as warned:
        got = outside(run)(problem.y0)
    assert warned[0].filename == __file__
    np.testing.assert_array_equal(got, run(problem.y0, pb.EnsembleArray()))
    with pytest.raises(pb.UnsupportedPrimitive, match=r"use `EnsembleArray\(\)`"):
        run(problem.y0, pb.EnsembleKernel())


def test_complex_numbers_inside_the_field_fall_back(monkeypatch):
    monkeypatch.setattr(module, "_warned", set())

    def rotating(t, y, p):
        return -jnp.real(jnp.exp(1j * t)) * y

    problem = pb.ODEProblem(rotating, np.ones(2), (0.0, 1.0))
    with pytest.warns(pb.KernelFallbackWarning, match=r"type complex128.*test_executor.py:\d+"):
        got = pb.solve(problem, pb.Tsit5(), rtol=1e-9, atol=1e-9).y_end
    np.testing.assert_allclose(got, np.exp(-np.sin([1.0, 1.0])), rtol=1e-8)


def test_solve_inside_a_field_names_the_users_line():
    def inner(t, y, p):
        return -pb.solve(pb.ODEProblem(lambda t, z, p: -z, y, (0.0, 1.0)), pb.RK4(), dt=0.5).y_end

    problem = pb.ODEProblem(inner, np.ones(2), (0.0, 1.0))
    with pytest.raises(pb.UnsupportedPrimitive, match=r"another solve.*test_executor.py:\d+"):
        pb.solve(problem, pb.RK4(), pb.EnsembleKernel(), dt=0.5)


@pytest.mark.parametrize(
    ("executor", "hint"),
    [(pb.EnsembleArray, r"write pb.EnsembleArray\(\)"), ("kernel", "'kernel' arrived"), (3, "3")],
)
def test_not_an_executor(executor, hint):
    with pytest.raises(TypeError, match=f"`executor` must be None, pb.EnsembleArray.*{hint}"):
        resolve_executor(executor)
