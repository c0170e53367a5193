"""The implicit Euler method, after an explicit stage that its error estimate needs.

The estimate is half the difference of both Euler methods, dt (k2 - k1) / 2: the step less the
trapezoidal rule, the leading term of the error. It must be filtered.
Dense output: linear, so that it stays between both ends.
"""

from pullback.ode.dirk_tableau import make_dirk_tableau, stage_value_dense

__all__ = ["IMPLICIT_EULER"]

_A = [[0], [0, 1]]

IMPLICIT_EULER = make_dirk_tableau(
    name="ImplicitEuler",
    gamma=1,
    a=_A,
    b=_A[1],
    b_hat=["1/2", "1/2"],
    order=1,
    embedded_order=2,
    dense=stage_value_dense(_A, [1]),
    dense_order=1,
    is_stiffly_accurate=True,
    filters_error=True,
    # From y itself: a step that damps a stiff component is not helped by an explicit one.
    predictor=[[], [0]],
    reference="[HW96] section IV.1; error estimate [HW96] section IV.8",
)
