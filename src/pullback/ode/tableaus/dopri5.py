"""The 5(4) pair of Dormand and Prince (RK5(4)7M).

Dense output: the quartic of order four that Hairer's code DOPRI5 uses, free of extra stages
and C1. `_QUARTIC` are its coefficients of theta^4 (called d there).
"""

from pullback.ode.tableau import hermite_dense, make_tableau

__all__ = ["DOPRI5"]

_B = ["35/384", 0, "500/1113", "125/192", "-2187/6784", "11/84", 0]

_QUARTIC = [
    "-12715105075/11282082432",
    0,
    "87487479700/32700410799",
    "-10690763975/1880347072",
    "701980252875/199316789632",
    "-1453857185/822651844",
    "69997945/29380423",
]

DOPRI5 = make_tableau(
    name="Dopri5",
    a=[
        [],
        ["1/5"],
        ["3/40", "9/40"],
        ["44/45", "-56/15", "32/9"],
        ["19372/6561", "-25360/2187", "64448/6561", "-212/729"],
        ["9017/3168", "-355/33", "46732/5247", "49/176", "-5103/18656"],
        _B[:-1],
    ],
    b=_B,
    b_hat=[
        "5179/57600",
        0,
        "7571/16695",
        "393/640",
        "-92097/339200",
        "187/2100",
        "1/40",
    ],
    c=[0, "1/5", "3/10", "4/5", "8/9", 1, 1],
    order=5,
    embedded_order=4,
    fsal=True,
    dense=hermite_dense(_B, _QUARTIC),
    dense_order=4,
    reference="[DP80]; [HNW93] table II.5.2, dense output section II.6",
)
