"""Stommel's ocean in three boxes, as in the tests of Checkpointing.jl."""

import numpy as np
import pytest


def test_published_numbers(example, capsys):
    module = example("ocean_boxes")
    result = module.main()
    # 10 000 steps that forget: some hundred rounding errors are left in the state ...
    assert result.temperature == pytest.approx(module.PUBLISHED["temperature"], rel=1e-13)
    # ... and each step of the adjoint adds one.
    assert result.by_salinity[1] == pytest.approx(module.PUBLISHED["gradient"], rel=1e-11)
    # A central difference of 1e-3: its own error is about 1e-6 of the slope.
    assert result.slope == pytest.approx(result.by_salinity[1], rel=1e-5)
    assert "published" in capsys.readouterr().out


@pytest.mark.parametrize("n_snapshots", [1, 3])
def test_few_snapshots_give_the_same(example, n_snapshots):
    module = example("ocean_boxes")
    few, many = module.main(50, n_snapshots), module.main(50, 50)
    np.testing.assert_array_equal(few.by_salinity, many.by_salinity)
    np.testing.assert_array_equal(few.by_temperature, many.by_temperature)
