"""Numbers of each floating dtype that the elementary functions need, as hexadecimal literals.

A tuple is an unevaluated sum: its first entry is the constant rounded to the dtype, the next ones
hold what the rounding lost. Polynomial coefficients live in `coefficients`, the table
for huge arguments of the circular functions in `argument_reduction`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

INF = float("inf")
NAN = float("nan")

Parts = tuple[float, ...]  # of an unevaluated sum


@dataclass(frozen=True)
class FloatConstants:
    """Layout and split constants of one binary floating-point format."""

    mantissa_bits: int
    exponent_bias: int
    width: int
    ln_2: Parts
    log2_e: Parts
    pi: Parts
    half_pi: Parts
    quarter_pi: Parts
    two_over_pi: float
    sqrt_half: float
    two_log2_e: Parts
    two_thirds_log2_e: Parts
    stirling: Parts  # log(2 pi)/2 - 1/2
    digamma_zero: Parts  # the positive zero of digamma, minus 1

    @property
    def round_magic(self) -> float:
        """1.5·2^mantissa: adding it leaves the integer part of a sum in the low bits."""
        return 1.5 * self.integer_base

    @property
    def integer_base(self) -> float:
        """2^mantissa: its low bits hold a non-negative integer."""
        return 2.0**self.mantissa_bits

    @property
    def min_normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0 ** (1 - self.exponent_bias)

    @property
    def max_finite(self) -> float:
        """Largest finite number."""
        return (2.0 - 2.0**-self.mantissa_bits) * 2.0**self.exponent_bias

    @property
    def mantissa_mask(self) -> int:
        """Bits of the mantissa."""
        return (1 << self.mantissa_bits) - 1

    @property
    def sign_bit(self) -> int:
        """The sign bit as a signed integer of the format's width."""
        return -(1 << (self.width - 1))

    def bits(self, x: float) -> int:
        """Return the bits of `x` as a signed integer."""
        codes = ("<d", "<q") if self.width == 64 else ("<f", "<i")
        return struct.unpack(codes[1], struct.pack(codes[0], x))[0]


def _exact(*literals: str) -> Parts:
    return tuple(float.fromhex(literal) for literal in literals)


CONSTANTS: dict[str, FloatConstants] = {
    "f64": FloatConstants(
        mantissa_bits=52,
        exponent_bias=1023,
        width=64,
        ln_2=_exact("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56"),
        log2_e=_exact("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56"),
        pi=_exact("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53"),
        half_pi=_exact("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110"),
        quarter_pi=_exact("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55"),
        two_over_pi=float.fromhex("0x1.45f306dc9c883p-1"),
        sqrt_half=float.fromhex("0x1.6a09e667f3bcdp-1"),
        two_log2_e=_exact("0x1.71547652b82fep+1", "0x1.777d0ffda0d24p-55"),
        two_thirds_log2_e=_exact("0x1.ec709dc3a03fdp-1", "0x1.d27f05548af0cp-55"),
        stirling=_exact("0x1.acfe390c97d69p-2", "0x1.3494bc9001442p-56"),
        digamma_zero=_exact("0x1.d8b618d5af8fep-2", "-0x1.1e563779a1f5bp-56"),
    ),
    "f32": FloatConstants(
        mantissa_bits=23,
        exponent_bias=127,
        width=32,
        ln_2=_exact("0x1.62e430p-1", "-0x1.05c610p-29"),
        log2_e=_exact("0x1.715476p+0", "0x1.4ae0c0p-26"),
        pi=_exact("0x1.921fb6p+1", "-0x1.777a5cp-24"),
        half_pi=_exact("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50"),
        quarter_pi=_exact("0x1.921fb6p-1", "-0x1.777a5cp-26"),
        two_over_pi=float.fromhex("0x1.45f306p-1"),
        sqrt_half=float.fromhex("0x1.6a09e6p-1"),
        two_log2_e=_exact("0x1.715476p+1", "0x1.4ae0c0p-25"),
        two_thirds_log2_e=_exact("0x1.ec709ep-1", "-0x1.e2fe02p-28"),
        stirling=_exact("0x1.acfe3ap-2", "-0x1.e6d052p-27"),
        digamma_zero=_exact("0x1.d8b618p-2", "0x1.ab5f20p-27"),
    ),
}

# 2/pi in binary: floor(2/pi · 2^1280). A float64 argument reaches 2^1024, and its mantissa and
# four parts of 53 bits for the fraction need the rest.
TWO_OVER_PI_DIGITS = 1280
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
