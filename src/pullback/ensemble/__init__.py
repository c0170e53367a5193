"""Ensembles of trajectories and the functions a user calls.

`problem`, `ensemble_problem`, `executor`, `solution` are what the user sees; `solve` ties together
`members` (what differs between trajectories), `dtypes`, `times` and `options` (checks and casts),
`traced_field` and `run`. `gradient` and `probe` give gradients with their own error estimate. How
one trajectory is integrated does not belong here: see `pullback.ode`.
"""

from pullback.ensemble.ensemble_problem import EnsembleProblem, TrajectoryContext
from pullback.ensemble.event import Event, Events, PresetTimes
from pullback.ensemble.executor import EnsembleArray, EnsembleKernel
from pullback.ensemble.gradient import GradStats, value_and_grad
from pullback.ensemble.problem import ODEProblem
from pullback.ensemble.sde_problem import SDEProblem
from pullback.ensemble.solution import Solution
from pullback.ensemble.solve import solve

__all__ = [
    "EnsembleArray",
    "EnsembleKernel",
    "EnsembleProblem",
    "Event",
    "Events",
    "GradStats",
    "ODEProblem",
    "PresetTimes",
    "SDEProblem",
    "Solution",
    "TrajectoryContext",
    "solve",
    "value_and_grad",
]
