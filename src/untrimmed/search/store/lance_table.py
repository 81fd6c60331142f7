"""The base class of a library's tables, which are embedded and versioned (Lance): open, read, commit and compact.

Every change is one atomic commit, so after a process is killed the table is at its last commit. Readers read one
version at a time and never wait.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from untrimmed.errors import IndexMismatchError, UntrimmedError, one_line, shown
from untrimmed.search.store import bucket
from untrimmed.search.store.manifests import is_complete, manifests, set_aside_damaged, without_panic_messages
from untrimmed.search.store.records import OTHER_VERSION, RESTORE, VERSIONS, newest_commit, version_of

if TYPE_CHECKING:
    from untrimmed.search.store.lance import lance

# Each commit adds a fragment (a file of rows) and lists all fragments. So fragments are merged after this many commits.
_COMMITS_BETWEEN_COMPACTIONS = 500
_KEEP_VERSIONS = timedelta(hours=1)  # old versions are kept for this time, because readers may use them

_ADVICE = {
    "opened": RESTORE,
    "read": f"run the same command again; if that fails too, {RESTORE}",
    "written to": "free space or change its permissions, then run the same command again (finished work is not lost)",
}


class LanceTable:
    """A table of a library. A process that writes must hold the library's lock (`VideoIndex`)."""

    columns: ClassVar[tuple[Sequence[str], ...]]  # for each version of the table's format, the names of its columns
    without_commit: ClassVar[str] = RESTORE  # what a user can do if all commits are damaged
    rows_per_fragment: ClassVar[int]  # largest size of a fragment, which also limits the rows that a merge rewrites

    def __init__(self, folder: Path, name: str, *, follow: bool = True, version: int | None = None):
        """Open the table NAME of a library, which may not exist yet.

        Args:
            follow: Read the newest version in each call. Otherwise, stay at the version of the first call.
            version: Read only this version.
        """
        self.folder = Path(folder)
        self._table_name = name
        self._follow = follow and version is None
        self._version = version
        address = bucket.address_of(self.folder)
        self._name = address or shown(self.folder)
        self._uri = os.path.abspath(self.folder / name) if address is None else f"{address}/{name}"
        self._options = None if address is None else bucket.options()
        try:
            self._uri.encode()
        except UnicodeEncodeError:
            raise UntrimmedError(
                f"{shown(self.folder)}: a library's path must be valid UTF-8; choose another --library"
            ) from None
        self._table: lance.LanceDataset | None = None
        self._commits = 0

    @property
    def commit(self) -> list[Any] | None:
        """The last commit of this table (see `newest_commit`), or None before the first commit."""
        return newest_commit(self.folder, self._table_name)

    @property
    def _versions(self) -> Path:
        return self.folder / self._table_name / VERSIONS

    def version(self) -> int:
        """Return the number of the table's version. It increases with each commit, and is 0 before the first."""
        return 0 if (table := self._open_table()) is None else table.version

    def __len__(self) -> int:
        table = self._open_table()
        with self._guarded("read"):
            return table.count_rows() if table is not None else 0

    def set_aside_damaged_commits(self) -> list[Path]:
        """Go back to the newest commit that can be read. Return the renamed files of later commits.

        The list is empty if the last commit can be read, or if no commit can. Only for a library in a folder.
        """
        from untrimmed.search.store.lance import lance

        def can_be_opened(manifest: Path) -> bool:
            try:
                with self._guarded("opened"):
                    names = lance.dataset(self._uri, version=version_of([manifest.name])).schema.names
            except UntrimmedError:
                return False
            return names in self.columns

        return [] if self._options is not None else set_aside_damaged(self._versions, can_be_opened)

    def compact(self) -> None:
        """Merge the small fragments that single commits wrote, and remove old versions."""
        from untrimmed.search.store.lance import ignored_conflicts

        if (table := self._open_table()) is not None:
            with self._guarded("written to"), ignored_conflicts():
                table.optimize.compact_files(target_rows_per_fragment=self.rows_per_fragment)
        self.clean()
        self._commits = 0

    def clean(self, *, with_leftovers: bool = False) -> None:
        """Remove old versions.

        `with_leftovers` also removes all files that no version contains: killed processes have left them. For a library
        in a bucket, these files are kept for a week, because another machine may be writing them.
        """
        from untrimmed.search.store.lance import ignored_conflicts

        if (table := self._open_table()) is not None:
            with self._guarded("written to"), ignored_conflicts():
                table.cleanup_old_versions(_KEEP_VERSIONS, delete_unverified=with_leftovers and self._options is None)

    @contextlib.contextmanager
    def _guarded(self, action: str) -> Iterator[None]:
        """Convert errors of the disk and of Lance to UntrimmedErrors.

        After an error, the table is at its last commit.
        """
        is_reading = action in ("opened", "read")
        try:
            with without_panic_messages() if is_reading else contextlib.nullcontext():
                yield
        except UntrimmedError:
            raise
        except BaseException as error:
            # Lance raises these exceptions (Arrow's errors are ValueErrors), or a PanicException if it has a bug.
            if not isinstance(error, (OSError, RuntimeError, ValueError)) and type(error).__name__ != "PanicException":
                raise
            if self._options is not None:
                raise UntrimmedError(f"{self._name}: cannot be {action}: {bucket.reason(error)}") from error
            # remove the line number in Lance's source code from the message
            reason = getattr(error, "strerror", None) or re.sub(r", \S+\.rs:\d+:\d+$", "", one_line(error))
            if type(error).__name__ == "PanicException":
                reason = "a file of its table is damaged"
            raise UntrimmedError(f"{self._name}: cannot be {action} ({reason}); {_ADVICE[action]}") from error

    def _committed(self) -> None:
        self._commits += 1
        if self._commits >= _COMMITS_BETWEEN_COMPACTIONS:
            self.compact()

    def _open_table(self) -> lance.LanceDataset | None:
        from untrimmed.search.store.lance import lance  # a slow import that many searches do not need

        with self._guarded("opened"):
            if self._table is None:
                if self.commit is None:  # there is no table, or its first commit was interrupted
                    return None
                if self._options is None and self._version in (None, version_of(self.commit)):
                    self._require_complete_commit()
                table = lance.dataset(self._uri, version=self._version, storage_options=self._options)
                names = table.schema.names  # can also panic
                self._table = table
            elif self._follow:
                self._table.checkout_latest()
            names = self._table.schema.names
        if names not in self.columns:
            raise IndexMismatchError(f"{self.folder}: {OTHER_VERSION}")
        return self._table

    def _require_complete_commit(self) -> None:
        newest, *older = manifests(self._versions)
        if not is_complete(newest):
            go_back = "to go back to the commit before it, run: untrimmed doctor --repair"
            advice = go_back if older else self.without_commit
            raise IndexMismatchError(f"{self._name}: its last commit is damaged ({newest.name}); {advice}")
