"""The trapezoidal rule: order two, A-stable, not L-stable.

The estimate is the step less the explicit Euler method, of order one: it is that method's
error, far above that of the step, and it must be filtered.
Dense output: the quadratic through both ends with both slopes, of order two.
"""

from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor
from pullback.ode.tableau import hermite_dense

__all__ = ["TRAPEZOID"]

_A = [[0], ["1/2", "1/2"]]
_B = ["1/2", "1/2"]

TRAPEZOID = make_dirk_tableau(
    name="Trapezoid",
    gamma="1/2",
    a=_A,
    b=_B,
    b_hat=[1, 0],
    order=2,
    embedded_order=1,
    # Its cubic term vanishes: y1 - y0 is dt times the mean of the slopes.
    dense=[row[:2] for row in hermite_dense(_B)],
    dense_order=2,
    is_stiffly_accurate=True,
    filters_error=True,
    predictor=slope_predictor(_A),
    reference="[HW96] section IV.3; dense output [HNW93] eq. (II.6.7)",
)
