"""A thermostat: a switch with hysteresis, and how its power depends on the set point.

A room loses heat to the outside; a heater switches on when the room is too cold and off when it is
warm enough. Whether it is on is a component of the state that only the two events change. The
cycle has a closed form: its period, the mean power, and the derivative of that by the set point.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import pullback as pb

PARAMETERS = {"loss": 0.2, "power": 4.0, "outside": 5.0, "set_point": 19.0, "width": 1.0}


class Result(NamedTuple):
    """The cycle of the thermostat.

    Attributes:
        period: time from one switching on to the next [h].
        exact_period: the same from the closed form.
        power: mean power over one cycle, relative to the heater's.
        slope: its derivative by the set point.
        exact_slope: the same from the closed form.
    """

    period: float
    exact_period: float
    power: float
    slope: float
    exact_slope: float


def room(t, y, p):
    """Return the rates of change: temperature, heater (only events change it), time it was on."""
    heating = p["power"] * y["heater"]
    cooling = p["loss"] * (y["temperature"] - p["outside"])
    return {"temperature": heating - cooling, "heater": 0.0 * y["heater"], "on": y["heater"]}


def switched(value: float):
    """Return the affect that switches the heater."""

    def affect(t, y, p):
        return y | {"heater": jnp.full_like(y["heater"], value)}

    return affect


EVENTS = (
    pb.Event(
        lambda t, y, p: y["temperature"] - (p["set_point"] - p["width"]),
        switched(1.0),
        direction=-1,
    ),
    pb.Event(
        lambda t, y, p: y["temperature"] - (p["set_point"] + p["width"]),
        switched(0.0),
        direction=1,
    ),
)


def simulate(p, t1):
    """Return the solution that begins where the heater has just been switched on."""
    start = {"temperature": p["set_point"] - p["width"], "heater": 1.0, "on": 0.0}
    problem = pb.ODEProblem(room, start, (0.0, t1), p, events=EVENTS)
    return pb.solve(problem, pb.Tsit5(), rtol=1e-9, atol=1e-9)


def mean_power(p):
    """Return the share of a cycle for which the heater is on, from the times of its switching."""
    times = simulate(p, 10.0).events.t  # off, on, off, on, ...
    return (times[2] - times[1]) / (times[2] - times[0])


def exact(p):
    """Return the period, and the share of it for which the heater is on."""
    low, high = p["set_point"] - p["width"], p["set_point"] + p["width"]
    warm = p["outside"] + p["power"] / p["loss"]  # where the room ends with the heater on
    on = jnp.log((warm - low) / (warm - high)) / p["loss"]
    off = jnp.log((high - p["outside"]) / (low - p["outside"])) / p["loss"]
    return on + off, on / (on + off)


def main() -> Result:
    """Simulate a few cycles and differentiate the mean power."""
    jax.config.update("jax_enable_x64", True)
    times = simulate(PARAMETERS, 10.0).events.t
    power, slope = jax.value_and_grad(mean_power)(PARAMETERS)
    exact_slope = jax.grad(lambda p: exact(p)[1])(PARAMETERS)["set_point"]
    result = Result(
        period=float(times[2] - times[0]),
        exact_period=float(exact(PARAMETERS)[0]),
        power=float(power),
        slope=float(slope["set_point"]),
        exact_slope=float(exact_slope),
    )
    print(f"period of the cycle     {result.period:.8f} h   exact {result.exact_period:.8f} h")
    print(f"share of time heated    {result.power:.8f}     exact {exact(PARAMETERS)[1]:.8f}")
    print(f"its slope by set point  {result.slope:.8f} /K  exact {result.exact_slope:.8f} /K")
    return result


if __name__ == "__main__":
    main()
