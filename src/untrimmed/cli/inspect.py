"""`untrimmed ls`, `status` and `rm`: list, summarise and remove the videos of a library."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from untrimmed.cli.console import SOME_FAILED, clock, print_json, progress_console, result_console
from untrimmed.cli.options import JsonOption, LibraryOption, parse_path
from untrimmed.errors import ConfigError, names_file_beside, shown
from untrimmed.precision import BUILTIN_PRODUCTS, choose_format
from untrimmed.search.store.bucket import name_of
from untrimmed.search.store.listing import find_deleted, is_deleted, read_readings, read_records
from untrimmed.search.store.records import (
    PASSAGES,
    THUMBNAILS,
    Settings,
    VideoRecord,
    absolute,
    library_folder,
    newest_commit,
    read_settings,
)

# names of the settings that `status --json` prints
_JSON_SETTINGS = ("encoder", "encoder_identity", "products", "model", "sampling", "sources")
_MAX_LISTED_WARNINGS = 10


def ls(library: LibraryOption = None, json_output: JsonOption = False) -> None:
    """List the videos in the library.

    Each line has the duration, the number of indexed frames and the path.
    (text) marks videos with subtitles, speech or screen text in the library.
    (gone) marks videos whose files are missing.
    """
    records = read_records(library_folder(library))
    if json_output:
        print_json([asdict(record) for record in records])
        return
    with_text = {reading.video_id for reading in read_readings(library_folder(library)) if reading.num_passages}
    for record in records:
        mark = "  (text)" if record.video_id in with_text else ""
        mark += "  (gone)" if is_deleted(record.path) else ""
        result_console.print(
            f"{clock(record.duration_s):>10}  {record.num_frames:6d}  {shown(Path(record.path))}{mark}"
        )


def status(library: LibraryOption = None, json_output: JsonOption = False) -> None:
    """Summarise the library: size, encoder and model."""
    folder = library_folder(library)
    records = read_records(folder)
    settings = read_settings(folder)
    facts: dict[str, Any] = {
        "library": name_of(folder),
        "videos": len(records),
        "duration_s": round(sum(record.duration_s for record in records), 1),
        "frames": sum(record.num_frames for record in records),
        "gone": sum(is_deleted(record.path) for record in records),
        "bytes": sum(map(_size, folder.rglob("*"))),
        "thumbnail_bytes": sum(map(_size, (folder / THUMBNAILS).rglob("*"))),
        "passages": sum(passages_of(folder).values()),
        **{name: getattr(settings, name, None) for name in _JSON_SETTINGS},
        "warnings": list(_distinct(_warnings(folder, records))),
    }
    if json_output:
        print_json(facts)
        return
    write = result_console.print
    write(f"library   {name_of(folder)}")
    write(f"videos    {len(records)}, {clock(facts['duration_s'])} in total, {facts['frames']} frames indexed")
    write(f"size      {facts['bytes'] / 1e6:.1f} MB, of which thumbnails {facts['thumbnail_bytes'] / 1e6:.1f} MB")
    if facts["passages"]:
        counts = ", ".join(f"{count} ({source})" for source, count in sorted(passages_of(folder).items()))
        write(f"passages  {counts}")
    elif records and settings is not None and settings.sources and newest_commit(folder, PASSAGES) is None:
        write("passages  no text was read yet; to read it: untrimmed index FOLDER")
    if settings is not None:
        exceptions = _describe_exceptions(records, settings.sampling)
        write(f"encoder   {settings.encoder_identity}, {settings.sampling}{exceptions}")
        write(f"precision {settings.products}{_describe_precision(settings)}")
        write(f"model     {_describe_model(settings.model)}")
        sources = ", ".join(sorted(settings.sources))
        write(f"index     reads {f'text from {sources}' if sources else 'no text'}")
    if facts["gone"]:
        write(f"gone      {_videos(facts['gone'])} missing on disk; to remove from the library: untrimmed rm --gone")
    for warning in facts["warnings"][:_MAX_LISTED_WARNINGS]:
        path, reason = Path(warning["path"]), warning["reason"]
        write(f"warning   {reason if names_file_beside(path, reason) else f'{shown(path)}: {reason}'}")
    if (more := len(facts["warnings"]) - _MAX_LISTED_WARNINGS) > 0:
        write(f"warnings  {more} more; to list all: untrimmed status --json")


def _warnings(folder: Path, records: list[VideoRecord]) -> list[dict[str, str]]:
    """Return the warnings of the last reading of each video and its texts, sorted by path."""
    of_texts: dict[str, list[str]] = {}
    for reading in sorted(read_readings(folder), key=lambda reading: reading.source):
        of_texts.setdefault(reading.video_id, []).extend(reading.warnings)
    return [
        {"path": record.path, "reason": reason}
        for record in records
        # sources may find the damage that the record of the video already lists
        for reason in filter(None, (record.warnings, *of_texts.get(record.video_id, ())))
        if reason == record.warnings or reason not in record.warnings
    ]


def _distinct(warnings: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield warnings. A warning about a subtitle file is yielded for the first of its videos only."""
    about_files: set[str] = set()
    for warning in warnings:
        if warning["reason"] not in about_files:
            yield warning
        if names_file_beside(Path(warning["path"]), warning["reason"]):
            about_files.add(warning["reason"])


def passages_of(folder: Path) -> Counter[str]:
    """Return the number of passages from each source."""
    counts: Counter[str] = Counter()
    for reading in read_readings(folder):
        counts[reading.source] += reading.num_passages
    return +counts


def _describe_exceptions(records: list[VideoRecord], sampling: str) -> str:
    """Return a text about videos whose sampling differs from the library's, e.g. `; 1 video at 2 fps`, or ""."""
    counts = Counter(record.sampling for record in records if record.sampling != sampling)
    return "".join(
        f"; {_videos(count)} {'at' if name.endswith('fps') else 'by'} {name}" for name, count in counts.items()
    )


def _describe_precision(settings: Settings) -> str:
    """Return a text about the number format of the encoder's matrix products on this processor."""
    if settings.products == BUILTIN_PRODUCTS:
        return ", the only one of this encoder"
    number_format = choose_format("auto", "cpu")
    return f"; --precision auto is {number_format.name} on the CPU: {number_format.reason}"


def _describe_model(model: str) -> str:
    return "none (searches the frames directly)" if model == "frames" else model


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # a writer deleted this file of an old version just now
        return 0


def rm(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Videos, or folders with videos.", parser=parse_path)
    ] = None,
    library: LibraryOption = None,
    gone: Annotated[bool, typer.Option("--gone", help="Remove all videos whose files are missing.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Remove all videos.")] = False,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="NAME",
            help="Keep the videos, and remove only their text of this source: subtitle, speech or screen.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove videos, or only their text, from the library. Your files are kept.

    You are asked for confirmation, unless PATH names only files.
    With --gone, videos stay in the library if their whole drive or top folder
    is missing (exit code 3). To remove them, name the drive or folder as PATH.
    Example: untrimmed rm --text speech film.mp4
    To read it again: untrimmed index --speech film.mp4
    """
    import untrimmed

    if not (paths or gone or everything):
        raise ConfigError("nothing to remove; name videos or folders, or use --gone or --all")
    opened = untrimmed.open(library)
    named = [str(path) for path in paths or ()]
    records = opened.videos() if everything or gone else []
    missing, missing_roots = find_deleted(records) if gone and not everything else ([], {})
    targets = [*named, *(record.path for record in (records if everything else missing))]
    remove = opened.remove if text is None else partial(opened.remove_text, text)
    removed = remove(targets, dry_run=True)
    part = f"{text} of " if text else ""
    if not dry_run:
        folders = {absolute(path) for path in named}
        names_folder = any(not folders.isdisjoint(Path(record.path).parents) for record in removed)
        if removed and not yes and (names_folder or gone or everything):
            _confirm(len(removed), "the videos stay" if text else "the files stay", part)
        # the files of these videos exist again, because their drive was connected in the meantime
        back = {record.path for record in missing if not is_deleted(record.path)}
        removed = remove(path for path in targets if path in named or path not in back)
    for record in removed:
        progress_console.print(f"{'would remove' if dry_run else 'removed'}  {part}{shown(Path(record.path))}")
    for root, root_records in missing_roots.items():
        progress_console.print(
            f"kept  {_videos(len(root_records))} in {shown(root)}, which is missing or empty: is a drive disconnected? "
            f"To remove them: untrimmed rm {shlex.quote(str(root))}",
        )
    result_console.print(f"{len(removed)} {'would be ' if dry_run else ''}removed")
    if missing_roots:
        raise typer.Exit(SOME_FAILED)


def _confirm(count: int, kept: str, part: str) -> None:
    """Ask the user for confirmation, and exit if the answer is no. `part` names what is removed of the videos."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{part}{_videos(count)} would be removed; list them with --dry-run, remove them with --yes")
    if not typer.confirm(f"{part}{_videos(count)} will be removed from the library ({kept}); continue?", err=True):
        raise typer.Exit(1)


def _videos(count: int) -> str:
    return f"{count} video{'' if count == 1 else 's'}"
