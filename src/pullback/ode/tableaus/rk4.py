"""The classical Runge-Kutta method of order four, without an error estimate.

Dense output: the cubic of order three that the four stages give. Its slope is f at the start
and the fourth stage at the end, so it is continuous but not C1 across steps.
"""

from pullback.ode.tableau import make_tableau

__all__ = ["RK4"]

RK4 = make_tableau(
    name="RK4",
    a=[[], ["1/2"], [0, "1/2"], [0, 0, 1]],
    b=["1/6", "1/3", "1/3", "1/6"],
    c=[0, "1/2", "1/2", 1],
    order=4,
    dense=[
        [1, "-3/2", "2/3"],
        [0, 1, "-2/3"],
        [0, 1, "-2/3"],
        [0, "-1/2", "2/3"],
    ],
    dense_order=3,
    reference="[HNW93] table II.1.2",
)
