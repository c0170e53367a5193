"""Ensembles of trajectories and the functions a user calls.

`problem`, `ensemble_problem`, `executor`, `solution` are what the user sees; `solve` ties together
`members` (what differs between trajectories), `dtypes`, `times` and `options` (checks and casts),
`traced_field` and `run`. `gradient` and `probe` give gradients with their own error estimate. How
one trajectory is integrated does not belong here: see `pullback.ode`.
"""

from pullback.ensemble.ensemble_problem import EnsembleProblem, TrajectoryContext
from pullback.ensemble.event import Event, Events
from pullback.ensemble.executor import EnsembleArray, EnsembleKernel
from pullback.ensemble.gradient import GradStats, value_and_grad
from pullback.ensemble.interpolation import Interpolation
from pullback.ensemble.preset_event import PeriodicEvent, PresetTimes
from pullback.ensemble.problem import ODEProblem
from pullback.ensemble.quantiles import Quantiles, QuantileValues
from pullback.ensemble.reduction import Mean, MeanVar, MeanVariance, Reduction, Sum
from pullback.ensemble.restart import restart
from pullback.ensemble.sde_problem import SDEProblem
from pullback.ensemble.second_order_problem import SecondOrderODEProblem
from pullback.ensemble.solution import Solution
from pullback.ensemble.solve import solve
from pullback.ensemble.split_problem import SplitODEProblem
from pullback.ensemble.step_event import SteadyState, StepEvent
from pullback.ensemble.summary import Summary

__all__ = [
    "EnsembleArray",
    "EnsembleKernel",
    "EnsembleProblem",
    "Event",
    "Events",
    "GradStats",
    "Interpolation",
    "Mean",
    "MeanVar",
    "MeanVariance",
    "ODEProblem",
    "PeriodicEvent",
    "PresetTimes",
    "QuantileValues",
    "Quantiles",
    "Reduction",
    "SDEProblem",
    "SecondOrderODEProblem",
    "Solution",
    "SplitODEProblem",
    "SteadyState",
    "StepEvent",
    "Sum",
    "Summary",
    "TrajectoryContext",
    "restart",
    "solve",
    "value_and_grad",
]
