"""The coefficients of the methods: one file a method, numbers only.

`TABLEAUS` maps the name of an explicit method to its `ButcherTableau`, `DIRK_TABLEAUS` and
`ROSENBROCK_TABLEAUS` those of the stiff ones to theirs, `ADDITIVE_TABLEAUS` and
`SYMPLECTIC_TABLEAUS` those for split problems and for ones of second order. A new method is a new
file here and a line in one of the tuples below; the order conditions in the tests then apply to it
by itself.
"""

from pullback.ode.additive_tableau import AdditiveTableau
from pullback.ode.dirk_tableau import DirkTableau
from pullback.ode.rosenbrock_tableau import RosenbrockTableau
from pullback.ode.symplectic_tableau import SymplecticTableau
from pullback.ode.tableau import ButcherTableau
from pullback.ode.tableaus.bosh3 import BOSH3
from pullback.ode.tableaus.dopri5 import DOPRI5
from pullback.ode.tableaus.dopri8 import DOPRI8
from pullback.ode.tableaus.euler import EULER
from pullback.ode.tableaus.heun import HEUN
from pullback.ode.tableaus.implicit_euler import IMPLICIT_EULER
from pullback.ode.tableaus.kencarp3 import KENCARP3
from pullback.ode.tableaus.kencarp4 import KENCARP4
from pullback.ode.tableaus.kvaerno3 import KVAERNO3
from pullback.ode.tableaus.kvaerno5 import KVAERNO5
from pullback.ode.tableaus.midpoint import MIDPOINT
from pullback.ode.tableaus.rk4 import RK4
from pullback.ode.tableaus.rodas4 import RODAS4
from pullback.ode.tableaus.rodas5p import RODAS5P
from pullback.ode.tableaus.rosenbrock23 import ROSENBROCK23
from pullback.ode.tableaus.trapezoid import TRAPEZOID
from pullback.ode.tableaus.trbdf2 import TRBDF2
from pullback.ode.tableaus.tsit5 import TSIT5
from pullback.ode.tableaus.velocity_verlet import VELOCITY_VERLET
from pullback.ode.tableaus.vern7 import VERN7
from pullback.ode.tableaus.vern9 import VERN9
from pullback.ode.tableaus.yoshida4 import YOSHIDA4

__all__ = [
    "ADDITIVE_TABLEAUS",
    "BOSH3",
    "DIRK_TABLEAUS",
    "DOPRI5",
    "DOPRI8",
    "EULER",
    "HEUN",
    "IMPLICIT_EULER",
    "KENCARP3",
    "KENCARP4",
    "KVAERNO3",
    "KVAERNO5",
    "MIDPOINT",
    "RK4",
    "RODAS4",
    "RODAS5P",
    "ROSENBROCK23",
    "ROSENBROCK_TABLEAUS",
    "SYMPLECTIC_TABLEAUS",
    "TABLEAUS",
    "TRAPEZOID",
    "TRBDF2",
    "TSIT5",
    "VELOCITY_VERLET",
    "VERN7",
    "VERN9",
    "YOSHIDA4",
]

TABLEAUS: dict[str, ButcherTableau] = {
    tableau.name: tableau
    for tableau in (EULER, HEUN, MIDPOINT, RK4, BOSH3, TSIT5, DOPRI5, VERN7, DOPRI8, VERN9)
}

DIRK_TABLEAUS: dict[str, DirkTableau] = {
    tableau.name: tableau for tableau in (IMPLICIT_EULER, TRAPEZOID, TRBDF2, KVAERNO3, KVAERNO5)
}

ROSENBROCK_TABLEAUS: dict[str, RosenbrockTableau] = {
    tableau.name: tableau for tableau in (ROSENBROCK23, RODAS4, RODAS5P)
}

ADDITIVE_TABLEAUS: dict[str, AdditiveTableau] = {
    tableau.name: tableau for tableau in (KENCARP3, KENCARP4)
}

SYMPLECTIC_TABLEAUS: dict[str, SymplecticTableau] = {
    tableau.name: tableau for tableau in (VELOCITY_VERLET, YOSHIDA4)
}
