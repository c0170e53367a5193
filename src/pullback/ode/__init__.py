"""Ordinary differential equations, one trajectory at a time, as lane programs with derivatives.

Contents: `field` (the user's vector field, traced), `spec` (what one solve is), `methods` and
`tableaus` (Runge-Kutta methods), `step` (one step), `controller` (step sizes), `mesh` (accept
and reject), `solve_program`, `tangent_program`, `adjoint_program` (the solve and its two
derivatives), `solve` (the entry, `solve_lanes`). Ensembles and the user's interface live above.
"""

from pullback.ode.controller import PIController
from pullback.ode.dirk import (
    TRBDF2,
    DiagonallyImplicit,
    ImplicitEuler,
    Kvaerno3,
    Kvaerno5,
    Trapezoid,
)
from pullback.ode.field import FlatField, TracedField, trace_vector_field
from pullback.ode.mass import MassMatrix, make_mass_matrix
from pullback.ode.method import Method
from pullback.ode.methods import (
    RK4,
    Bosh3,
    Dopri5,
    Dopri8,
    Euler,
    ExplicitRungeKutta,
    Heun,
    Midpoint,
    Tsit5,
    Vern7,
    Vern9,
)
from pullback.ode.ravel import StateLayout
from pullback.ode.rosenbrock import Rodas4, Rodas5P, Rosenbrock, Rosenbrock23
from pullback.ode.solve import solve_lanes
from pullback.ode.spec import DiscreteAdjoint, LaneSolution, SolveOperands, SolveSpec

__all__ = [
    "RK4",
    "TRBDF2",
    "Bosh3",
    "DiagonallyImplicit",
    "DiscreteAdjoint",
    "Dopri5",
    "Dopri8",
    "Euler",
    "ExplicitRungeKutta",
    "FlatField",
    "Heun",
    "ImplicitEuler",
    "Kvaerno3",
    "Kvaerno5",
    "LaneSolution",
    "MassMatrix",
    "Method",
    "Midpoint",
    "PIController",
    "Rodas4",
    "Rodas5P",
    "Rosenbrock",
    "Rosenbrock23",
    "SolveOperands",
    "SolveSpec",
    "StateLayout",
    "TracedField",
    "Trapezoid",
    "Tsit5",
    "Vern7",
    "Vern9",
    "make_mass_matrix",
    "solve_lanes",
    "trace_vector_field",
]
