"""The method of Hairer and Wanner's code RODAS: order 4(3), L-stable, stiffly accurate.

The embedded solution is the argument of f in the last stage. The numbers are decimals of
sixteen digits. Dense output: the code's cubic, of order three.
"""

from pullback.ode.rosenbrock_tableau import make_rosenbrock_tableau, rodas_dense

__all__ = ["RODAS4"]

_A = ["1.221224509226641", "6.019134481288629", "12.53708332932087", "-0.6878860361058950"]
_M = [*_A, 1, 1]

_H = [
    [
        "10.12623508344586",
        "-7.487995877610167",
        "-34.80091861555747",
        "-7.992771707568823",
        "1.025137723295662",
        0,
    ],
    [
        "-0.6762803392801253",
        "6.087714651680015",
        "16.43084320892478",
        "24.76722511418386",
        "-6.594389125716872",
        0,
    ],
]

RODAS4 = make_rosenbrock_tableau(
    name="Rodas4",
    gamma="1/4",
    a=[
        [],
        ["1.544"],
        ["0.9466785280815826", "0.2557011698983284"],
        ["3.314825187068521", "2.896124015972201", "0.9986419139977817"],
        _A,
        _M[:5],
    ],
    c=[
        [],
        ["-5.6688"],
        ["-2.430093356833875", "-0.2063599157091915"],
        ["-0.1073529058151375", "-9.594562251023355", "-20.47028614809616"],
        ["7.496443313967647", "-10.24680431464352", "-33.99990352819905", "11.70890893206160"],
        [
            "8.083246795921522",
            "-7.981132988064893",
            "-31.52159432874371",
            "16.31930543123136",
            "-6.058818238834054",
        ],
    ],
    alpha=[0, "0.386", "0.21", "0.63", 1, 1],
    gamma_sums=["1/4", "-0.1043", "0.1035", "-0.0362", 0, 0],
    m=_M,
    e=[0, 0, 0, 0, 0, 1],
    order=4,
    embedded_order=3,
    dense=rodas_dense(_M, _H),
    dense_order=3,
    is_stiffly_accurate=True,
    reference="[HW96] sections IV.7 and VI.4, the code RODAS",
)
