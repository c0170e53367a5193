"""Measurements of `pullback` beside other libraries: tables of ratios, charts, JSON.

`python -m benchmarks` runs the short programme, `--full` all sizes. No test has a time in it.

* `cases` what is solved; `peers` who solves it; `cpp` the compiled loop among them;
* `reference` true solutions and the errors against them;
* `timing` interleaved repeats; `fresh` first calls and memory, each in a process of its own;
* `programme` which measurements are made; `records` what each of them is;
* `tables`, `targets`, `charts` what is shown.
"""
