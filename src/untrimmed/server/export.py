"""Export moments to files: clips, or a format for other programs."""

import math
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.errors import VideoError
from untrimmed.exports import formats
from untrimmed.exports.counting import RATES, ExportedMoment
from untrimmed.exports.names import file_name, with_folder
from untrimmed.search.store.records import VideoRecord, folders_of_equal_names
from untrimmed.server.media import MediaFile, media_file, require_free_space
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import ExportRequest, Mark
from untrimmed.video.process import Limits
from untrimmed.video.reader import TimingReader, cut
from untrimmed.video.timing import Timing

MAX_CLIP_S = 600.0
_MAX_CLIPS_S = 3600.0  # largest total duration of the clips in one archive
_LIMITS = Limits(total_s=300.0, stall_s=60.0)
_Moments = Sequence[tuple[Mark, VideoRecord]]


@dataclass(frozen=True)
class Exported:
    """An exported file in a temporary folder. The receiver must delete the folder."""

    path: Path
    kind: str
    warnings: tuple[str, ...] = ()


def export(request: ExportRequest, records: Sequence[VideoRecord], ends: threading.Event) -> Exported:
    """Write moments to a file in the requested format. Setting the event `ends` cancels the export.

    Raises:
        PublicError: A span is empty or too long, the clips are too long in total, a video cannot be read, the disk is
            nearly full, or the service is shutting down.
        VideoError: A clip cannot be cut, or the frame rate of a file is unknown and the file cannot be read.
        ConfigError: The format cannot store the moments.
    """
    moments = list(zip(request.moments, records, strict=True))
    for mark, record in moments:
        check_span(record, mark.start_s, mark.end_s, MAX_CLIP_S if request.format == "clips" else math.inf)
    total_s = sum(mark.end_s - mark.start_s for mark, _ in moments)
    if request.format == "clips" and total_s > _MAX_CLIPS_S:
        raise PublicError(
            422,
            f"the clips are {total_s:g} s long in total, expected up to {_MAX_CLIPS_S:g} s; export fewer at a time",
        )
    folder = temporary_folder()
    try:
        if request.format == "clips":
            return Exported(_write_clips(moments, folder / "moments.zip", ends), "application/zip")
        exported = _export(request, moments)
        path = folder / f"moments{exported.suffix}"
        path.write_bytes(exported.content)
        return Exported(path, exported.kind, exported.warnings)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def temporary_folder() -> Path:
    """Create a temporary folder and return its path.

    Raises:
        PublicError: The disk is nearly full.
    """
    require_free_space(Path(tempfile.gettempdir()), "temporary files")
    return Path(tempfile.mkdtemp(prefix="untrimmed-"))


def check_span(record: VideoRecord, start_s: float, end_s: float, max_s: float = MAX_CLIP_S) -> None:
    """Check that a span is not empty and not longer than `max_s` seconds.

    Raises:
        PublicError: The span is empty or too long.
    """
    if not 0 < end_s - start_s <= max_s:
        expected = "above 0" if max_s == math.inf else f"above 0 and up to {max_s:g} s"
        raise PublicError(
            422,
            f"{Path(record.path).name!r}: the length of the span from {start_s:g} to {end_s:g} s must be {expected}",
        )


def clip_name(record: VideoRecord, start_s: float, end_s: float, folder: str = "") -> str:
    """Return the file name of a clip: the name of its video and its span.

    `folder` is added if other videos have the same name.
    """
    return f"{file_name(with_folder(record.path, folder))}_{start_s:.1f}-{end_s:.1f}s.mp4"


def folder_in_name(record: VideoRecord, records: Iterable[VideoRecord]) -> str:
    """Return the name of a folder that distinguishes a video from those with the same name, or "" if there are none."""
    path = Path(record.path)
    equal = [other.path for other in records if Path(other.path).stem == path.stem]
    return folders_of_equal_names(equal).get(path, "")


def write_clip(
    file: MediaFile, start_s: float, end_s: float, out: Path, ends: threading.Event, *, overwrite: bool = False
) -> Path:
    """Write a span of an indexed file to `out`, and return the path. Setting the event `ends` cancels the cut.

    Raises:
        PublicError: The service is shutting down.
        VideoError: The file cannot be decoded, or has no frame in the span.
    """
    try:
        cut(file.path, start_s, end_s, out, limits=_LIMITS, identity=file.identity, stop=ends, overwrite=overwrite)
    except VideoError:
        if ends.is_set():
            raise PublicError(503, "the service is shutting down; retry after it restarts") from None
        raise
    return out


def _write_clips(moments: _Moments, out: Path, ends: threading.Event) -> Path:
    folders = folders_of_equal_names(record.path for _, record in moments)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for number, (mark, record) in enumerate(moments, start=1):
            folder = folders.get(Path(record.path), "")
            name = f"{number:02d}_{clip_name(record, mark.start_s, mark.end_s, folder)}"
            clip = write_clip(media_file(record), mark.start_s, mark.end_s, out.with_name("clip.mp4"), ends)
            archive.write(clip, name)
            clip.unlink()
    return out


def _export(request: ExportRequest, moments: _Moments) -> formats.ExportedFile:
    records = {record.video_id: record for _, record in moments}
    spans = [ExportedMoment.of(record, mark.start_s, mark.end_s, mark.note) for mark, record in moments]
    with TimingReader(limits=_LIMITS) as reader:

        def read_timing(moment: ExportedMoment) -> Timing:
            try:
                file = media_file(records[moment.video_id])
            except PublicError as error:
                raise VideoError(f"a timeline needs the frame rate of each file, but {error.detail}") from None
            return reader.read(file.path, file.identity)

        rate = RATES[request.rate] if request.rate else None
        return formats.export(spans, request.format, rate, read_timing, request.title or "moments")
