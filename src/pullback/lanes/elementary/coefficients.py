"""Coefficients fitted by `tools/fit_elementary.py`, lowest degree first; do not edit."""

from __future__ import annotations

Coefficients = tuple[float, ...]


def _exact(*literals: str) -> Coefficients:
    return tuple(float.fromhex(literal) for literal in literals)


POLYNOMIALS: dict[str, dict[str, Coefficients]] = {
    # (e^r - 1 - r)/r², |r| <= ln(2)/2
    "exp": {
        # f64: largest weighted error 2^-57.9
        "f64": _exact(
            "0x1.000000000000cp-1",
            "0x1.5555555555561p-3",
            "0x1.555555554fdeap-5",
            "0x1.111111110d670p-7",
            "0x1.6c16c18611424p-10",
            "0x1.a01a01bac8cc8p-13",
            "0x1.a0199596a1920p-16",
            "0x1.71dde00af182fp-19",
            "0x1.28b11e7eedfa7p-22",
            "0x1.af85221924316p-26",
        ),
        # f32: largest weighted error 2^-28.2
        "f32": _exact(
            "0x1.0000000000000p-1",
            "0x1.55548e0000000p-3",
            "0x1.5554d80000000p-5",
            "0x1.123bfc0000000p-7",
            "0x1.6d5f320000000p-10",
        ),
    },
    # (sin r - r)/r³ in r², |r| <= pi/4
    "sin": {
        # f64: largest weighted error 2^-58.0
        "f64": _exact(
            "-0x1.5555555555549p-3",
            "0x1.111111110f8a2p-7",
            "-0x1.a01a019c1518bp-13",
            "0x1.71de3579d58c8p-19",
            "-0x1.ae5e67588d726p-26",
            "0x1.5d9334037bc2bp-33",
        ),
        # f32: largest weighted error 2^-28.0
        "f32": _exact(
            "-0x1.5555460000000p-3",
            "0x1.11077c0000000p-7",
            "-0x1.9955b40000000p-13",
        ),
    },
    # (cos r - 1 + r²/2)/r⁴ in r²
    "cos": {
        # f64: largest weighted error 2^-64.2
        "f64": _exact(
            "0x1.555555555554cp-5",
            "-0x1.6c16c16c1521fp-10",
            "0x1.a01a019cbf42bp-16",
            "-0x1.27e4f8127f34dp-22",
            "0x1.1ee9f114e9035p-29",
            "-0x1.8fb1045389743p-37",
        ),
        # f32: largest weighted error 2^-33.1
        "f32": _exact(
            "0x1.55554a0000000p-5",
            "-0x1.6c0c2e0000000p-10",
            "0x1.99eac40000000p-16",
        ),
    },
    # (2 atanh(s)/s - 2)/s² in s², |s| <= 0.1716
    "log": {
        # f64: largest weighted error 2^-59.5
        "f64": _exact(
            "0x1.5555555555592p-1",
            "0x1.999999997fef2p-2",
            "0x1.24924941e5acap-2",
            "0x1.c71c520ef1d2dp-3",
            "0x1.74663e6285d81p-3",
            "0x1.39a1bb0566bffp-3",
            "0x1.2f05cea6b6456p-3",
        ),
        # f32: largest weighted error 2^-30.2
        "f32": _exact(
            "0x1.55557a0000000p-1",
            "0x1.995ed60000000p-2",
            "0x1.31e0860000000p-2",
        ),
    },
    # ((2 log2(e) atanh(s)/s - c1)/s² - c3)/s² in s²
    "pow": {
        # f64: largest weighted error 2^-73.5
        "f64": _exact(
            "0x1.2776c50ef9bfcp-1",
            "0x1.a61762a7aedc6p-2",
            "0x1.484b13d6af003p-2",
            "0x1.0c9a8539cdbf9p-2",
            "0x1.c68eea06199f1p-3",
            "0x1.8a099e534ce89p-3",
            "0x1.58fed0f17c469p-3",
            "0x1.61e0480396239p-3",
        ),
        # f32: largest weighted error 2^-43.8
        "f32": _exact(
            "0x1.2776c40000000p-1",
            "0x1.a619460000000p-2",
            "0x1.47b4b40000000p-2",
            "0x1.202c960000000p-2",
        ),
    },
    # (atan z - z)/z³ in z², |z| <= tan(pi/8)
    "atan": {
        # f64: largest weighted error 2^-59.5
        "f64": _exact(
            "-0x1.555555555553dp-2",
            "0x1.99999999958b3p-3",
            "-0x1.24924922b0231p-3",
            "0x1.c71c70e75b8a1p-4",
            "-0x1.745cf905599b0p-4",
            "0x1.3b111c1840d7fp-4",
            "-0x1.10ebdaf9d7530p-4",
            "0x1.df1147a1aef13p-5",
            "-0x1.9cdba7accd08cp-5",
            "0x1.37ec0fa0b08e5p-5",
            "-0x1.259ab487a71cdp-6",
        ),
        # f32: largest weighted error 2^-30.5
        "f32": _exact(
            "-0x1.55554a0000000p-2",
            "0x1.9991ea0000000p-3",
            "-0x1.23ba760000000p-3",
            "0x1.b232200000000p-4",
            "-0x1.f32ede0000000p-5",
        ),
    },
    # (asin s - s)/s³ in s², |s| <= 1/2
    "asin": {
        # f64: largest weighted error 2^-59.8
        "f64": _exact(
            "0x1.5555555555578p-3",
            "0x1.333333332df2dp-4",
            "0x1.6db6db7229c9bp-5",
            "0x1.f1c71a8c57100p-6",
            "0x1.6e8bdfcf875a3p-6",
            "0x1.1c49dfc2fbbf8p-6",
            "0x1.ca211793ce5b5p-7",
            "0x1.75790c8b59937p-7",
            "0x1.6182044a7efeep-7",
            "0x1.e1e2e247f2407p-9",
            "0x1.64d7be61c0f4cp-6",
            "-0x1.59b983572a530p-6",
            "0x1.0bd104210957cp-5",
        ),
        # f32: largest weighted error 2^-31.7
        "f32": _exact(
            "0x1.55554c0000000p-3",
            "0x1.3338a40000000p-4",
            "0x1.6ca9660000000p-5",
            "0x1.04bc020000000p-5",
            "0x1.d6c0080000000p-7",
            "0x1.3421b60000000p-5",
        ),
    },
    # m^(-1/3), 1 <= m < 2
    "cbrt": {
        # f64: largest weighted error 2^-17.4
        "f64": _exact(
            "0x1.c7f3337bd172ap+0",
            "-0x1.90e6788aba9bdp+0",
            "0x1.3e677ac4f8045p+0",
            "-0x1.321a713f7e2d5p-1",
            "0x1.3f9f83526ae3bp-3",
            "-0x1.16d38d57d02aap-6",
        ),
        # f32: largest weighted error 2^-9.1
        "f32": _exact(
            "0x1.635e320000000p+0",
            "-0x1.eee9080000000p-2",
            "0x1.7e87ea0000000p-4",
        ),
    },
    # (tanh h - h)/h³ in h², |h| <= ln(2)/4
    "tanh": {
        # f64: largest weighted error 2^-57.8
        "f64": _exact(
            "-0x1.55555555554bcp-2",
            "0x1.11111110e089ep-3",
            "-0x1.ba1ba1167a09bp-5",
            "0x1.664ec99ce8081p-6",
            "-0x1.223c61a60e93ep-7",
            "0x1.c37fd618a76a7p-9",
        ),
        # f32: largest weighted error 2^-32.5
        "f32": _exact(
            "-0x1.55554e0000000p-2",
            "0x1.1105a00000000p-3",
            "-0x1.afe03a0000000p-5",
        ),
    },
    # erf(x)/x - 1 in x², |x| <= 1
    "erf": {
        # f64: largest weighted error 2^-56.2
        "f64": _exact(
            "0x1.06eba8214db69p-3",
            "-0x1.812746b037a01p-2",
            "0x1.ce2f21a04392bp-4",
            "-0x1.b82ce312b9273p-6",
            "0x1.565bcd147a95bp-8",
            "-0x1.c02db4ec62894p-11",
            "0x1.f9a33dfd966aap-14",
            "-0x1.f4d3d3c4488e7p-17",
            "0x1.b9f640026ad73p-20",
            "-0x1.5fd66c766f407p-23",
            "0x1.fefc601d7ac7bp-27",
            "-0x1.4df56dbe8beefp-30",
            "0x1.3d03e65f5ee3cp-34",
        ),
        # f32: largest weighted error 2^-29.5
        "f32": _exact(
            "0x1.06eba80000000p-3",
            "-0x1.8127400000000p-2",
            "0x1.ce2d520000000p-4",
            "-0x1.b7fec60000000p-6",
            "0x1.54300a0000000p-8",
            "-0x1.a51aa00000000p-11",
            "0x1.4c60620000000p-14",
        ),
    },
    # log(erfc(x)), 1 <= x until erf(x) rounds to 1
    "log_erfc": {
        # f64: largest weighted error 2^-54.9
        "f64": _exact(
            "-0x1.1db185a3384afp-20",
            "-0x1.20dcc580ebcb9p+0",
            "-0x1.45f94be90b4fep-1",
            "-0x1.a4674cad33c4dp-4",
            "0x1.3516996789ae8p-6",
            "0x1.324f83699f4f3p-11",
            "-0x1.131d3aa2eabe2p-9",
            "0x1.e263ae14114b3p-11",
            "-0x1.e3e302ceb9a05p-13",
            "0x1.d66eb7caed617p-16",
            "0x1.e29589db0865ap-19",
            "-0x1.662ff4e8e06a3p-19",
            "0x1.70c23bd66d767p-21",
            "-0x1.d03c7a5739c59p-24",
            "0x1.762b72fed166bp-27",
            "-0x1.65df05b3e1f3ap-31",
            "0x1.3705f460beffcp-36",
        ),
        # f32: largest weighted error 2^-29.8
        "f32": _exact(
            "-0x1.6661d80000000p-12",
            "-0x1.2088d80000000p+0",
            "-0x1.46bb2e0000000p-1",
            "-0x1.a6515a0000000p-4",
            "0x1.65c79c0000000p-6",
            "-0x1.8252e00000000p-9",
            "0x1.86cfae0000000p-13",
        ),
    },
}

# (numerator, denominator)
RATIONALS: dict[str, dict[str, tuple[Coefficients, Coefficients]]] = {
    # (1 + x) e^(x²) erfc(x), x >= 0 until erfc underflows, - 0.75
    "erfc": {
        # f64: largest weighted error 2^-57.2
        "f64": (
            _exact(
                "0x1.0000000000000p-2",
                "0x1.7ca29694b0124p-1",
                "0x1.b1a051b67f0aep-1",
                "0x1.03c67fbe7e6e7p-1",
                "0x1.285724cd59509p-3",
                "-0x1.0ae8121e275a1p-6",
                "-0x1.1db9f10f5449dp-5",
                "-0x1.1394a2df3e55fp-6",
                "-0x1.389bec7e67acfp-8",
                "-0x1.c7d647e26a778p-11",
                "-0x1.96c952cffdf25p-14",
                "-0x1.5ed9849293a66p-18",
            ),
            _exact(
                "0x1.0000000000000p+0",
                "0x1.be5d809d037fep+1",
                "0x1.6c494386b5276p+2",
                "0x1.7023b1acd0218p+2",
                "0x1.008f7ea299da5p+2",
                "0x1.03b04722ab788p+1",
                "0x1.86ec77fafae14p-1",
                "0x1.b77d13f23264dp-3",
                "0x1.6b99369bb7614p-5",
                "0x1.a8b89f9e64f8dp-8",
                "0x1.3e72cd6952310p-11",
                "0x1.d80da4e6d26dep-16",
            ),
        ),
        # f32: largest weighted error 2^-27.6
        "f32": (
            _exact(
                "0x1.0000000000000p-2",
                "0x1.ef796a0000000p-2",
                "0x1.97caf00000000p-3",
                "-0x1.bea8d20000000p-6",
                "-0x1.78fea00000000p-5",
                "-0x1.c7d4720000000p-7",
            ),
            _exact(
                "0x1.0000000000000p+0",
                "0x1.39779e0000000p+1",
                "0x1.48a65c0000000p+1",
                "0x1.79d7da0000000p+0",
                "0x1.e659600000000p-2",
                "0x1.32a7800000000p-4",
            ),
        ),
    },
    # lgamma(1 + t)/(t (t - 1)), -0.2 <= t <= 2, - 0.46875
    "lgamma": {
        # f64: largest weighted error 2^-58.3
        "f64": (
            _exact(
                "0x1.ad86270700469p-3",
                "0x1.818aa08ef4298p-2",
                "-0x1.9374eb6f0b8ffp-3",
                "-0x1.e5dd6e7b620adp-1",
                "-0x1.d1283f5dea45bp-1",
                "-0x1.a0d4a7b53fe0dp-2",
                "-0x1.7e1608e6d04a1p-4",
                "-0x1.5752539d1b682p-7",
                "-0x1.03704352ee079p-11",
                "-0x1.bbdce8b65b9f7p-18",
            ),
            _exact(
                "0x1.ef00000000000p+0",
                "0x1.f5f79790667cdp+2",
                "0x1.a4b5b047593b1p+3",
                "0x1.79520c08bbed4p+3",
                "0x1.881f79540c662p+2",
                "0x1.de6f13e9bf98dp+0",
                "0x1.4bf7a1e1e2739p-2",
                "0x1.e2d2521c9b7aap-6",
                "0x1.374dab341bd31p-10",
                "0x1.defa94e09e521p-17",
            ),
        ),
        # f32: largest weighted error 2^-31.2
        "f32": (
            _exact(
                "0x1.751f340000000p-3",
                "0x1.4c91040000000p-7",
                "-0x1.66f6fa0000000p-2",
                "-0x1.fabff00000000p-3",
                "-0x1.9402380000000p-5",
                "-0x1.28b5e20000000p-9",
            ),
            _exact(
                "0x1.ae00000000000p+0",
                "0x1.f21cde0000000p+1",
                "0x1.947eda0000000p+1",
                "0x1.12138e0000000p+0",
                "0x1.1f64ee0000000p-3",
                "0x1.46cc1a0000000p-8",
            ),
        ),
    },
    # digamma(1 + t)/(t - t0), 0 <= t <= 2, - 0.78125
    "digamma": {
        # f64: largest weighted error 2^-61.1
        "f64": (
            _exact(
                "0x1.a366fff235ba4p-1",
                "0x1.88194b9e3e97ep-2",
                "-0x1.16e380e78ee86p-1",
                "-0x1.dd8d31df2a34fp-2",
                "-0x1.0cdd46597141ep-3",
                "-0x1.01a2e54ba4eb8p-6",
                "-0x1.88e14cc59ab6cp-11",
                "-0x1.4ec46816e1f5cp-17",
            ),
            _exact(
                "0x1.bf00000000000p+0",
                "0x1.ffa99c2ac1267p+1",
                "0x1.a9135659c980bp+1",
                "0x1.4dd4fbbe4e699p+0",
                "0x1.08afdae272da5p-2",
                "0x1.9b8b205274a3cp-6",
                "0x1.1253d78458cacp-10",
                "0x1.af9167ac34e74p-17",
            ),
        ),
        # f32: largest weighted error 2^-29.6
        "f32": (
            _exact(
                "0x1.62a9920000000p-1",
                "-0x1.2a93440000000p-6",
                "-0x1.f351c60000000p-2",
                "-0x1.3b33040000000p-3",
                "-0x1.31afbc0000000p-7",
            ),
            _exact(
                "0x1.7a00000000000p+0",
                "0x1.535c640000000p+1",
                "0x1.6c27ba0000000p+0",
                "0x1.0a33680000000p-2",
                "0x1.912f7e0000000p-7",
            ),
        ),
    },
    # x times the remainder of Stirling's formula, in x², x >= 3
    "stirling": {
        # f64: largest weighted error 2^-59.2
        "f64": (
            _exact(
                "0x1.bf5e1cef28632p-4",
                "0x1.1092ec63cee92p+1",
                "0x1.764a98ed4b933p+2",
                "0x1.313c12867982cp+2",
                "0x1.706b98c905cdep+0",
                "0x1.545b23b092aa0p-3",
                "0x1.8d0210a22a83cp-8",
            ),
            _exact(
                "0x1.d200000000000p+0",
                "0x1.b81d994ab8c31p+4",
                "0x1.1fd154fb191a5p+6",
                "0x1.ce53ab0c8302fp+5",
                "0x1.155e7a3ce7c01p+4",
                "0x1.ff2783291cdccp+0",
                "0x1.29c18c799fe2ep-4",
            ),
        ),
        # f32: largest weighted error 2^-30.5
        "f32": (
            _exact(
                "0x1.aa04f20000000p-4",
                "0x1.95e7520000000p-1",
                "0x1.f707b20000000p-2",
            ),
            _exact(
                "0x1.8400000000000p+0",
                "0x1.36b7300000000p+3",
                "0x1.7945c60000000p+2",
            ),
        ),
    },
    # x (log x - digamma x), x >= 3
    "digamma_remainder": {
        # f64: largest weighted error 2^-58.4
        "f64": (
            _exact(
                "0x1.c4909218fd65fp+0",
                "0x1.3c0e9dac4d4cap+3",
                "0x1.6c99a74552820p+4",
                "0x1.fd2417421eb75p+4",
                "0x1.a056bf9193733p+4",
                "0x1.e067a30cfa0e6p+3",
                "0x1.2afb544167e2fp+2",
                "0x1.16d0395872861p+0",
            ),
            _exact(
                "0x1.de00000000000p+0",
                "0x1.cb41794df74f1p+3",
                "0x1.25b9cb16959a5p+5",
                "0x1.bf3d641541bf5p+5",
                "0x1.7a975519260b4p+5",
                "0x1.c875318fd55a4p+4",
                "0x1.1f5d51ddb872ap+3",
                "0x1.16d0395872862p+1",
            ),
        ),
        # f32: largest weighted error 2^-31.4
        "f32": (
            _exact(
                "0x1.4887880000000p+0",
                "0x1.8a338a0000000p+2",
                "0x1.cddf4e0000000p+2",
                "0x1.322dcc0000000p+3",
            ),
            _exact(
                "0x1.2500000000000p+0",
                "0x1.4e3b980000000p+3",
                "0x1.67d00a0000000p+3",
                "0x1.322dcc0000000p+4",
            ),
        ),
    },
}
