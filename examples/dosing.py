"""Find the dose that keeps a drug at its target, for twelve people, by gradients through doses.

The rates of absorption and elimination of theophylline are fitted to one dose in each of twelve
people (`theophylline.py` shows that fit at length; here it is Gauss-Newton with derivatives by
forward mode). Then each of them takes a dose every few hours: a periodic event adds it to the gut.
A third component of the state collects the concentration, so the mean over the last interval is
known, and Newton's method finds the dose for which it is the target. By superposition the mean has
a closed form.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback.data import Theophylline, load_theophylline

START = (1.5, 0.08, 0.5)  # ka [1/h], ke [1/h], V [L/kg]
TARGET = 10.0  # mg/L
TOLERANCE = 1e-9


class Result(NamedTuple):
    """A regimen for each person.

    Attributes:
        rates: ka [1/h], ke [1/h] and V [L/kg], `(subject, 3)`.
        residual: root mean squared residual of the fit [mg/L], `(subject,)`.
        dose: the dose of every interval [mg/kg], `(subject,)`.
        exact_dose: the same from the closed form.
        peak: largest concentration in the last interval [mg/L].
        trough: smallest one.
    """

    rates: np.ndarray
    residual: np.ndarray
    dose: np.ndarray
    exact_dose: np.ndarray
    peak: np.ndarray
    trough: np.ndarray


def compartment(t, amounts, p):
    """Return the rates of change: drug in gut and blood [mg/kg], area under the curve [mg h/L]."""
    absorbed = p["ka"] * amounts["gut"]
    return {
        "gut": -absorbed,
        "blood": absorbed - p["ke"] * amounts["blood"],
        "area": amounts["blood"] / p["volume"],
    }


def swallow(t, amounts, p):
    """Return the amounts behind a dose."""
    return amounts | {"gut": amounts["gut"] + p["dose"]}


def course(p, times, events=()):
    """Return the solution of one person who swallows the first dose at t = 0."""
    start = {"gut": p["dose"], "blood": jnp.zeros_like(p["dose"]), "area": 0.0}
    problem = pb.ODEProblem(compartment, start, (0.0, times[-1]), p, events=events)
    return pb.solve(problem, pb.Tsit5(), saveat=times, rtol=TOLERANCE, atol=TOLERANCE)


def fit(data: Theophylline, n_updates: int):
    """Return the logarithms of ka, ke and V of each person, and the residuals of the samples."""

    def residual(logs, dose, times, seen):
        ka, ke, volume = jnp.exp(logs)
        p = {"ka": ka, "ke": ke, "volume": volume, "dose": dose}
        return course(p, times).y["blood"] / volume - seen

    def update(logs, *sample):
        r, jacobian = residual(logs, *sample), jax.jacfwd(residual)(logs, *sample)
        step = jnp.linalg.lstsq(jacobian, -r)[0]
        return logs + step * jnp.minimum(1.0, 0.5 / jnp.max(jnp.abs(step)))

    samples = (data.dose, data.time, data.concentration)
    logs = jnp.log(jnp.tile(jnp.array(START), (len(data.dose), 1)))
    step = jax.jit(jax.vmap(update))
    for _ in range(n_updates):
        logs = step(logs, *samples)
    return logs, jax.vmap(residual)(logs, *samples)


def regimen(logs, interval: float, n_doses: int):
    """Return the dose [mg/kg] of one person, and the concentrations of the last interval."""
    ka, ke, volume = jnp.exp(logs)
    every = pb.PeriodicEvent(interval, swallow)
    times = interval * jnp.linspace(n_doses - 1.0, float(n_doses), 49)

    def concentrations(dose):
        p = {"ka": ka, "ke": ke, "volume": volume, "dose": dose}
        # The dose at the very end belongs to the next interval.
        sol = course(p, times.at[-1].add(-1e-6), [every])
        return (sol.y["area"][-1] - sol.y["area"][0]) / interval, sol.y["blood"] / volume

    # The equations are linear in the dose: one step of Newton's method is exact.
    guess = jnp.ones_like(ka)
    (mean, _), slope = jax.value_and_grad(concentrations, has_aux=True)(guess)
    dose = guess + (TARGET - mean) / slope
    return dose, concentrations(dose)[1]


def exact_dose(logs, interval: float, n_doses: int):
    """Return the dose from the superposition of single doses."""
    ka, ke, volume = (np.exp(np.asarray(logs))[:, i] for i in range(3))

    def area(rate, t):  # of exp(-rate s), s from 0 to t
        return (1.0 - np.exp(-rate * t)) / rate

    def until(t):  # of the concentration of one dose of 1 mg/kg
        return ka / (volume * (ka - ke)) * (area(ke, t) - area(ka, t))

    ages = interval * np.arange(n_doses)
    total = sum(until(age + interval) - until(age) for age in ages)
    return TARGET * interval / total


def main(
    n_subjects: int = 12, interval: float = 12.0, n_doses: int = 10, n_updates: int = 30
) -> Result:
    """Fit the rates, find the doses, and compare them with the closed form."""
    jax.config.update("jax_enable_x64", True)
    data = Theophylline(*(column[:n_subjects] for column in load_theophylline()))
    logs, residuals = fit(data, n_updates)
    dose, curves = jax.jit(jax.vmap(lambda x: regimen(x, interval, n_doses)))(logs)
    result = Result(
        rates=np.exp(np.asarray(logs)),
        residual=np.sqrt(np.mean(np.asarray(residuals) ** 2, axis=1)),
        dose=np.asarray(dose),
        exact_dose=exact_dose(logs, interval, n_doses),
        peak=np.asarray(curves.max(axis=1)),
        trough=np.asarray(curves.min(axis=1)),
    )
    print(f"a dose every {interval:g} h for a mean of {TARGET:g} mg/L in interval {n_doses}")
    heads = ("subject", "ka", "ke", "V", "dose", "exact", "trough", "peak")
    print("".join(f"{head:>10}" for head in heads))
    for i in np.argsort(data.subject):
        row = (*result.rates[i], result.dose[i], result.exact_dose[i])
        row = (*row, result.trough[i], result.peak[i])
        print(f"{data.subject[i]:10d}" + "".join(f"{x:10.4f}" for x in row))
    return result


if __name__ == "__main__":
    main()
