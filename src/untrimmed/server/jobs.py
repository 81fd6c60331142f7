"""Indexing runs. A thread processes one run at a time. Each run can be paused, stopped and retried."""

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
from untrimmed.search.store.listing import find_deleted, is_deleted
from untrimmed.search.store.records import Records, settings_file
from untrimmed.server import schemas
from untrimmed.server.problems import PublicError

log = logging.getLogger(__name__)

_MAX_JOBS = 20  # largest number of remembered runs; the oldest finished runs are forgotten
_MAX_LISTED = 100  # largest number of failed files that are listed for a run
_MAX_PATHS = 5  # largest number of paths that are listed for a run
_OPEN = ("waiting", "running", "paused", "stopping")


class _StoppedError(Exception):
    """Raised to stop a run between two steps. Videos that were reported as done stay indexed."""


class IndexJob:
    """One indexing run. The thread of `Jobs` executes it. Requests read its `status`, and pause, resume or stop it."""

    def __init__(self, paths: Iterable[Path], *, follows: bool = False) -> None:
        """Create a run for files and folders. With `follows`, the run also removes videos whose files were deleted."""
        self.job_id = secrets.token_hex(8)
        self.paths = tuple(paths)
        self._follows = follows
        self._failed: list[Path] = []
        self._is_unpaused = threading.Event()
        self._is_unpaused.set()
        self._is_stopping = False
        self._lock = threading.RLock()  # held while `status` is read and changed
        self.changed_at = 0  # incremented on every change, so that readers notice the change
        self.status = schemas.Job(
            job_id=self.job_id,
            paths=[str(path) for path in self.paths[:_MAX_PATHS]],
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
            video_s=0.0,
            speed=None,
            remaining_s=None,
            failed=[],
            num_failed=0,
            problem=None,
            notice=None,
            started_at=None,
            ended_at=None,
        )

    @property
    def is_open(self) -> bool:
        """Whether the run has not finished yet."""
        return self.status.state in _OPEN

    def failed_files(self) -> tuple[Path, ...]:
        """The files that could not be indexed."""
        return tuple(self._failed)

    def run(self, library: Library) -> None:
        """Run the indexing. The thread of `Jobs` calls this."""
        with self._lock:  # keep the state of a run that was paused or stopped before it started
            state = "running" if self.status.state == "waiting" else self.status.state
            self._update(state=state, started_at=time.time())
        try:
            self._wait()
            deleted = _find_deleted(library, self.paths) if self._follows else set()
            paths = [path for path in self.paths if os.path.lexists(path) or not self._follows]
            notice = library.index(paths, progress=self.step).notice if paths or not self._follows else None
            if deleted:  # indexing has already updated videos whose files were moved
                num_removed, kept_notice = _remove(library, deleted)
                self._update(num_removed=num_removed)
                notice = notice or kept_notice
            self._update(state="done", notice=notice, position=self.status.total)
        except _StoppedError:
            self._update(state="stopped")
        except ModuleNotFoundError as error:
            self._update(state="failed", problem=missing_package(error) or str(error))
        except (UntrimmedError, OSError) as error:
            self._update(state="failed", problem=str(error))
        except Exception:
            log.exception("an indexing run failed")
            self._update(state="failed", problem="this is a bug in the service; see the traceback in its log")
        finally:
            self._update(ended_at=time.time(), path=None, remaining_s=None)

    def step(self, step: Progress) -> None:
        """Record one step of indexing, and wait while the run is paused."""
        job = self.status
        failed = self.status.failed
        if step.state == "failed":
            self._failed.append(step.path)
            if len(failed) < _MAX_LISTED:
                failed = [*failed, schemas.FailedFile(path=str(step.path), reason=step.reason)]
        self._update(
            position=step.position,
            total=step.total,
            num_done=job.num_done + (step.state == "done"),
            num_skipped=job.num_skipped + (step.state in ("skipped", "moved", "copied")),
            num_moved=job.num_moved + (step.state == "moved"),
            num_copied=job.num_copied + (step.state == "copied"),
            path=str(step.path),
            done_s=step.done_s,
            duration_s=step.duration_s,
            video_s=step.video_s,
            speed=step.speed,
            remaining_s=step.remaining_s,
            failed=failed,
            num_failed=len(self._failed),
        )
        self._wait()

    def pause(self) -> None:
        """Pause the run at the next step. Does nothing if the run is stopping or finished."""
        with self._lock:
            if self.status.state in ("waiting", "running"):
                self._update(state="paused")
                self._is_unpaused.clear()

    def resume(self) -> None:
        """Resume the run if it is paused."""
        with self._lock:
            if self.status.state == "paused":
                self._update(state="running" if self.status.started_at else "waiting")
                self._is_unpaused.set()

    def stop(self) -> None:
        """Stop the run at the next step. The current video is not indexed."""
        with self._lock:
            if self.is_open:
                self._is_stopping = True
                self._update(state="stopping")
                self._is_unpaused.set()

    def _wait(self) -> None:
        self._is_unpaused.wait()
        if self._is_stopping:
            raise _StoppedError

    def _update(self, **changes: object) -> None:
        with self._lock:
            self.status = self.status.model_copy(update=changes)
            self.changed_at += 1


def _find_deleted(library: Library, places: Iterable[Path]) -> set[tuple[str, str]]:
    """Return the ids and paths of videos at or below `places` whose files no longer exist."""
    if not settings_file(library.folder).exists():
        return set()
    records = Records(library.videos())
    candidates = (record for place in places for record in records.below(place))
    return {(record.video_id, record.path) for record in candidates if is_deleted(record.path)}


def _remove(library: Library, deleted: set[tuple[str, str]]) -> tuple[int, str | None]:
    """Remove deleted videos from the library, unless their drive may be missing.

    Returns the number of removed videos, and a notice for the user about videos that were kept.
    """
    gone, missing = find_deleted(library.videos())
    paths = [record.path for record in gone if (record.video_id, record.path) in deleted]
    if paths:
        library.remove(paths)
    for root, records in missing.items():
        if any((record.video_id, record.path) in deleted for record in records):
            question = f"kept {len(records)} videos of {root}, which is missing or empty; is a drive disconnected?"
            return len(paths), f"{question} To remove them: untrimmed rm {shlex.quote(str(root))}"
    return len(paths), None


class Jobs:
    """The indexing runs of a service, processed one after another by a thread."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._jobs: OrderedDict[str, IndexJob] = OrderedDict()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self, paths: Iterable[Path], *, follows: bool = False) -> IndexJob:
        """Queue a run for files and folders.

        With `follows`, the run also removes videos whose files were deleted.

        Raises:
            PublicError: Too many runs have not finished yet.
        """
        job = IndexJob(paths, follows=follows)
        with self._lock:
            if sum(open_job.is_open for open_job in self._jobs.values()) >= _MAX_JOBS:
                raise PublicError(409, f"{_MAX_JOBS} indexing runs are open; wait until one finishes, or stop one")
            self._jobs[job.job_id] = job
            finished = [old for old in self._jobs.values() if not old.is_open]
            for old in finished[: max(0, len(self._jobs) - _MAX_JOBS)]:
                del self._jobs[old.job_id]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="index jobs")
                self._thread.start()
            self._lock.notify()
        return job

    def all(self) -> list[IndexJob]:
        """Return all runs, newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    @property
    def num_open(self) -> int:
        """Number of runs that have not finished yet."""
        return sum(job.is_open for job in self.all())

    def get(self, job_id: str) -> IndexJob:
        """Return the run with an id.

        Raises:
            PublicError: No run has this id.
        """
        with self._lock:
            if job_id not in self._jobs:
                raise PublicError(404, "no indexing run has this id; list the runs again: /api/jobs")
            return self._jobs[job_id]

    def retry(self, job: IndexJob) -> IndexJob:
        """Start a new run for the files that failed.

        Raises:
            PublicError: No file failed.
        """
        if not job.failed_files():
            raise PublicError(409, "no file of this run failed; there is nothing to retry")
        return self.start(job.failed_files())

    def stop(self) -> None:
        """Stop all runs at their next step."""
        for job in self.all():
            job.stop()

    def close(self, patience_s: float = 10.0) -> None:
        """Stop all runs and wait until the current one finishes."""
        self.stop()
        deadline = time.monotonic() + patience_s
        while any(job.status.started_at and job.is_open for job in self.all()) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _work(self) -> None:
        while True:
            with self._lock:
                while (
                    job := next((job for job in self._jobs.values() if job.status.started_at is None), None)
                ) is None:
                    self._lock.wait()
            with contextlib.suppress(Exception):
                job.run(self._library)
