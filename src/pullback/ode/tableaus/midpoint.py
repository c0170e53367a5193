"""The explicit midpoint rule (Runge's method of order two), with Euler's embedded.

Dense output: the quadratic with slope f at the start, the only quadratic of order two that
the two stages give.
"""

from pullback.ode.tableau import make_tableau

__all__ = ["MIDPOINT"]

MIDPOINT = make_tableau(
    name="Midpoint",
    a=[[], ["1/2"]],
    b=[0, 1],
    b_hat=[1, 0],
    c=[0, "1/2"],
    order=2,
    embedded_order=1,
    dense=[[1, -1], [0, 1]],
    dense_order=2,
    reference="[HNW93] section II.1",
)
