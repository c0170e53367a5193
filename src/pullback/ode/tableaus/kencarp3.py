"""Kennedy and Carpenter's ARK3(2)4L[2]SA: implicit and explicit pair of orders 3(2).

The implicit half is L-stable and stiffly accurate with stage order two. The numbers are fractions
that agree with the exact ones to 25 digits. Dense output: the published quadratic.
"""

from fractions import Fraction

from pullback.ode.additive_tableau import make_additive_tableau
from pullback.ode.dirk_tableau import make_dirk_tableau, slope_predictor

__all__ = ["KENCARP3"]

_G = Fraction("1767732205903/4055673282236")
_B = [
    "1471266399579/7840856788654",
    "-4482444167858/7529755066697",
    "11266239266428/11593286722821",
    _G,
]
_A = [
    [0],
    [_G, _G],
    ["2746238789719/10658868560708", "-640167445237/6845629431997", _G],
    _B,
]

KENCARP3 = make_additive_tableau(
    make_dirk_tableau(
        name="KenCarp3",
        gamma=_G,
        a=_A,
        b=_B,
        b_hat=[
            "2756255671327/12835298489170",
            "-10771552573575/22201958757719",
            "9247589265047/10645013368117",
            "2193209047091/5459859503100",
        ],
        order=3,
        embedded_order=2,
        dense=[
            ["4655552711362/22874653954995", "-215264564351/13552729205753"],
            ["-18682724506714/9892148508045", "17870216137069/13817060693119"],
            ["34259539580243/13192909600954", "-28141676662227/17317692491321"],
            ["584795268549/6622622206610", "2508943948391/7218656332882"],
        ],
        dense_order=2,
        is_stiffly_accurate=True,
        predictor=slope_predictor(_A),
        reference="[KC03] ARK3(2)4L[2]SA",
    ),
    explicit=[
        [],
        [2 * _G],
        ["5535828885825/10492691773637", "788022342437/10882634858940"],
        [
            "6485989280629/16251701735622",
            "-4246266847089/9704473918619",
            "10755448449292/10357097424841",
        ],
    ],
)
