"""The 3(2) pair of Bogacki and Shampine.

Dense output: cubic Hermite interpolation, order three and C1.
"""

from pullback.ode.tableau import hermite_dense, make_tableau

__all__ = ["BOSH3"]

_B = ["2/9", "1/3", "4/9", 0]

BOSH3 = make_tableau(
    name="Bosh3",
    a=[[], ["1/2"], [0, "3/4"], ["2/9", "1/3", "4/9"]],
    b=_B,
    b_hat=["7/24", "1/4", "1/3", "1/8"],
    c=[0, "1/2", "3/4", 1],
    order=3,
    embedded_order=2,
    fsal=True,
    dense=hermite_dense(_B),
    dense_order=3,
    reference="[BS89]; dense output [HNW93] eq. (II.6.7)",
)
