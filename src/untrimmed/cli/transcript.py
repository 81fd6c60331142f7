"""`untrimmed transcript`: print the subtitles, speech and screen text of a video that are in the library."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.console import NOTHING_FOUND, clock, progress_console, result_console
from untrimmed.cli.options import LibraryOption
from untrimmed.errors import ConfigError

if TYPE_CHECKING:
    from untrimmed.passages.passage import Passage

_FORMATS = ("text", "srt", "vtt", "json")


def transcript(
    video: Annotated[str, typer.Argument(metavar="FILE", help="Path, name or id of an indexed video.")],
    library: LibraryOption = None,
    form: Annotated[str, typer.Option("--format", metavar="NAME", help=f"One of: {', '.join(_FORMATS)}.")] = "text",
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this source: subtitle, speech or screen.  \\[default: all]")
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only this language, e.g. en.  \\[default: all]")
    ] = None,
) -> None:
    """Print the subtitles, speech and screen text of a video.

    Example: untrimmed transcript film.mp4 --format srt > film.srt

    Exit code 1: the library has no text of this video.
    """
    import untrimmed

    if form not in _FORMATS:
        raise ConfigError(f"--format is {form!r}, expected one of {', '.join(_FORMATS)}")
    passages = [
        passage
        for passage in untrimmed.open(library).transcript(video)
        if source in (None, passage.source) and language in (None, passage.language)
    ]
    if not passages and form != "json":
        progress_console.print("no text of this video; add some with: untrimmed index --subtitles FILE")
        raise typer.Exit(NOTHING_FOUND)
    result_console.print(_render(passages, form), markup=False, end="" if form != "text" else "\n", soft_wrap=True)


def _render(passages: list[Passage], form: str) -> str:
    from pathlib import Path

    from untrimmed.exports.counting import ExportedMoment
    from untrimmed.exports.text import to_srt, to_vtt

    if form == "text":
        return "\n".join(f"{clock(passage.start_s):>9}  {passage.text}" for passage in passages)
    if form == "json":
        import json

        return json.dumps([asdict(passage) for passage in passages], ensure_ascii=False, indent=2) + "\n"
    moments = [ExportedMoment(Path(), p.start_s, p.end_s, note=p.text) for p in passages]
    return to_srt(moments) if form == "srt" else to_vtt(moments)
