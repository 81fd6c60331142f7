"""Windows around every frame of some videos, found by codes of all of them: a window is coded as the row it pools to.

A window is as long as its frames have in common, so its code leaves out less than theirs do; and what is the best is a
maximum, as for any other rows. Where codes leave it open frames are read, those under a window that may be the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float16, Float32, Int

from untrimmed.search.cache.mapped import with_spans
from untrimmed.search.pruning.coded_videos import CodedRows, codes_of_rows, longest_of
from untrimmed.search.pruning.codes import Axes, Probe
from untrimmed.search.pruning.threads import share

_READ_AT_A_TIME = 4  # videos


@dataclass(frozen=True, eq=False)
class CodedWindows(CodedRows):
    """Rows are windows, one around each frame."""

    @classmethod
    def of(
        cls,
        axes: Axes,
        windows: Float32[np.ndarray, "N D"],
        lengths: Int[np.ndarray, " V"],
        frames: Float16[np.ndarray, "R E"],
    ) -> CodedWindows:
        """Codes of windows of videos with so many frames each, which are pooled of these."""
        longest = longest_of(np.where(np.isfinite(frames), frames, 0))
        return cls(longest=longest, **codes_of_rows(axes, windows, lengths))

    def rounding(self, probe: Probe) -> float:
        """What the product of a window can be off: sums are made in single precision."""
        return 1e-5 * max(1.0, self.longest * probe.length)


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of the videos of a block by their codes, and by its frames."""

    coded: CodedWindows
    arrays: Mapping[str, np.ndarray]  # of the block
    places: tuple[Int[np.ndarray, " V"], Int[np.ndarray, " V"]]  # of each video: its first frame, and their number
    filters: tuple[np.ndarray, ...]  # weights of all filters; where each begins; each video's own one
    read: list[int]  # frames that had to be read

    def by_rows(
        self, probe: Probe, videos: Int[np.ndarray, " N"], needed: Float[np.ndarray, " N"]
    ) -> Float32[np.ndarray, " N"]:
        """What no window of each is above, by float16 frames, of those of which codes leave it open.

        Minus infinity where none is as good as `needed`.
        """
        from untrimmed.search.pruning.kernels import score_windows

        starts, lengths = self.places
        frames = with_spans(self.arrays, "frames", starts[videos], starts[videos] + lengths[videos])
        rows = frames.view(np.uint16).reshape(-1), frames.shape[1], self.places, (*self.filters, self.arrays["inside"])
        found, read = np.empty(len(videos), dtype=np.float32), np.empty(len(videos), dtype=np.int64)
        query = np.pad(probe.vector, (0, frames.shape[1] - len(probe.vector)))
        least = (needed - 1e-5).astype(np.float32)  # rounded
        given = probe.numbers, probe.margins, *rows, query, videos, least

        def look(start: int, stop: int) -> None:
            lies = self.coded.addresses.ctypes.data  # `self` keeps what lies there
            score_windows(lies, *given, start, stop, found, read)

        share(len(videos), _READ_AT_A_TIME, look)
        self.read.append(int(read.sum()))
        rounded: Float32[np.ndarray, " N"] = found + np.float32(self.coded.rounding(probe))
        return rounded
