"""Elementary functions without branches or calls, for every lane builder.

`FUNCTIONS[name]` is `(function, arity)`; `function(b, *values)` emits the operations on a float
view `b` of a builder (:mod:`pullback.lanes.float_view`). Names are those of the JAX primitives. One
formulation serves every width and target, and gives the same bits on all of them: each operation is
rounded once, none is fused or rearranged behind the author's back. `integer_pow` takes its exponent
as a Python integer and is not in the table.

* `exponential`, `logarithm`, `power`, `roots`, `circular` with `argument_reduction`,
  `inverse_circular`, `hyperbolic`, `error_function` with `giles`, `gamma`: the functions
* `arithmetic`: error-free sums, polynomials, exponents and signs
* `constants`, `coefficients` (made by `tools/fit_elementary.py`): the numbers
* `accuracy`: the largest error of each function, 0.5 to 3.6 ulp

They need a fused multiply-add in hardware and gradual underflow; where subnormal numbers are
flushed to zero, only results that depend on them change. What does *not* belong here: rules of JAX
primitives (`lanes.rules`), derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.lanes.elementary.circular import cos, sin, tan
from pullback.lanes.elementary.error_function import erf, erf_inv, erfc
from pullback.lanes.elementary.exponential import exp, exp2, expm1, logistic
from pullback.lanes.elementary.gamma import digamma, lgamma
from pullback.lanes.elementary.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from pullback.lanes.elementary.inverse_circular import acos, asin, atan, atan2
from pullback.lanes.elementary.logarithm import log, log1p, log2
from pullback.lanes.elementary.power import integer_pow, pow
from pullback.lanes.elementary.roots import cbrt, rsqrt, sqrt

__all__ = ["FUNCTIONS", "integer_pow"]

_UNARY = (
    *(exp, exp2, expm1, logistic, log, log2, log1p, sin, cos, tan, asin, acos, atan),
    *(sinh, cosh, tanh, asinh, acosh, atanh, sqrt, rsqrt, cbrt, erf, erfc, erf_inv),
    *(lgamma, digamma),
)
_BINARY = (pow, atan2)

FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    **{function.__name__: (function, 1) for function in _UNARY},
    **{function.__name__: (function, 2) for function in _BINARY},
}
