"""Gradients through simulations: ensembles of differential equations in JAX.

The public names, and nothing else. `pullback.testing` holds checks for derivatives.
"""

from pullback.core import (
    GradientUnresolvedError,
    GradientUnresolvedWarning,
    KernelFallbackWarning,
    SolveFailedError,
    Status,
    UnsupportedBackend,
    UnsupportedPrimitive,
)
from pullback.ensemble import (
    EnsembleArray,
    EnsembleKernel,
    EnsembleProblem,
    GradStats,
    ODEProblem,
    Solution,
    TrajectoryContext,
    solve,
    value_and_grad,
)
from pullback.ode import (
    RK4,
    Bosh3,
    DiscreteAdjoint,
    Dopri5,
    Euler,
    Heun,
    Midpoint,
    PIController,
    Tsit5,
    Vern7,
)

__all__ = [
    "RK4",
    "Bosh3",
    "DiscreteAdjoint",
    "Dopri5",
    "EnsembleArray",
    "EnsembleKernel",
    "EnsembleProblem",
    "Euler",
    "GradStats",
    "GradientUnresolvedError",
    "GradientUnresolvedWarning",
    "Heun",
    "KernelFallbackWarning",
    "Midpoint",
    "ODEProblem",
    "PIController",
    "Solution",
    "SolveFailedError",
    "Status",
    "TrajectoryContext",
    "Tsit5",
    "UnsupportedBackend",
    "UnsupportedPrimitive",
    "Vern7",
    "solve",
    "value_and_grad",
]
__version__ = "0.1.0"
