"""`python -m pullback` is the command `pullback`."""

from pullback.cli import main

raise SystemExit(main())
