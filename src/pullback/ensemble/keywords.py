"""Keyword arguments that do not exist: say which one, and which one was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# What other solvers call it.
_ELSEWHERE = {
    "abstol": "atol",
    "reltol": "rtol",
    "alg": "method",
    "solver": "method",
    "ensemblealg": "executor",
    "backend": "executor=pb.EnsembleKernel(backend=...)",
    "ensemble": "problem",
    "n_traj": "trajectories",
    "dtmax": "dt_max",
    "dtmin": "dt_min",
    "dt0": "dt",
    "first_step": "dt",
    "max_step": "dt_max",
    "maxiters": "max_steps",
    "t_eval": "saveat",
    "save_everystep": 'saveat="steps"',
    "save_at": "saveat",
    "stepsize_controller": "controller",
    "sensealg": "adjoint",
    "callback": "events",
    "seed": "key",
    "rng": "key",
    "progress_meter": "progress",
}


def explain_unknown_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` answer an unknown keyword with the one that was probably meant."""
    known = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise TypeError(_text(function.__name__, name, known))
        return function(*args, **kwargs)

    return wrapped


def _text(function: str, name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    meant = _ELSEWHERE.get(name) or (close[0] if close else None)
    hint = f"did you mean `{meant}`?" if meant else f"the keywords are {', '.join(known)}."
    return f"`{function}` has no keyword `{name}`; {hint}"
