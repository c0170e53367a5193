"""Velocity Verlet: half a kick, a drift, half a kick."""

from pullback.ode.symplectic_tableau import make_symplectic_tableau

__all__ = ["VELOCITY_VERLET"]

VELOCITY_VERLET = make_symplectic_tableau(
    name="VelocityVerlet",
    kicks=["1/2", "1/2"],
    drifts=[1],
    order=2,
    dense_order=2,
    reference="[SABW82] the velocity form; [HLW06] section I.1.4",
)
