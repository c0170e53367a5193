"""The largest errors of the elementary functions, in units in the last place of the exact result.

Measured, not proved: they are bounds on what 200 000 arguments per function and format gave against
mpmath (over the whole range, subnormal results included, and dense where cancellation threatens),
and in float32 also on every 17th number against the float64 function. The tests hold the functions
to these numbers. 0.5 is correct rounding.

lgamma and digamma: for x > 0; for x < 0 see :mod:`pullback.lanes.elementary.gamma`. erf_inv is not
in the table: it follows JAX's definition, not the exact function (see `error_function`).
"""

from __future__ import annotations

MAX_ULP: dict[str, float] = {
    "exp": 1.1,
    "exp2": 0.95,
    "expm1": 1.3,
    "logistic": 2.6,
    "log": 0.9,
    "log2": 0.8,
    "log1p": 0.9,
    "pow": 1.1,
    "sin": 1.15,
    "cos": 1.15,
    "tan": 2.8,
    "asin": 0.75,
    "acos": 0.7,
    "atan": 2.0,
    "atan2": 2.0,
    "sinh": 2.7,
    "cosh": 1.4,
    "tanh": 2.7,
    "asinh": 1.9,
    "acosh": 2.4,
    "atanh": 2.2,
    "sqrt": 0.501,
    "rsqrt": 1.5,
    "cbrt": 0.501,
    "erf": 1.8,
    "erfc": 3.6,
    "lgamma": 3.3,
    "digamma": 3.2,
}
