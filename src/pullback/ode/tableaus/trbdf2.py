"""TR-BDF2: a trapezoidal step to 2 - sqrt 2, then BDF2; order two, L-stable.

The estimate is that of a third order formula over the same stages, to be filtered.
Dense output: the quadratic through both ends and the stage between, of order two.
"""

from fractions import Fraction

from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor, stage_value_dense

__all__ = ["TRBDF2"]

_SQRT2 = Fraction("1.414213562373095048801688724209698078569672")
_D = 1 - _SQRT2 / 2
_W = _SQRT2 / 4
_A = [[0], [_D, _D], [_W, _W, _D]]

TRBDF2 = make_dirk_tableau(
    name="TRBDF2",
    gamma=_D,
    a=_A,
    b=_A[2],
    b_hat=[(1 - _W) / 3, (1 + 3 * _W) / 3, _D / 3],
    order=2,
    embedded_order=3,
    dense=stage_value_dense(_A, [1, 2]),
    dense_order=2,
    is_stiffly_accurate=True,
    filters_error=True,
    predictor=slope_predictor(_A),
    reference="[BCF85]; the pair and its filtered estimate [HS96]",
)
