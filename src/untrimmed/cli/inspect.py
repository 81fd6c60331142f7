"""`untrimmed ls`, `status` and `rm`: what is in a library, and taking it out again."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from untrimmed.cli.console import SOME_FAILED, clock, print_json, progress_console, result_console
from untrimmed.cli.options import JsonOption, LibraryOption, parse_path
from untrimmed.errors import ConfigError, shown
from untrimmed.precision import BUILTIN_PRODUCTS, choose_format
from untrimmed.search.store.bucket import name_of
from untrimmed.search.store.listing import find_gone, is_gone, read_records
from untrimmed.search.store.records import Settings, VideoRecord, library_folder, read_settings

_SHARED = ("encoder", "encoder_identity", "products", "model", "sampling")  # of the settings, in `status --json`


def ls(library: LibraryOption = None, json_output: JsonOption = False) -> None:
    """List the indexed videos: length, frames looked at, path; `gone` marks files no longer there."""
    records = read_records(library_folder(library))
    if json_output:
        print_json([asdict(record) for record in records])
        return
    for record in records:
        gone = "  (gone)" if is_gone(record.path) else ""
        result_console.print(
            f"{clock(record.duration_s):>10}  {record.num_frames:6d}  {shown(Path(record.path))}{gone}"
        )


def status(library: LibraryOption = None, json_output: JsonOption = False) -> None:
    """Say what a library holds and what it was made with."""
    folder = library_folder(library)
    records, settings = read_records(folder), read_settings(folder)
    facts: dict[str, Any] = {
        "library": name_of(folder),
        "videos": len(records),
        "duration_s": round(sum(record.duration_s for record in records), 1),
        "frames": sum(record.num_frames for record in records),
        "gone": sum(is_gone(record.path) for record in records),
        "bytes": sum(map(_size, folder.rglob("*"))),
        **{name: getattr(settings, name, None) for name in _SHARED},
    }
    if json_output:
        print_json(facts)
        return
    say = result_console.print
    say(f"library   {name_of(folder)}")
    say(f"videos    {len(records)}, {clock(facts['duration_s'])} in all, {facts['frames']} frames looked at")
    say(f"size      {facts['bytes'] / 1e6:.1f} MB")
    if settings is not None:
        say(f"encoder   {settings.encoder_identity}, {settings.sampling}{_otherwise(records, settings.sampling)}")
        say(f"products  {settings.products}{_here(settings)}")
        say(f"model     {settings.model}")
    if facts["gone"]:
        say(f"gone      {_videos(facts['gone'])} no longer there; to forget: untrimmed rm --gone")


def _otherwise(records: list[VideoRecord], sampling: str) -> str:
    """What was sampled otherwise than the library is now: ``; 1 video at 2 fps``."""
    others = Counter(record.sampling for record in records if record.sampling != sampling)
    return "".join(
        f"; {_videos(count)} {'at' if other.endswith('fps') else 'by'} {other}" for other, count in others.items()
    )


def _here(settings: Settings) -> str:
    """What this processor multiplies in, where the encoder leaves a choice."""
    if settings.products == BUILTIN_PRODUCTS:
        return ", fixed"
    here = choose_format("auto", "cpu")
    return f"; --precision auto is {here.name} on the CPU: {here.reason}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # a writer has just cleared an old version away
        return 0


def rm(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Videos, or folders of them.", parser=parse_path)
    ] = None,
    library: LibraryOption = None,
    gone: Annotated[bool, typer.Option("--gone", help="Forget every video whose file is no longer there.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Forget everything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be forgotten.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --gone: do not ask.")] = False,
) -> None:
    """Forget videos. Only the library changes; your files stay as they are.

    --gone asks first, and keeps what lies on a drive or in a top folder that is missing as a whole (exit code 3): name
    that folder to forget it all the same.
    """
    import untrimmed

    if not (paths or gone or everything):
        raise ConfigError("nothing to forget: name videos or folders, or use --gone or --all")
    opened = untrimmed.open(library)
    wanted = [str(path) for path in paths or ()]
    records = opened.videos() if everything or gone else []
    missing: dict[Path, list[VideoRecord]] = {}
    if everything:
        wanted += [record.path for record in records]
    elif gone:
        lost, missing = find_gone(records)
        if lost and not dry_run and not yes:
            _ask(len(lost))
        wanted += [record.path for record in lost if is_gone(record.path)]  # a drive may be back since the question
    removed = opened.remove(wanted, dry_run=dry_run)
    for record in removed:
        progress_console.print(f"{'would forget' if dry_run else 'forgotten'}  {shown(Path(record.path))}")
    for root, kept in missing.items():
        progress_console.print(
            f"kept  {_videos(len(kept))} below {shown(root)}, where nothing is left: is a drive missing? "
            f"To forget them: untrimmed rm {shlex.quote(str(root))}",
        )
    result_console.print(f"{len(removed)} {'would be ' if dry_run else ''}forgotten")
    if missing:
        raise typer.Exit(SOME_FAILED)


def _ask(count: int) -> None:
    """Go on only if a person says so."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{_videos(count)} gone; see which with --dry-run, and add --yes to forget them")
    if not typer.confirm(f"{_videos(count)} no longer there; forget?", err=True):
        raise typer.Exit(1)


def _videos(count: int) -> str:
    return f"{count} video{'' if count == 1 else 's'}"
