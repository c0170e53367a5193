"""The main job on real data: a predator-prey model fitted from thousands of starts at once.

`run` does it and returns a `LynxHareFit`. `model` is the differential equation and its likelihood,
`search` the optimisation, `summary` what came out of it, `picture` the drawing. Optax and
Matplotlib are needed only when `run` is called.
"""

from pullback.demo.lynx_hare import run
from pullback.demo.summary import DistinctFit, LynxHareFit, Timing

__all__ = ["DistinctFit", "LynxHareFit", "Timing", "run"]
