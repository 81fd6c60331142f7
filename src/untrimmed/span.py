"""A span of a video. This module imports no numpy, so that a command that asks a running service starts quickly."""

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Moment:
    """A span of one video in seconds, and its score (higher is better).

    `peak_s` is the most relevant time in the span. It is None if it is not known, as for annotated moments. Moments
    with the same span and score are equal.
    """

    start_s: float
    end_s: float
    score: float = 0.0
    peak_s: float | None = field(default=None, compare=False)

    @property
    def picture_s(self) -> float:
        """The time of the picture that shows the moment: its peak, or its middle if the peak is not known."""
        return (self.start_s + self.end_s) / 2 if self.peak_s is None else self.peak_s
