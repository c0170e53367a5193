"""The optimal-control problem with a solution in closed form."""

import pytest


def test_is_the_optimum(example, capsys):
    module = example("optimal_control")
    result, finer = module.main(), module.main(n_steps=200)
    # The error of the midpoint rule, a constant of order one times the step squared.
    assert result.state_error < 1e-4
    assert result.adjoint_error < 1e-4
    assert result.adjoint[1] == 1.0
    assert result.control_gradient < 1e-4
    for name in ("state_error", "adjoint_error", "control_gradient"):
        ratio = getattr(result, name) / getattr(finer, name)
        assert ratio == pytest.approx(4.0, rel=0.02), name
    assert capsys.readouterr().out.count("adjoint l(0)") == 4
