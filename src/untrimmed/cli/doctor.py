"""`untrimmed doctor`: what of the program works on this machine, and what to do about what does not."""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from untrimmed.cli.console import USAGE, result_console
from untrimmed.cli.options import ImportOption, LibraryOption
from untrimmed.errors import UntrimmedError, shown

_COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ok, note (works, could be better) or bad (does not work)."""

    state: str
    subject: str
    text: str


def doctor(
    library: LibraryOption = None,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Load and test this encoder.  \\[default: builtin]", show_default=False),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Test this model.  \\[default: the library's, if any]", show_default=False),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Read all of the library first: make anew what is derived from its table, remove videos that are "
            "damaged in it, and name them.",
        ),
    ] = False,
    imports: ImportOption = None,
) -> None:
    """Check this machine: packages, video decoding, encoders, the library, its model, free disk space.

    Exit code 2 if something does not work.
    """
    bad = False
    checks: dict[str, Callable[[], Iterator[Finding]]] = {"repair": lambda: _repair(library)} if repair else {}
    checks |= {
        "python": _python,
        "video": _video,
        "encoder": lambda: _encoder(encoder),
        "default": lambda: _default(encoder or "builtin"),
        "library": lambda: _library(library),
        "model": lambda: _model(library, model),
    }
    for subject, check in checks.items():
        for finding in _guarded(subject, check):
            mark = (f"{finding.state:4}", _COLOURS[finding.state])
            result_console.print(Text.assemble(mark, f" {finding.subject:9} {finding.text}"))
            bad = bad or finding.state == "bad"
    if bad:
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
        yield Finding("bad", "packages", f"missing: {', '.join(missing)}; run: pip install 'untrimmed[video]'")
    if importlib.util.find_spec("torch") is None:
        text = "not installed; only hub encoders and methods need it: pip install 'untrimmed[hub,train]'"
        yield Finding("note", "torch", text)
        return
    import torch

    from untrimmed.devices import choose_device
    from untrimmed.precision import choose_format

    where = "CUDA" if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    yield Finding("ok", "torch", f"{torch.__version__}, {where}")
    number_format = choose_format("auto", str(choose_device("auto", mps=True)))
    yield Finding("ok", "products", f"--precision auto is {number_format.name} here: {number_format.reason}")


def _video() -> Iterator[Finding]:
    if importlib.util.find_spec("av") is None:
        return
    import av

    common = ("h264", "hevc", "av1", "vp9", "mpeg4")
    lacking = [name for name in common if name not in av.codecs_available]
    state, text = ("note", f"cannot decode {', '.join(lacking)}") if lacking else ("ok", f"decodes {', '.join(common)}")
    yield Finding(state, "video", f"PyAV {av.__version__}, {text}")


def _encoder(name: str | None) -> Iterator[Finding]:
    """That an encoder works; `builtin`, if nobody asked for it, may be missing where hub encoders are installed."""
    from untrimmed.encoders.hub.weights import missing_packages
    from untrimmed.encoders.registry import BUILTIN, load_encoder

    if name is None and not missing_packages() and (lacking := _lacking_of_builtin()) is not None:
        yield Finding("note", "encoder", lacking)
        return
    loaded = load_encoder(name or BUILTIN)
    products = f"multiplies in {loaded.products}: {loaded.why}"
    yield Finding("ok", "encoder", f"{loaded.encoder.identity}: self-test passed; {products}")


def _default(tested: str) -> Iterator[Finding]:
    """Whether the default encoder is here, unless it is the one that was tested; nothing is fetched."""
    from untrimmed.encoders.hub.weights import locate, missing_packages
    from untrimmed.encoders.registry import DEFAULT, ENCODERS
    from untrimmed.errors import EncoderError

    hub_id = ENCODERS[DEFAULT].hub_id
    if hub_id is None or tested in (DEFAULT, hub_id):
        return
    if missing := missing_packages():
        text = f"{DEFAULT} needs {' and '.join(missing)}; `index` uses 'builtin' until: pip install 'untrimmed[hub]'"
        yield Finding("note", "default", text)
        return
    try:
        locate(hub_id, local_files_only=True)
        yield Finding("ok", "default", f"the weights of {DEFAULT} are here")
    except EncoderError:
        otherwise = ", or uses 'builtin' without a network" if _lacking_of_builtin() is None else ""
        yield Finding("note", "default", f"the weights of {DEFAULT} are not here yet; `index` fetches them{otherwise}")


def _lacking_of_builtin() -> str | None:
    """What keeps `builtin` from being loaded for want of packages."""
    from untrimmed.encoders.builtin.encoder import require_packages
    from untrimmed.errors import EncoderError

    try:
        require_packages()
    except EncoderError as error:
        return str(error)
    return None


def _library(folder: Path | None) -> Iterator[Finding]:
    import untrimmed

    library = untrimmed.open(folder)
    if not library.folder.exists():
        yield Finding("note", "library", f"none yet at {library.folder}; make one with: untrimmed index FOLDER")
        return
    records = library.videos()
    yield Finding("ok", "library", f"{library.folder}: {len(records)} videos")
    free = shutil.disk_usage(library.folder).free
    yield Finding("ok" if free > 1e9 else "note", "disk", f"{free / 1e9:.1f} GB free")
    if sys.platform != "linux":
        yield Finding("note", "limits", "the memory limit of the decoding process is enforced on Linux alone")


def _repair(folder: Path | None) -> Iterator[Finding]:
    """Every byte of a library; damaged videos can only be had from their files again."""
    import untrimmed

    found = untrimmed.open(folder).repair()
    for path in found.files:
        done = "made anew" if path.is_file() else "removed, and nothing is lost: searches have it from the table"
        yield Finding("note", "repair", f"{shown(path)}: was damaged; {done}")
    for record in found.videos:
        file = shown(Path(record.path))
        again = f"untrimmed index {shlex.quote(file)}"
        yield Finding("bad", "repair", f"{file}: was damaged in the library and is removed; run: {again}")
    if not found.files and not found.videos:
        yield Finding("ok", "repair", "all of the library is as it was written")


def _model(library: Path | None, folder: Path | None) -> Iterator[Finding]:
    """That a trained model can be read: the one asked about, else the one that the library searches with."""
    from untrimmed.search.corpora.engine import model_in_use
    from untrimmed.search.store.records import library_folder, read_settings

    if folder is not None:
        from untrimmed.models.storage import load_model

        yield Finding("ok", "model", f"{folder}: {load_model(folder).name}, whole")
        return
    place = library_folder(library)
    settings = read_settings(place)
    if settings is not None:
        used = model_in_use(place, settings.model, settings.model_folder)
        where = "needs no training" if used.folder is None else "whole"
        yield Finding("ok", "model", f"{used.folder or place}: {used.identity}, {where}")
