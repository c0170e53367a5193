"""Shampine and Reichelt's pair of orders 2 and 3, the method of Matlab's ode23s.

The step is the formula of order two, which is L-stable. `_D` is 1 / (2 + sqrt 2), and
`_E32` is 6 + sqrt 2. In the published form the right-hand sides hold f of the earlier stages;
written out with the stages' own equations they give, with slopes k as stages, the nodes
0, 1/2, 1 and the rows `alpha = (), (1/2), (0, 1)`,
`gamma = d (1), d (-1, 1), d (e32 - 2, -e32, 1)`; weights (0, 1, 0) and, embedded,
(1/6, 2/3, 1/6). The numbers below are those after the transformation u = dt Gamma k.
The argument of f in the last stage is y1: that f is the first of the next step.
Dense output: the published quadratic of order two.
"""

from fractions import Fraction

from pullback.ode.rosenbrock_tableau import make_rosenbrock_tableau

__all__ = ["ROSENBROCK23"]

_SQRT2 = Fraction("1.414213562373095048801688724209698078569672")
_D = 1 / (2 + _SQRT2)
_E32 = 6 + _SQRT2
_BEND = 1 / (_D * (1 - 2 * _D))

ROSENBROCK23 = make_rosenbrock_tableau(
    name="Rosenbrock23",
    gamma=_D,
    a=[[], [1 / (2 * _D)], [1 / _D, 1 / _D]],
    c=[[], [-1 / _D], [-2 / _D, -_E32 / _D]],
    alpha=[0, "1/2", 1],
    gamma_sums=[_D, 0, -_D],
    m=[1 / _D, 1 / _D, 0],
    e=[-1 / (6 * _D), (2 - _E32) / (6 * _D), -1 / (6 * _D)],
    order=2,
    embedded_order=3,
    dense=[[1 / _D, 0], [-2 * _D * _BEND, _BEND], [0, 0]],
    dense_order=2,
    is_stiffly_accurate=False,
    reference="[SR97] section 3",
)
