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
from pullback.ode.events import EventSpec, PresetEvent, RootEvent
from pullback.ode.field import FlatField, TracedField, trace_vector_field
from pullback.ode.flat_function import FlatFunction, trace_function
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
from pullback.ode.noise import NOISE_KINDS, NoiseKind, NoiseSpec
from pullback.ode.noise_trace import TracedNoise, trace_stochastic
from pullback.ode.ravel import StateLayout
from pullback.ode.rosenbrock import Rodas4, Rodas5P, Rosenbrock, Rosenbrock23
from pullback.ode.sde_methods import SIEA, EulerMaruyama, Milstein, StratonovichHeun
from pullback.ode.solve import solve_lanes
from pullback.ode.spec import DiscreteAdjoint, LaneSolution, SolveOperands, SolveSpec
from pullback.ode.sri import SRA1, SRIW1
from pullback.ode.stochastic import StochasticMethod

__all__ = [
    "NOISE_KINDS",
    "RK4",
    "SIEA",
    "SRA1",
    "SRIW1",
    "TRBDF2",
    "Bosh3",
    "DiagonallyImplicit",
    "DiscreteAdjoint",
    "Dopri5",
    "Dopri8",
    "Euler",
    "EulerMaruyama",
    "EventSpec",
    "ExplicitRungeKutta",
    "FlatField",
    "FlatFunction",
    "Heun",
    "ImplicitEuler",
    "Kvaerno3",
    "Kvaerno5",
    "LaneSolution",
    "MassMatrix",
    "Method",
    "Midpoint",
    "Milstein",
    "NoiseKind",
    "NoiseSpec",
    "PIController",
    "PresetEvent",
    "Rodas4",
    "Rodas5P",
    "RootEvent",
    "Rosenbrock",
    "Rosenbrock23",
    "SolveOperands",
    "SolveSpec",
    "StateLayout",
    "StochasticMethod",
    "StratonovichHeun",
    "TracedField",
    "TracedNoise",
    "Trapezoid",
    "Tsit5",
    "Vern7",
    "Vern9",
    "make_mass_matrix",
    "solve_lanes",
    "trace_function",
    "trace_stochastic",
    "trace_vector_field",
]
