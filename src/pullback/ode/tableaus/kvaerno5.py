"""Kvaerno's pair of orders 5(4) with an explicit first stage and seven stages.

The step is L-stable, the embedded solution (the sixth stage value) A-stable, both at t1. The
numbers are decimals of seventeen digits. The third stage is evaluated beyond t1.
Dense output: the only quartic of order four through the stage values but the embedded one.
"""

from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor, stage_value_dense

__all__ = ["KVAERNO5"]

_G = "0.26"
_A = [
    [0],
    [_G, _G],
    ["0.13", "0.84033320996790809", _G],
    ["0.22371961478320505", "0.47675532319799699", "-0.06470895363112615", _G],
    [
        "0.16648564323248321",
        "0.10450018841591720",
        "0.03631482272098715",
        "-0.13090704451073998",
        _G,
    ],
    [
        "0.13855640231268224",
        0,
        "-0.04245337201752043",
        "0.02446657898003141",
        "0.61943039072480676",
        _G,
    ],
    [
        "0.13659751177640291",
        0,
        "-0.05496908796538376",
        "-0.04118626728321046",
        "0.62993304899016403",
        "0.06962479448202728",
        _G,
    ],
]

KVAERNO5 = make_dirk_tableau(
    name="Kvaerno5",
    gamma=_G,
    a=_A,
    b=_A[6],
    b_hat=[*_A[5], 0],
    order=5,
    embedded_order=4,
    dense=stage_value_dense(_A, [1, 2, 3, 4, 6]),
    dense_order=4,
    is_stiffly_accurate=True,
    predictor=slope_predictor(_A),
    reference="[Kva04], the pair 5/4",
)
