"""The one place that imports `lance`, in half the time: without pandas, which nothing here uses.

Where pandas is installed, pyarrow imports it while it is itself imported by `lance`, only to find that the number True
is no column of it. pyarrow does without it where it is missing, so it is hidden for that moment; afterwards pyarrow
looks again when it first needs to know.
"""

from __future__ import annotations

import os
import sys
import threading

os.environ.setdefault("LANCE_LOG", "error")  # its notices would land between our own lines


class _HiddenPandas:
    """The first of the import system's finders: for the thread that made it, there is no pandas."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas, and leave all else to the other finders."""
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(name)


_hidden = _HiddenPandas()
sys.meta_path.insert(0, _hidden)
try:
    import lance
    import pyarrow as pa
finally:
    sys.meta_path.remove(_hidden)
if hasattr(pa.lib, "_pandas_api"):
    pa.lib._pandas_api.__init__()

__all__ = ["lance", "pa"]
