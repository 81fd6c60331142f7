"""Turn doctests into code blocks, because Markdown renders `>>>` as nested quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?m)^>>> .*(?:\n(?!\s*$).*)*")


class Examples(Extension):
    """Griffe calls this extension for each object with a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put a fence around each example."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", obj.docstring.value)
