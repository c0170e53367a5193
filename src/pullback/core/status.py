"""Per-trajectory outcome codes.

A compiled lane never raises: each trajectory carries one `Status` code, which the caller reads from
`sol.status` or turns into one exception at the end.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["FIRST_FAILURE", "Status"]

FIRST_FAILURE = 10


class Status(IntEnum):
    """What became of a trajectory; codes from `FIRST_FAILURE` on are failures."""

    success = 0
    terminated = 1
    max_steps_reached = 10
    dt_underflow = 11
    non_finite = 12
    save_overflow = 13
    newton_diverged = 14
    looks_stiff = 15
    event_chatter = 16
    zeno = 17
    inconsistent_initial = 18
    singular_dae = 19
    gradient_unresolved = 20
    invalid_input = 21
    left_domain = 22

    @property
    def is_failure(self) -> bool:
        """True for codes that mean the end of `t_span` was not reached as asked."""
        return self.value >= FIRST_FAILURE

    @property
    def message(self) -> str:
        """One clause that says what happened."""
        return _TEXT[self][0]

    @property
    def advice(self) -> str:
        """One clause that says what to change; empty where there is nothing to change."""
        return _TEXT[self][1]


_TEXT: dict[Status, tuple[str, str]] = {
    Status.success: ("the end of `t_span` was reached", ""),
    Status.terminated: ("a terminating event ended the trajectory", ""),
    Status.max_steps_reached: (
        "`max_steps` attempts were used before the end of `t_span`",
        "raise `max_steps`, loosen `rtol` and `atol`, or use a stiff method",
    ),
    Status.dt_underflow: (
        "the step size fell below `dt_min`, or below what the floating-point type can resolve at "
        "this time",
        "look for a singularity of the vector field at `t_end`, loosen the tolerances, "
        "or use a stiff method",
    ),
    Status.non_finite: (
        "the vector field or the state became NaN or infinite, or the condition of an event NaN",
        "check them at `t_end`, `y_end` (division by zero, root or logarithm of a "
        "negative number, overflow)",
    ),
    Status.save_overflow: (
        "more steps were accepted than `max_saves` rows can hold",
        "raise `max_saves` or save at fixed times",
    ),
    Status.newton_diverged: (
        "the equations of an implicit step could not be solved",
        "lower `dt` or loosen the tolerances; a Rosenbrock method has no iteration to converge",
    ),
    Status.looks_stiff: (
        "the step size is held down by stability rather than by accuracy",
        "use a method for stiff problems, such as pb.Rodas5P(), or pb.AutoSwitch()",
    ),
    Status.event_chatter: (
        "the same event fired again and again without progress in time",
        "let `affect` move the state away from the event's surface",
    ),
    Status.zeno: (
        "events accumulate at a finite time",
        "stop the trajectory before the accumulation point or regularise the model",
    ),
    Status.inconsistent_initial: (
        "no consistent initial state of the differential-algebraic system was found",
        "give a `y0` closer to the constraints",
    ),
    Status.singular_dae: (
        "the algebraic equations are singular: the index is larger than one",
        "reduce the index of the system",
    ),
    Status.gradient_unresolved: (
        "the gradient's estimated error is large compared with the gradient",
        "tighten `rtol` and `atol`, or lower `slack` of the adjoint",
    ),
    Status.invalid_input: (
        "`t_span`, `saveat`, `dt`, a tolerance or a time of events is NaN, unsorted, outside its "
        "range or negative",
        "check the values given for this trajectory",
    ),
    Status.left_domain: (
        "no step was short enough to stay where `is_valid` holds",
        "check whether the exact solution stays there; with fixed steps lower `dt`",
    ),
}
