"""The heat equation of Checkpointing.jl."""

import pytest


def test_published_norms(example, capsys):
    module = example("heat_equation")
    result = module.main()
    # The published digits; nothing but the order of sums can differ.
    assert result.temperature_norm == pytest.approx(module.PUBLISHED["temperature"], rel=1e-14)
    for norm in result.gradient_norm.values():
        assert norm == pytest.approx(module.PUBLISHED["gradient"], rel=1e-14)
    # 500 steps of convex combinations of numbers up to 1.
    assert result.symmetry_error < 500 * 2.3e-16
    assert result.forward_steps == {100: 898, 4: 3213}
    assert "published" in capsys.readouterr().out


@pytest.mark.parametrize("n_steps", [1, 2, 37])
def test_other_lengths(example, n_steps):
    assert example("heat_equation").main(n_steps, (2,)).symmetry_error < 500 * 2.3e-16
