"""Yoshida's method of order four: three steps of velocity Verlet, the second one backward.

With w = 1 / (2 - 2^(1/3)) their sizes are w, 1 - 2 w and w; kicks that meet are one.
"""

from fractions import Fraction

from pullback.ode.symplectic_tableau import make_symplectic_tableau

__all__ = ["YOSHIDA4"]

_CUBE_ROOT_OF_2 = Fraction("1.2599210498948731647672106072782283505702514647015079800819751")
_W = 1 / (2 - _CUBE_ROOT_OF_2)
_BETWEEN = (1 - _W) / 2

YOSHIDA4 = make_symplectic_tableau(
    name="Yoshida4",
    kicks=[_W / 2, _BETWEEN, _BETWEEN, _W / 2],
    drifts=[_W, 1 - 2 * _W, _W],
    order=4,
    dense_order=3,
    reference="[Yos90] the method of order four",
)
