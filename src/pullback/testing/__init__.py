"""Checks of gradients and of accuracy, for this package's tests and for yours.

`taylor_test` (does the gradient match the function?), `dot_test` (are forward and reverse mode
adjoint to each other?), `convergence_order` (does the error fall as fast as it should?), `tol` and
`assert_close` (how near is near?). All of them are plain JAX and NumPy and work on any function;
`taylor_test(..., mesh="frozen")` alone knows this package's solvers, whose steps it repeats.
"""

from pullback.testing.closeness import assert_close
from pullback.testing.convergence import convergence_order
from pullback.testing.dot import DotResult, dot_test
from pullback.testing.taylor import TaylorResult, taylor_test
from pullback.testing.tolerances import tol

__all__ = [
    "DotResult",
    "TaylorResult",
    "assert_close",
    "convergence_order",
    "dot_test",
    "taylor_test",
    "tol",
]
