"""Small real data sets that the demo, the examples and the tests fit.

`load_lynx_hare` (two interacting populations, 21 years) and `load_theophylline` (a drug in the
blood of 12 people). The files lie beside this module; downloading anything does not belong here.
"""

from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LynxHare", "Theophylline", "load_lynx_hare", "load_theophylline"]


class LynxHare(NamedTuple):
    """Pelts that trappers sold to the Hudson's Bay Company, one row a year.

    Attributes:
        year: Calendar years, 1900 to 1920.
        hare: Snowshoe hare pelts of that year.
        lynx: Canada lynx pelts of that year.

    Shapes:
        Every field is `(21,)`, float64.

    Units:
        `year` in years; `hare` and `lynx` in thousands of pelts.
    """

    year: NDArray[np.float64]
    hare: NDArray[np.float64]
    lynx: NDArray[np.float64]


class Theophylline(NamedTuple):
    """Theophylline in the serum of 12 people after one oral dose, one row a person.

    Attributes:
        subject: The number of each person, 1 to 12.
        weight: Body weight.
        dose: Dose per body weight.
        time: Time of each sample since the dose; the times differ from person to person.
        concentration: Theophylline in the serum at those times.

    Shapes:
        `subject`, `weight` and `dose` are `(12,)`; `time` and `concentration` are `(12, 11)`.
        `subject` is an integer array, the others are float64.

    Units:
        `weight` in kg, `dose` in mg/kg, `time` in h, `concentration` in mg/L.
    """

    subject: NDArray[np.int64]
    weight: NDArray[np.float64]
    dose: NDArray[np.float64]
    time: NDArray[np.float64]
    concentration: NDArray[np.float64]


def load_lynx_hare() -> LynxHare:
    """Load the yearly counts of hare and lynx pelts, 1900 to 1920.

    Records of the Hudson's Bay Company, in the tabulation of P. Howard's course notes (2009) that
    Stan's case study on the Lotka-Volterra equations uses too. Tabulations differ: the last lynx
    value is 8.6 here and 8.1 in some others.

    Example:
        >>> data = load_lynx_hare()
        >>> print(int(data.year[data.lynx.argmax()]), float(data.lynx.max()))
        1904 59.4
    """
    return LynxHare(*_read("lynx_hare.csv").T)


def load_theophylline() -> Theophylline:
    """Load the serum concentrations of theophylline of 12 people, 11 samples each.

    The data of A. J. Boeckmann, L. B. Sheiner and S. L. Beal, NONMEM Users Guide part V (1994),
    which R ships as `Theoph`.

    Example:
        >>> data = load_theophylline()
        >>> print(data.time.shape, float(data.concentration[0].max()))
        (12, 11) 10.5
    """
    table = _read("theophylline.csv")
    subject, first, n_samples = np.unique(table[:, 0], return_index=True, return_counts=True)
    assert len(set(n_samples.tolist())) == 1, "every subject has the same number of samples"
    _, weight, dose, _, _ = table[first].T
    return Theophylline(
        subject=subject.astype(np.int64),
        weight=weight,
        dose=dose,
        time=table[:, 3].reshape(len(subject), -1),
        concentration=table[:, 4].reshape(len(subject), -1),
    )


def _read(name: str) -> NDArray[np.float64]:
    """The numbers of a packaged CSV file, without its header line."""
    with resources.files("pullback.data").joinpath(name).open() as lines:
        return np.loadtxt(lines, delimiter=",", skiprows=1, ndmin=2)
