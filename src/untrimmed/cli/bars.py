"""Progress bars on the error stream. They are only drawn on a terminal; elsewhere rich would print an empty line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from untrimmed.cli.console import progress_console

B = TypeVar("B", bound="ProgressBar")


class ProgressBar:
    """A progress bar with the given columns, used as a context manager. If `muted`, it is never drawn."""

    def __init__(self, *columns: ProgressColumn, muted: bool = False, transient: bool = False, **task: Any):
        self._is_drawn = progress_console.is_terminal and not muted
        self._progress = Progress(*columns, console=progress_console, transient=transient)
        self._task = self._progress.add_task(**task)

    def __enter__(self: B) -> B:
        if self._is_drawn:
            self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._is_drawn:
            self._progress.stop()

    def show(self, **fields: Any) -> None:
        """Update fields of the bar, such as `completed`."""
        self._progress.update(self._task, **fields)


@contextmanager
def counting(label: str, *, muted: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar during the `with` block, and return a function `(num_done, total)` that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    bar = ProgressBar(
        *columns, TimeRemainingColumn(), TextColumn("left"), muted=muted, transient=True, description=label, total=1
    )
    with bar:
        yield lambda done, total: bar.show(completed=done, total=total)
