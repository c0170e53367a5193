"""Kvaerno's pair of orders 3(2) with an explicit first stage and four stages.

The step is L-stable, the embedded solution (the third stage value) A-stable, both at t1.
gamma is the root of 6 x^3 - 18 x^2 + 9 x - 1 between 0.4 and 0.5; the rest follows from it.
Dense output: the only cubic of order three through the stage values.
"""

from fractions import Fraction

from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor, stage_value_dense

__all__ = ["KVAERNO3"]

_G = Fraction("0.4358665215084589994160194511935568425293")
_A = [
    [0],
    [_G, _G],
    [(-4 * _G**2 + 6 * _G - 1) / (4 * _G), (1 - 2 * _G) / (4 * _G), _G],
    [
        (6 * _G - 1) / (12 * _G),
        1 / (12 * _G * (1 - 2 * _G)),
        (6 * _G**2 - 6 * _G + 1) / (3 - 6 * _G),
        _G,
    ],
]

KVAERNO3 = make_dirk_tableau(
    name="Kvaerno3",
    gamma=_G,
    a=_A,
    b=_A[3],
    b_hat=[*_A[2], 0],
    order=3,
    embedded_order=2,
    dense=stage_value_dense(_A, [1, 2, 3]),
    dense_order=3,
    is_stiffly_accurate=True,
    predictor=slope_predictor(_A),
    reference="[Kva04], the pair 3/2",
)
