"""Euler's method."""

from pullback.ode.tableau import make_tableau

__all__ = ["EULER"]

EULER = make_tableau(
    name="Euler",
    a=[[]],
    b=[1],
    c=[0],
    order=1,
    dense=[[1]],
    dense_order=1,
    reference="[HNW93] section I.7",
)
