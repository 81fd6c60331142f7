"""`untrimmed doctor`: check that the program works on this machine, and explain how to fix problems."""

import importlib.util
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from untrimmed.cli.console import USAGE, print_json, result_console
from untrimmed.cli.options import ImportOption, JsonOption, LibraryOption
from untrimmed.errors import UntrimmedError, install_advice, shown

_COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}


@dataclass(frozen=True)
class Finding:
    """The result of one check: ok, note (works but could be better) or bad (does not work)."""

    state: str
    subject: str
    text: str


def doctor(
    library: LibraryOption = None,
    encoder: Annotated[str | None, typer.Option(metavar="NAME", help="Encoder to test.  \\[default: builtin]")] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Model to verify.  \\[default: the library's]")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="First read the whole library, rebuild its caches, and remove damaged videos from it."
        ),
    ] = False,
    as_json: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Check this machine and explain how to fix what fails.

    Checks packages, video decoding, encoders, speech, screen text, the
    library, its model and free disk space. Exit code 2 if something does not
    work.
    """
    findings: list[Finding] = []
    checks: dict[str, Callable[[], Iterator[Finding]]] = {"repair": lambda: _repair(library)} if repair else {}
    checks |= {
        "python": _python,
        "video": _video,
        "encoder": lambda: _encoder(encoder),
        "default": lambda: _default(encoder or "builtin"),
        "speech": lambda: _speech(library),
        "screen": _screen,
        "library": lambda: _library(library),
        "model": lambda: _model(library, model),
    }
    for subject, check in checks.items():
        for finding in _guarded(subject, check):
            findings.append(finding)
            if not as_json:
                mark = (f"{finding.state:4}", _COLOURS[finding.state])
                result_console.print(Text.assemble(mark, f" {finding.subject:9} {finding.text}"))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(USAGE)


def _guarded(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except UntrimmedError as error:
        yield Finding("bad", subject, str(error))


def _python() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    missing = [name for name in ("av", "lance", "numkong", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding("bad", "packages", f"missing: {', '.join(missing)}; {install_advice('video')}")
    if importlib.util.find_spec("torch") is None:
        text = f"not installed; trained models need it; {install_advice('torch')}; hub encoders need the extra 'hub'"
        yield Finding("note", "torch", text)
        return
    import torch

    from untrimmed.devices import choose_device
    from untrimmed.precision import choose_format

    processor = "CUDA" if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    yield Finding("ok", "torch", f"{torch.__version__}, {processor}")
    number_format = choose_format("auto", str(choose_device("auto", mps=True)))
    yield Finding("ok", "precision", f"--precision auto is {number_format.name} here: {number_format.reason}")


def _video() -> Iterator[Finding]:
    if importlib.util.find_spec("av") is None:
        return
    import av

    common = ("h264", "hevc", "av1", "vp9", "mpeg4")
    missing = [name for name in common if name not in av.codecs_available]
    text = f"cannot decode {', '.join(missing)}" if missing else f"decodes {', '.join(common)}"
    yield Finding("note" if missing else "ok", "video", f"PyAV {av.__version__}, {text}")


def _encoder(name: str | None) -> Iterator[Finding]:
    """Load an encoder, which runs its self-test.

    Missing packages of `builtin` are only a note if no encoder is named and the packages of hub encoders are installed.
    """
    from untrimmed.encoders.hub.weights import missing_packages
    from untrimmed.encoders.registry import BUILTIN, load_encoder

    if name is None and not missing_packages() and (problem := _builtin_problem()) is not None:
        yield Finding("note", "encoder", problem)
        return
    loaded = load_encoder(name or BUILTIN)
    products = f"multiplies in {loaded.products}: {loaded.why}"
    yield Finding("ok", "encoder", f"{loaded.encoder.identity}: self-test passed; {products}")


def _default(tested: str) -> Iterator[Finding]:
    """Check that the weights of the default encoder are on disk. Nothing is downloaded.

    If `tested` is the default encoder, `_encoder` has already loaded it, so there is nothing to check.
    """
    from untrimmed.encoders.hub.weights import locate, missing_packages
    from untrimmed.encoders.registry import DEFAULT, ENCODERS
    from untrimmed.errors import EncoderError

    hub_id = ENCODERS[DEFAULT].hub_id
    if hub_id is None or tested in (DEFAULT, hub_id):
        return
    if missing := missing_packages():
        packages = " and ".join(missing)
        text = f"{DEFAULT} needs {packages}, so `index` uses 'builtin'; to change that, {install_advice('hub')}"
        yield Finding("note", "default", text)
        return
    try:
        locate(hub_id, local_files_only=True)
        yield Finding("ok", "default", f"the weights of {DEFAULT} are on this machine")
    except EncoderError:
        fallback = ", or uses 'builtin' without a network" if _builtin_problem() is None else ""
        text = f"the weights of {DEFAULT} are not on this machine yet; `index` downloads them{fallback}"
        yield Finding("note", "default", text)


def _speech(folder: Path | None) -> Iterator[Finding]:
    """Check the packages of speech recognition, and the model that `index --speech` uses for this library.

    The model is not loaded or downloaded.
    """
    from importlib.metadata import version

    import untrimmed
    from untrimmed.passages.source import create_source
    from untrimmed.passages.speech import DETECTOR, Speech
    from untrimmed.passages.speech_model import locate_model, require_packages

    settings = None
    with suppress(UntrimmedError):  # the check of the library reports it
        settings = untrimmed.open(folder).settings()
    stored = {**settings.unused_sources, **settings.sources} if settings else {}
    try:
        source = create_source("speech", stored.get("speech"))
        assert isinstance(source, Speech)
        require_packages()
        DETECTOR.locate()
        locate_model(source.model, download=False)
    except UntrimmedError as error:
        yield Finding("note", "speech", str(error))
        return
    text = f"faster-whisper {version('faster-whisper')}; the model {source.model!r} is on this machine"
    yield Finding("ok", "speech", text)


def _screen() -> Iterator[Finding]:
    """Check the packages and the models that read text in pictures."""
    from untrimmed.errors import EncoderError
    from untrimmed.passages.source import create_source

    try:
        create_source("screen").check()
    except EncoderError as error:
        yield Finding("note", "screen", str(error))
    else:
        yield Finding("ok", "screen", "the models for text on the screen are on this machine")


def _builtin_problem() -> str | None:
    """Return why `builtin` cannot be loaded, or None if all of its packages are installed."""
    from untrimmed.encoders.builtin.encoder import require_packages
    from untrimmed.errors import EncoderError

    try:
        require_packages()
    except EncoderError as error:
        return str(error)
    return None


def _library(folder: Path | None) -> Iterator[Finding]:
    import untrimmed
    from untrimmed.search.store.listing import read_readings
    from untrimmed.search.store.passages import old_words_warnings
    from untrimmed.search.store.records import how_to_make

    library = untrimmed.open(folder)
    if not library.folder.exists():
        yield Finding("note", "library", f"none yet at {library.folder}; {how_to_make(str(library.folder))}")
        return
    records = library.videos()
    yield Finding("ok", "library", f"{library.folder}: {len(records)} videos")
    for warning in old_words_warnings(read_readings(library.folder)):
        yield Finding("note", "passages", warning)
    free = shutil.disk_usage(library.folder).free
    yield Finding("ok" if free > 1e9 else "note", "disk", f"{free / 1e9:.1f} GB free")
    if sys.platform != "linux":
        yield Finding("note", "limits", "the memory limit of the decoding process works only on Linux")


def _repair(folder: Path | None) -> Iterator[Finding]:
    """Read every byte of a library and repair it.

    Damaged videos are removed from the library and must be indexed again from their files.
    """
    import untrimmed
    from untrimmed.search.store.records import THUMBNAILS

    damaged = untrimmed.open(folder).repair()
    for path in damaged.commits:
        advice = "index videos again that were added after the previous commit"
        text = f"{shown(path)}: this commit was damaged and was renamed; the previous commit is used; {advice}"
        yield Finding("bad", "repair", text)
    for path in damaged.files:
        repair = "rebuilt" if path.is_file() else "removed; nothing is lost, searches read the table instead"
        if path.parent.name == THUMBNAILS:
            repair = "removed; to make these thumbnails again: untrimmed index --thumbnails FOLDER"
        yield Finding("note", "repair", f"{shown(path)}: was damaged; {repair}")
    for record in damaged.videos:
        file = shown(Path(record.path))
        command = f"untrimmed index {shlex.quote(file)}"
        yield Finding("bad", "repair", f"{file}: was damaged in the library and is removed; run: {command}")
    for record in damaged.texts:
        text = (
            f"{shown(Path(record.path))}: its damaged passages are removed; to read them again: untrimmed index FOLDER"
        )
        yield Finding("bad", "repair", text)
    if damaged.passages is not None:
        advice = "to read all texts again: untrimmed index FOLDER"
        text = f"{shown(damaged.passages)}: was damaged and was renamed; {advice}"
        yield Finding("bad", "repair", text)
    if not (damaged.files or damaged.videos or damaged.commits or damaged.texts or damaged.passages):
        yield Finding("ok", "repair", "no file of the library is damaged")


def _model(library: Path | None, folder: Path | None) -> Iterator[Finding]:
    """Check that the model in `folder` can be read. Without a folder, check the library's model."""
    from untrimmed.search.corpora.engine import load_search_model
    from untrimmed.search.store.records import library_folder, read_settings

    if folder is not None:
        from untrimmed.models.storage import load_model

        yield Finding("ok", "model", f"{folder}: {load_model(folder).name}, complete")
        return
    place = library_folder(library)
    settings = read_settings(place)
    if settings is not None:
        model_in_library = load_search_model(place, settings.model, settings.model_folder)
        state = "needs no training" if model_in_library.folder is None else "complete"
        source = model_in_library.folder or place
        yield Finding("ok", "model", f"{source}: {model_in_library.identity}, {state}")
