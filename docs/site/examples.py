"""Doctests of docstrings as code blocks: left bare, Markdown takes `>>>` for a quotation of a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?m)^>>> .*(?:\n(?!\s*$).*)*")


class Examples(Extension):
    """Fences every example; griffe calls it for each thing that has a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring in place."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
