"""Ordinary differential equations, one trajectory at a time, as lane programs with derivatives.

Contents: `field` (the user's vector field, traced), `spec` (what one solve is), `methods` and
`tableaus` (Runge-Kutta methods), `step` (one step), `controller` (step sizes), `mesh` (accept
and reject), `solve_program`, `tangent_program`, `adjoint_program` (the solve and its two
derivatives), `solve` (the entry, `solve_lanes`). Ensembles and the user's interface live above.
"""

from pullback.ode.controller import PIController
from pullback.ode.field import FlatField, TracedField, trace_vector_field
from pullback.ode.methods import (
    RK4,
    Bosh3,
    Dopri5,
    Euler,
    ExplicitRungeKutta,
    Heun,
    Midpoint,
    Tsit5,
    Vern7,
)
from pullback.ode.ravel import StateLayout
from pullback.ode.solve import solve_lanes
from pullback.ode.spec import DiscreteAdjoint, LaneSolution, SolveOperands, SolveSpec

__all__ = [
    "RK4",
    "Bosh3",
    "DiscreteAdjoint",
    "Dopri5",
    "Euler",
    "ExplicitRungeKutta",
    "FlatField",
    "Heun",
    "LaneSolution",
    "Midpoint",
    "PIController",
    "SolveOperands",
    "SolveSpec",
    "StateLayout",
    "TracedField",
    "Tsit5",
    "Vern7",
    "solve_lanes",
    "trace_vector_field",
]
