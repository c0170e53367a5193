"""Fit how a drug is absorbed and eliminated to twelve people at once.

Each person swallowed a dose of theophylline, and eleven blood samples were taken, at other times
for each. One compartment with first-order absorption has three parameters a person: the rates ka
of absorption and ke of elimination, and the volume V that the drug is distributed in. Every
person is a trajectory with a dose, sampling times and an end of its own; Adam finds the
neighbourhood of the fit and L-BFGS the fit. The equation has a closed solution, so the
trajectories can be checked.

Needs the extra `examples` (Optax, and Matplotlib for the picture).
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import pullback as pb
from pullback.data import Theophylline, load_theophylline
from pullback.demo.picture import import_matplotlib

START = {"ka": 1.5, "ke": 0.1, "volume": 0.5}  # the same for everyone
TOLERANCE = 1e-8


class Rates(NamedTuple):
    """Logarithms of the parameters of each person, `(subject,)`: positive whatever is fitted.

    Attributes:
        ka: absorption rate [1/h].
        ke: elimination rate [1/h].
        volume: of distribution [L/kg].
    """

    ka: jax.Array
    ke: jax.Array
    volume: jax.Array


class Result(NamedTuple):
    """The fit of each person and how exact the trajectories are.

    Attributes:
        ka: absorption rate [1/h], `(subject,)`.
        ke: elimination rate [1/h].
        clearance: volume cleared of the drug per time, ke V [L/h/kg].
        volume: of distribution [L/kg].
        residual: root mean squared residual of each person's samples [mg/L].
        gradient_norm: of the sum of squares, at the end.
        closed_form_error: largest difference of the trajectories from the closed solution [mg/L].
    """

    ka: np.ndarray
    ke: np.ndarray
    clearance: np.ndarray
    volume: np.ndarray
    residual: np.ndarray
    gradient_norm: float
    closed_form_error: float


def compartment(t, amounts, rates):
    """Return the rates of change of the drug in the gut and in the blood, both in mg/kg."""
    gut, blood = amounts["gut"], amounts["blood"]
    absorbed = rates.ka * gut
    return {"gut": -absorbed, "blood": absorbed - rates.ke * blood}


def concentrations(log_rates: Rates, data: Theophylline, times):
    """Return the concentration in each person's blood at `times`, `(subject, time)`, in mg/L."""
    rates = jax.tree.map(jnp.exp, log_rates)
    nothing = np.zeros_like(data.dose)
    one = pb.ODEProblem(
        compartment, {"gut": 1.0, "blood": 0.0}, (0.0, 1.0), jax.tree.map(lambda x: x[0], rates)
    )
    people = pb.EnsembleProblem(
        one,
        y0={"gut": data.dose, "blood": nothing},
        params=rates,
        t_span=(0.0, times[:, -1]),
    )
    sol = pb.solve(
        people, pb.Tsit5(), pb.EnsembleKernel(), trajectories=len(data.dose), saveat=times,
        rtol=TOLERANCE, atol=TOLERANCE,
    )  # fmt: skip
    return sol.y["blood"] / rates.volume[:, None]


def closed_form(log_rates: Rates, data: Theophylline, times):
    """Return what `concentrations` should."""
    ka, ke, volume = (np.exp(np.asarray(x))[:, None] for x in log_rates)
    scale = data.dose[:, None] / volume * ka / (ka - ke)
    return scale * (np.exp(-ke * times) - np.exp(-ka * times))


def fit(data: Theophylline, n_adam: int, n_lbfgs: int) -> tuple[Rates, float]:
    """Return the fitted rates and the norm of the gradient there."""

    def squares(log_rates: Rates):
        residual = concentrations(log_rates, data, data.time) - data.concentration
        return jnp.sum(residual**2)

    start = Rates(*(jnp.full(len(data.dose), np.log(START[name])) for name in Rates._fields))
    rates = _minimise(squares, start, optax.adam(optax.cosine_decay_schedule(0.1, n_adam)), n_adam)
    rates = _minimise(squares, rates, optax.lbfgs(), n_lbfgs)
    return rates, float(optax.tree.norm(jax.grad(squares)(rates)))


def _minimise(loss, params, optimizer, n_updates: int):
    value_and_grad = jax.value_and_grad(loss)
    takes_more = isinstance(optimizer, optax.GradientTransformationExtraArgs)

    @jax.jit
    def run(params):
        def body(_, carry):
            params, state = carry
            value, grad = value_and_grad(params)
            more = {"value": value, "grad": grad, "value_fn": loss} if takes_more else {}
            changes, state = optimizer.update(grad, state, params, **more)
            return optax.apply_updates(params, changes), state

        return jax.lax.fori_loop(0, n_updates, body, (params, optimizer.init(params)))[0]

    return run(params)


def report(data: Theophylline, result: Result) -> None:
    print("Theophylline in twelve people: one compartment, first-order absorption")
    heads = ("subject", "dose", "ka", "ke", "CL", "V", "half-life", "residual")
    units = ("", "[mg/kg]", "[1/h]", "[1/h]", "[L/h/kg]", "[L/kg]", "[h]", "[mg/L]")
    for cells in (heads, units):
        print("".join(f"{cell:>10}" for cell in cells))
    half_life = np.log(2) / result.ke
    columns = (data.dose, result.ka, result.ke, result.clearance, result.volume, half_life)
    for i in np.argsort(data.subject):
        values = "".join(f"{column[i]:10.4g}" for column in columns)
        print(f"{data.subject[i]:10d}{values}{result.residual[i]:10.3f}")
    print(
        f"{'median':>10}"
        + "".join(f"{np.median(column):10.4g}" for column in columns)
        + f"{np.median(result.residual):10.3f}"
    )
    print(f"largest difference from the closed solution: {result.closed_form_error:.1e} mg/L")
    print(f"norm of the gradient at the fit: {result.gradient_norm:.1e}")


def draw(path: Path, data: Theophylline, times, curves, result: Result) -> None:
    figure_class, style = import_matplotlib()
    settings = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9.5}
    with style(settings):
        figure = figure_class(figsize=(12, 7.6), dpi=150, layout="constrained")
        axes = figure.subplots(3, 4, sharex=True, sharey=True)
        for i, place in enumerate(axes.flat):
            if i >= len(data.subject):
                place.set_axis_off()
                continue
            place.plot(times[i], curves[i], color="#0072B2", linewidth=2)
            place.plot(
                data.time[i], data.concentration[i], "o", color="#D55E00", markersize=5.5,
                markeredgecolor="white", markeredgewidth=0.8,
            )  # fmt: skip
            place.set_title(f"subject {data.subject[i]}", loc="left", weight="bold", fontsize=10.5)
            place.text(
                0.98, 0.97, f"{data.dose[i]:.2f} mg/kg\n$k_a$ = {result.ka[i]:.2f}/h\n"
                f"$k_e$ = {result.ke[i]:.3f}/h", transform=place.transAxes, ha="right", va="top",
                color="#444444",
            )  # fmt: skip
            place.grid(color="#E8E8E8", linewidth=0.7)
            place.set(xlim=(0, 25), ylim=(0, 13), xticks=(0, 6, 12, 18, 24))
        figure.supxlabel("hours since the dose")
        figure.supylabel("theophylline in the blood [mg/L]")
        figure.suptitle(
            "Theophylline in twelve people: samples and fitted curves", x=0.01, ha="left",
            weight="bold", fontsize=14,
        )  # fmt: skip
        figure.savefig(path)


def main(
    n_subjects: int = 12,
    n_adam: int = 300,
    n_lbfgs: int = 60,
    picture: str | Path | None = "theophylline.png",
) -> Result:
    data = Theophylline(*(column[:n_subjects] for column in load_theophylline()))
    with jax.enable_x64(True):
        rates, gradient_norm = fit(data, n_adam, n_lbfgs)
        found = np.asarray(concentrations(rates, data, data.time))
        ka, ke, volume = (np.exp(np.asarray(x)) for x in rates)
        result = Result(
            ka=ka,
            ke=ke,
            clearance=ke * volume,
            volume=volume,
            residual=np.sqrt(np.mean((found - data.concentration) ** 2, axis=1)),
            gradient_norm=gradient_norm,
            closed_form_error=float(np.max(np.abs(found - closed_form(rates, data, data.time)))),
        )
        report(data, result)
        if picture is not None:
            times = np.linspace(0.0, 1.0, 201) * data.time[:, -1:]
            curves = np.asarray(concentrations(rates, data, times))
            draw(Path(picture), data, times, curves, result)
            print(f"Picture: {picture}")
    return result


if __name__ == "__main__":
    main()
