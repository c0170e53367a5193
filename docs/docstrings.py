"""Let the API pages read this package's docstrings: their section is called `Example`, once."""

from __future__ import annotations

import re
from typing import Any

import griffe

SINGULAR = re.compile(r"^Example:$", re.M)


class SingularExample(griffe.Extension):
    """Give the section the name under which griffe parses doctests."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of one object; griffe calls this."""
        if obj.docstring is not None:
            obj.docstring.value = SINGULAR.sub("Examples:", obj.docstring.value)
