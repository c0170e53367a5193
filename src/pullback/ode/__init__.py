"""Ordinary differential equations, one trajectory at a time, as lane programs with derivatives.

Contents: `field` (the user's vector field, traced), `spec` (what one solve is), `methods` and
`tableaus` (Runge-Kutta methods), `step` (one step), `controller` (step sizes), `mesh` (accept
and reject), `solve_program`, `tangent_program`, `adjoint_program` (the solve and its two
derivatives), `solve` (the entry, `solve_lanes`). Ensembles and the user's interface live above.
"""

from pullback.ode.additive import AdditiveRungeKutta, KenCarp3, KenCarp4
from pullback.ode.auto_switch import AutoSwitch
from pullback.ode.controller import PIController, PIDController, StepController
from pullback.ode.dense import (
    DENSE_SLACK,
    StepEnds,
    dense_slopes,
    dense_states,
    started,
)
from pullback.ode.dirk import (
    TRBDF2,
    DiagonallyImplicit,
    ImplicitEuler,
    Kvaerno3,
    Kvaerno5,
    Trapezoid,
)
from pullback.ode.event_times import ListedTimes, PeriodicTimes
from pullback.ode.events import EventSpec, PresetEvent, RootEvent
from pullback.ode.field import FlatField, TracedField, trace_vector_field
from pullback.ode.flat_function import FlatFunction, trace_function
from pullback.ode.given_jacobian import trace_jacobian
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
from pullback.ode.second_order import trace_second_order
from pullback.ode.solve import solve_lanes
from pullback.ode.spec import DiscreteAdjoint, LaneSolution, SolveOperands, SolveSpec
from pullback.ode.split import SplitParts, trace_split
from pullback.ode.sri import SRA1, SRIW1
from pullback.ode.step_events import Steadiness, StepEvent
from pullback.ode.stochastic import StochasticMethod
from pullback.ode.symplectic import Symplectic, VelocityVerlet, Yoshida4

__all__ = [
    "DENSE_SLACK",
    "NOISE_KINDS",
    "RK4",
    "SIEA",
    "SRA1",
    "SRIW1",
    "TRBDF2",
    "AdditiveRungeKutta",
    "AutoSwitch",
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
    "KenCarp3",
    "KenCarp4",
    "Kvaerno3",
    "Kvaerno5",
    "LaneSolution",
    "ListedTimes",
    "MassMatrix",
    "Method",
    "Midpoint",
    "Milstein",
    "NoiseKind",
    "NoiseSpec",
    "PIController",
    "PIDController",
    "PeriodicTimes",
    "PresetEvent",
    "Rodas4",
    "Rodas5P",
    "RootEvent",
    "Rosenbrock",
    "Rosenbrock23",
    "SolveOperands",
    "SolveSpec",
    "SplitParts",
    "StateLayout",
    "Steadiness",
    "StepController",
    "StepEnds",
    "StepEvent",
    "StochasticMethod",
    "StratonovichHeun",
    "Symplectic",
    "TracedField",
    "TracedNoise",
    "Trapezoid",
    "Tsit5",
    "VelocityVerlet",
    "Vern7",
    "Vern9",
    "Yoshida4",
    "dense_slopes",
    "dense_states",
    "make_mass_matrix",
    "solve_lanes",
    "started",
    "trace_function",
    "trace_jacobian",
    "trace_second_order",
    "trace_split",
    "trace_stochastic",
    "trace_vector_field",
]
