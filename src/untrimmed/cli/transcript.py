"""`untrimmed transcript`: print the subtitles, speech and screen text of a video that are in the library."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.console import NOTHING_FOUND, clock, print_notice, progress_console, result_console
from untrimmed.cli.options import LibraryOption
from untrimmed.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from untrimmed.passages.passage import Passage

_FORMATS = ("text", "srt", "vtt", "json")
TEXT_OPTIONS = {"subtitle": "--subtitles", "speech": "--speech", "screen": "--screen-text"}  # option by source


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
    track: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this track, e.g. film.en.srt.  \\[default: all]")
    ] = None,
) -> None:
    """Print the subtitles, speech and screen text of a video.

    Example: untrimmed transcript film.mp4 --format srt > transcript.srt
    Do not name the output film.srt: the next `untrimmed index` would read it as subtitles.

    Exit code 1: the library has no text for this video.
    """
    import untrimmed
    from untrimmed.passages.languages import is_language
    from untrimmed.passages.source import list_sources

    if form not in _FORMATS:
        raise ConfigError(f"--format is {form!r}, expected one of {', '.join(_FORMATS)}")
    opened = untrimmed.open(library)
    stored = opened.transcript(video)
    known = {*list_sources(), *(passage.source for passage in stored)}
    if source is not None and source not in known:
        raise UnknownNameError.among("source of passages", source, sorted(known))
    if track is not None and track not in (tracks := {passage.track for passage in stored} - {""}):
        raise UnknownNameError.among("track of this video", track, sorted(tracks))
    of_source = [passage for passage in stored if source in (None, passage.source) and track in (None, passage.track)]
    passages = [passage for passage in of_source if language is None or is_language(passage.language, language)]
    if passages or form == "json":
        result_console.print(_render(passages, form), markup=False, end="" if form != "text" else "\n", soft_wrap=True)
    if len(labels := {passage.label for passage in passages}) > 1 and form in ("srt", "vtt"):
        advice = "choose one with --source, --language or --track"
        print_notice(f"the output mixes several texts: {', '.join(sorted(labels))}; {advice}")
    if not passages:
        settings = opened.settings()
        sources = () if settings is None else settings.sources
        progress_console.print(_missing(of_source, source, sources, opened.unread_sources(video)))
        raise typer.Exit(NOTHING_FOUND)


def _missing(of_source: list[Passage], source: str | None, read: Collection[str], unread: Collection[str]) -> str:
    """Return why there is no text, and what to do.

    `of_source` are the passages of the source and track in any language. `read` lists the sources of the
    library, and `unread` those that have not read this video yet.
    """
    if of_source:
        languages = ", ".join(sorted({passage.language or "unknown" for passage in of_source}))
        return f"no text in this language; this video has text in: {languages}"
    if names := [name for name in unread if source in (None, name)]:
        return f"text of this video was not read yet ({', '.join(names)}); to read it: untrimmed index FOLDER"
    of = "" if source is None else f" from {source!r}"
    options = [option for name, option in TEXT_OPTIONS.items() if source in (None, name) and name not in read]
    advice = f"; to read it: untrimmed index {' or '.join(options)}" if options else ""
    return f"the library has no text{of} for this video{advice}"


def _render(passages: list[Passage], form: str) -> str:
    from pathlib import Path

    from untrimmed.exports.counting import ExportedMoment
    from untrimmed.exports.text import to_srt, to_vtt

    if form == "text":
        width = max(len(passage.label) for passage in passages)
        has_labels = len({passage.label for passage in passages}) > 1
        return "\n".join(
            f"{clock(passage.start_s):>9}  {f'{passage.label:{width}}  ' if has_labels else ''}{passage.text}"
            for passage in passages
        )
    if form == "json":
        import json

        return json.dumps([asdict(passage) for passage in passages], ensure_ascii=False, indent=2) + "\n"
    moments = [ExportedMoment(Path(), p.start_s, p.end_s, note=p.text) for p in passages]
    return to_srt(moments) if form == "srt" else to_vtt(moments)
