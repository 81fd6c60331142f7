"""The one place that imports `lance`, and what several writers at once need of it.

It takes half the time without pandas, which nothing here uses.

Where pandas is installed, pyarrow imports it while it is itself imported by `lance`, only to find that the number True
is no column of it. pyarrow does without it where it is missing, so it is hidden for that moment; afterwards pyarrow
looks again when it first needs to know.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

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
    from lance.fragment import write_fragments
finally:
    sys.meta_path.remove(_hidden)
if hasattr(pa.lib, "_pandas_api"):
    pa.lib._pandas_api.__init__()

__all__ = ["lance", "left_to_others", "pa", "started"]

_CONFLICTS = ("conflict", "Incompatible transaction")  # in what the store says where another writer came first


def started(rows: pa.Table, uri: str, options: dict[str, str] | None) -> lance.LanceDataset:
    """A new table of these rows; where another machine has started it meanwhile, its table with these rows.

    The store's own way to write a new table repeats what fails: it would take the place of the other one.
    """
    fragments = write_fragments(rows, uri, storage_options=options)
    first = lance.LanceOperation.Overwrite(rows.schema, fragments)
    try:
        return lance.LanceDataset.commit(uri, first, storage_options=options, max_retries=0)
    except OSError as error:
        try:
            table = lance.dataset(uri, storage_options=options)
        except (OSError, ValueError):
            raise error from None
        table.insert(rows)
        return table


@contextlib.contextmanager
def left_to_others() -> Iterator[None]:
    """What need not be done now, where another machine writes at the same time."""
    try:
        yield
    except OSError as error:
        if not any(word in str(error) for word in _CONFLICTS):
            raise
