"""The four examples with events."""

import numpy as np
import pytest


def test_bouncing_ball(example):
    program = example("bouncing_ball")
    result = program.main(n_bounces=5, n_updates=6)
    for name in program.TRUTH:
        # Free fall is a polynomial, so that the solver has rounding errors only.
        assert result.gradient[name] == pytest.approx(result.exact[name], rel=1e-9), name
        off = abs(result.parameters[name] - program.TRUTH[name])
        assert off < 4.0 * result.deviation[name], name
        assert result.deviation[name] < 0.05 * program.TRUTH[name], name


def test_thermostat(example):
    result = example("thermostat").main()
    # Of a solve at 1e-9.
    assert result.period == pytest.approx(result.exact_period, rel=1e-8)
    assert result.slope == pytest.approx(result.exact_slope, rel=1e-7)


def test_izhikevich(example):
    result = example("izhikevich").main(n_currents=6, t1=300.0)
    assert (np.diff(result.rates, axis=1) >= 0).all()  # more current, more spikes
    assert (result.rates[2] >= result.rates[0]).all()  # fast spiking and regular spiking
    assert (result.gradient < 0).all()  # more current, earlier
    # A central difference with 1e-4 of a current of 10, of solves at 1e-9.
    np.testing.assert_allclose(result.gradient, result.difference, rtol=1e-5)


def test_dosing(example):
    program = example("dosing")
    result = program.main(n_subjects=3, n_doses=4, n_updates=20)
    np.testing.assert_allclose(result.dose, result.exact_dose, rtol=1e-6)
    assert (result.trough < program.TARGET).all()
    assert (result.peak > program.TARGET).all()
    # The single-compartment fit of `theophylline.py` leaves about this much.
    assert (result.residual < 1.0).all()
