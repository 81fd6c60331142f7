"""Indexing runs that the page starts, one at a time in a thread of their own; they pause, stop, try failures again."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from untrimmed.errors import UntrimmedError, missing_package
from untrimmed.search.indexing.pipeline import Progress
from untrimmed.search.library import Library
from untrimmed.search.store.listing import find_gone, is_gone
from untrimmed.search.store.records import Records, settings_file
from untrimmed.server import schemas
from untrimmed.server.problems import PublicError

log = logging.getLogger(__name__)

_MOST_KEPT = 20  # runs that have ended
_MOST_NAMED = 100  # files of one that could not be indexed
_MOST_PATHS = 5  # of one that are named
_OPEN = ("waiting", "running", "paused", "stopping")


class _StoppedError(Exception):
    """Ends a run between two steps; what was reported done is kept."""


class IndexJob:
    """One run. Its thread calls `step`; requests read `shown` and set what it is to do."""

    def __init__(self, paths: Iterable[Path], *, follows: bool = False) -> None:
        """`follows`: some of the paths may be gone, and so are their videos then."""
        self.job_id = secrets.token_hex(8)
        self.paths, self._follows = tuple(paths), follows
        self._failed: list[Path] = []
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._stops = False
        self._lock = threading.RLock()  # around reading a state and changing it
        self.changed_at = 0  # grows with every change, so that a reader sees that there was one
        self.shown = schemas.Job(
            job_id=self.job_id,
            paths=[str(path) for path in self.paths[:_MOST_PATHS]],
            state="waiting",
            position=0,
            total=0,
            num_done=0,
            num_skipped=0,
            num_moved=0,
            num_copied=0,
            num_removed=0,
            path=None,
            done_s=0.0,
            duration_s=0.0,
            failed=[],
            num_failed=0,
            problem=None,
            notice=None,
            started_at=None,
            ended_at=None,
        )

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.shown.state in _OPEN

    def failed_files(self) -> tuple[Path, ...]:
        """Those that could not be indexed."""
        return tuple(self._failed)

    def run(self, library: Library) -> None:
        """Index; from the thread of jobs."""
        with self._lock:  # paused or stopped while it waited, it stays so
            state = "running" if self.shown.state == "waiting" else self.shown.state
            self._show(state=state, started_at=time.time())
        try:
            self._wait()
            lost = _lost(library, self.paths) if self._follows else set()
            paths = [path for path in self.paths if os.path.lexists(path) or not self._follows]
            notice = library.index(paths, progress=self.step).notice if paths or not self._follows else None
            if lost:  # but for those that were found again, moved
                num_removed, kept = _remove(library, lost)
                self._show(num_removed=num_removed)
                notice = notice or kept
            self._show(state="done", notice=notice, position=self.shown.total)
        except _StoppedError:
            self._show(state="stopped")
        except ModuleNotFoundError as error:
            self._show(state="failed", problem=missing_package(error) or str(error))
        except (UntrimmedError, OSError) as error:
            self._show(state="failed", problem=str(error))
        except Exception:
            log.exception("an indexing run failed")
            self._show(state="failed", problem="a bug of the service; its log has the traceback")
        finally:
            self._show(ended_at=time.time(), path=None)

    def step(self, step: Progress) -> None:
        """Note one step, and wait while the run is paused."""
        job, failed = self.shown, self.shown.failed
        if step.state == "failed":
            self._failed.append(step.path)
            if len(failed) < _MOST_NAMED:
                failed = [*failed, schemas.FailedFile(path=str(step.path), reason=step.reason)]
        self._show(
            position=step.position,
            total=step.total,
            num_done=job.num_done + (step.state == "done"),
            num_skipped=job.num_skipped + (step.state in ("skipped", "moved", "copied")),
            num_moved=job.num_moved + (step.state == "moved"),
            num_copied=job.num_copied + (step.state == "copied"),
            path=str(step.path),
            done_s=step.done_s,
            duration_s=step.duration_s,
            failed=failed,
            num_failed=len(self._failed),
        )
        self._wait()

    def pause(self) -> None:
        """Wait at the next step until it is to go on; nothing where it is to stop, or has ended."""
        with self._lock:
            if self.shown.state in ("waiting", "running"):
                self._show(state="paused")
                self._goes_on.clear()

    def resume(self) -> None:
        """Go on."""
        with self._lock:
            if self.shown.state == "paused":
                self._show(state="running" if self.shown.started_at else "waiting")
                self._goes_on.set()

    def stop(self) -> None:
        """End at the next step; the video at work is not kept."""
        with self._lock:
            if self.is_open:
                self._stops = True
                self._show(state="stopping")
                self._goes_on.set()

    def _wait(self) -> None:
        self._goes_on.wait()
        if self._stops:
            raise _StoppedError

    def _show(self, **changes: object) -> None:
        with self._lock:
            self.shown = self.shown.model_copy(update=changes)
            self.changed_at += 1


def _lost(library: Library, places: Iterable[Path]) -> set[tuple[str, str]]:
    """Id and path of the videos at or below these places whose files are surely gone."""
    if not settings_file(library.folder).exists():
        return set()
    records = Records(library.videos())
    here = (record for place in places for record in records.below(place))
    return {(record.video_id, record.path) for record in here if is_gone(record.path)}


def _remove(library: Library, lost: set[tuple[str, str]]) -> tuple[int, str | None]:
    """Forget videos whose files are gone, but not those of a missing drive: how many, and what to know of it."""
    gone, missing = find_gone(library.videos())
    paths = [record.path for record in gone if (record.video_id, record.path) in lost]
    if paths:
        library.remove(paths)
    for root, kept in missing.items():
        if any((record.video_id, record.path) in lost for record in kept):
            found = f"kept {len(kept)} of {root}, where nothing is left: is a drive missing?"
            return len(paths), f"{found} To forget them: untrimmed rm {shlex.quote(str(root))}"
    return len(paths), None


class Jobs:
    """The runs of one service; a thread works on them one after another."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._jobs: OrderedDict[str, IndexJob] = OrderedDict()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self, paths: Iterable[Path], *, follows: bool = False) -> IndexJob:
        """Index files and folders, after the runs that are open; `follows`: and forget those that are gone.

        Raises:
            PublicError: Too many are open.
        """
        job = IndexJob(paths, follows=follows)
        with self._lock:
            if sum(other.is_open for other in self._jobs.values()) >= _MOST_KEPT:
                raise PublicError(409, f"{_MOST_KEPT} indexing runs are open; wait until one ends, or stop one")
            self._jobs[job.job_id] = job
            ended = [other for other in self._jobs.values() if not other.is_open]
            for old in ended[: max(0, len(self._jobs) - _MOST_KEPT)]:
                del self._jobs[old.job_id]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="index jobs")
                self._thread.start()
            self._lock.notify()
        return job

    def all(self) -> list[IndexJob]:
        """The runs, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def get(self, job_id: str) -> IndexJob:
        """The run of that id.

        Raises:
            PublicError: There is none.
        """
        with self._lock:
            if job_id not in self._jobs:
                raise PublicError(404, "no indexing run has this id; list them anew: /api/jobs")
            return self._jobs[job_id]

    def retry(self, job: IndexJob) -> IndexJob:
        """A new run of the files that could not be indexed.

        Raises:
            PublicError: There are none.
        """
        if not job.failed_files():
            raise PublicError(409, "every file of this run was indexed; there is nothing to try again")
        return self.start(job.failed_files())

    def stop(self) -> None:
        """Stop all runs at their next step."""
        for job in self.all():
            job.stop()

    def close(self, patience_s: float = 10.0) -> None:
        """Stop all runs, and wait for the one at work to end."""
        self.stop()
        deadline = time.monotonic() + patience_s
        while any(job.shown.started_at and job.is_open for job in self.all()) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _work(self) -> None:
        while True:
            with self._lock:
                while (job := next((job for job in self._jobs.values() if job.shown.started_at is None), None)) is None:
                    self._lock.wait()
            with contextlib.suppress(Exception):
                job.run(self._library)
