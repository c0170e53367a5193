"""Fit a predator-prey model to real data from 4096 random starts at once.

The same as `pullback demo`; the program itself is `pullback.demo`. Needs the extra `demo`.
"""

from pathlib import Path

from pullback import demo


def main(
    n_starts: int = 4096,
    n_iterations: int = 500,
    picture: str | Path | None = "lynx_hare.png",
    progress: bool = True,
) -> demo.LynxHareFit:
    result = demo.run(n_starts, n_iterations, picture=picture, progress=progress)
    print(result.report())
    return result


if __name__ == "__main__":
    main()
