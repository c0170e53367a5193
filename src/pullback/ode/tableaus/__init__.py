"""The explicit Runge-Kutta methods: one file a method, numbers only.

`TABLEAUS` maps the name of a method to its `ButcherTableau`. A new method is a new file here
and a line in the tuple below; the order conditions in the tests then apply to it by itself.
"""

from pullback.ode.tableau import ButcherTableau
from pullback.ode.tableaus.bosh3 import BOSH3
from pullback.ode.tableaus.dopri5 import DOPRI5
from pullback.ode.tableaus.dopri8 import DOPRI8
from pullback.ode.tableaus.euler import EULER
from pullback.ode.tableaus.heun import HEUN
from pullback.ode.tableaus.midpoint import MIDPOINT
from pullback.ode.tableaus.rk4 import RK4
from pullback.ode.tableaus.tsit5 import TSIT5
from pullback.ode.tableaus.vern7 import VERN7
from pullback.ode.tableaus.vern9 import VERN9

__all__ = [
    "BOSH3",
    "DOPRI5",
    "DOPRI8",
    "EULER",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "TABLEAUS",
    "TSIT5",
    "VERN7",
    "VERN9",
]

TABLEAUS: dict[str, ButcherTableau] = {
    tableau.name: tableau
    for tableau in (EULER, HEUN, MIDPOINT, RK4, BOSH3, TSIT5, DOPRI5, VERN7, DOPRI8, VERN9)
}
