"""Heun's method of order two (the explicit trapezoidal rule), with Euler's embedded.

Dense output: the quadratic with slope f at the start. It is the only quadratic of order two
that the two stages give; its slope at the end is the second stage, not f at the new point.
"""

from pullback.ode.tableau import make_tableau

__all__ = ["HEUN"]

HEUN = make_tableau(
    name="Heun",
    a=[[], [1]],
    b=["1/2", "1/2"],
    b_hat=[1, 0],
    c=[0, 1],
    order=2,
    embedded_order=1,
    dense=[[1, "-1/2"], [0, "1/2"]],
    dense_order=2,
    reference="[HNW93] section II.1",
)
