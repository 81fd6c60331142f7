"""Import `lance` fast, create tables, and handle conflicts between writers. Other modules import `lance` from here.

Importing pyarrow also imports pandas if it is installed. We do not need pandas, so this module hides it during the
import, which halves the import time. Later, pyarrow can import pandas if necessary.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

os.environ.setdefault("LANCE_LOG", "error")  # notices of Lance would appear between the lines that we print


class _HiddenPandas:
    """An import hook that hides pandas from the thread that created the hook."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas. For other modules, return None, so that the next finder is used."""
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

__all__ = ["commit_first", "create_table", "ignored_conflicts", "lance", "pa", "write_fragments"]

# words in the error message of a commit that failed because another process committed first
_CONFLICTS = ("conflict", "Incompatible transaction")


def create_table(rows: pa.Table, uri: str, options: dict[str, str] | None) -> lance.LanceDataset:
    """Return a new table of these rows. If another machine has just created the table, the rows are added to it."""
    return commit_first(rows.schema, write_fragments(rows, uri, storage_options=options), uri, options)


def commit_first(
    schema: pa.Schema, fragments: list[lance.FragmentMetadata], uri: str, options: dict[str, str] | None
) -> lance.LanceDataset:
    """Return a new table of files that `write_fragments` wrote, see `create_table`.

    `lance.write_dataset` is not used, because after a conflict it would replace the table of the other machine.
    """
    first = lance.LanceOperation.Overwrite(schema, fragments)
    try:
        return lance.LanceDataset.commit(uri, first, storage_options=options, max_retries=0)
    except OSError as error:
        try:
            table = lance.dataset(uri, storage_options=options)
        except (OSError, ValueError):
            raise error from None
        more = lance.LanceOperation.Append(fragments)
        return lance.LanceDataset.commit(uri, more, read_version=table.version, storage_options=options)


@contextlib.contextmanager
def ignored_conflicts() -> Iterator[None]:
    """Ignore conflicts with other machines in a `with` block.

    Use it only for work that can be skipped or done later.
    """
    try:
        yield
    except OSError as error:
        if not any(word in str(error) for word in _CONFLICTS):
            raise
