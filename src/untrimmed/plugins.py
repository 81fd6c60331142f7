"""Code from outside the package: modules that register methods, attachments, losses, benchmarks and layouts.

There are three ways in: a module that a program imports by itself, one that `--import` or `import_module` names, and an
installed package whose entry points in the group `untrimmed.plugins` name its modules. A saved model names those it
needs, so that it is opened again without being told. Naming is no permission: a folder may come from a stranger. Only a
file that this user has imported before, at the same place and with the same content, is executed because a folder
names it (`require`); what was imported is noted in the user's own folder, never beside the model.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import platformdirs

from untrimmed.errors import ConfigError, one_line, require_type, shown
from untrimmed.files import file_sha256, write_whole

GROUP = "untrimmed.plugins"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A module as saved models name it: what it is imported as, its file, and the content of that."""

    name: str
    file: str
    sha256: str


_IMPORTED: dict[str, Source] = {}  # by `import_module`
_INSTALLED: set[str] = set()  # entry points that were tried: their modules may ask for all names while they register


def import_module(module: str | os.PathLike[str]) -> Source:
    """Import a module by its name, or a `.py` file by its path, so that what it registers is there by name.

    Names are looked up as in Python and then in the current folder; modules beside a file are found by it. Models that
    are saved afterwards name it, and are opened again on this machine without being told.

    Raises: ConfigError when it is not there, or an error ends it.
    """
    require_type(module, str | os.PathLike, "import", "the name of a module, or the path of a .py file")
    source = _find(os.fspath(module))
    _execute(source)
    _IMPORTED[source.name] = source
    trust([source])
    return source


@cache
def load_installed() -> None:
    """Import the modules that installed packages announce, once; one that fails is told in the log and left out."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.value not in _INSTALLED:
            _INSTALLED.add(entry.value)
            try:
                entry.load()
            except Exception as error:
                what = f"{type(error).__name__}: {one_line(error)}"
                logger.warning("plug-in %s (%s) left out: %s; repair or uninstall it", entry.name, entry.value, what)


def sources_of(classes: Iterable[type]) -> list[Source]:
    """The modules that were asked for by `import_module`, and those from outside this package that hold some classes.

    A class of a program that is run as such (`__main__`) has none: importing it would run the program again.
    """
    found = dict(_IMPORTED)
    for name in dict.fromkeys(cls.__module__ for cls in classes):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and name not in found and name.partition(".")[0] not in ("untrimmed", "__main__"):
            with suppress(OSError):
                found[name] = _source(name, Path(file))
    return list(found.values())


def require(wanted: Iterable[Source], place: Path | str) -> None:
    """Have the modules imported that a saved model names; `place` is where it lies.

    Raises: ConfigError for one that is neither there already nor one that this user has imported before, unchanged.
    """
    load_installed()
    for source in wanted:
        there = getattr(sys.modules.get(source.name), "__file__", None)
        if there is None:
            _require_trust(source, place)
            _execute(source)
        elif not Path(there).is_file() or file_sha256(Path(there)) != source.sha256:
            logger.warning("%s: made with other code of %s than that of %s", place, source.name, there)


def trust(sources: Iterable[Source]) -> None:
    """Note that this user has run these files, as they are now; models that name them are opened without being told."""
    noted = _trusted()
    wanted = noted | {source.file: source.sha256 for source in sources}
    if wanted != noted:
        try:
            write_whole(_note(), json.dumps(wanted, indent=1))
        except OSError as error:
            logger.warning("%s: cannot be written (%s); name modules with --import each time", _note(), error.strerror)


def _require_trust(source: Source, place: Path | str) -> None:
    path, known = Path(source.file), _trusted().get(source.file)
    step = "look at it, then add --import"
    if not path.is_file():
        wrong, step = "is not there", "add --import and where it is now, instead of"
    elif known is None:
        wrong = "has not been imported by you before"
    elif known != file_sha256(path):
        wrong = "has changed since you last imported it"
    else:
        return
    raise ConfigError(
        f"{place}: needs the code of {shown(path)}, which {wrong}; {step} {shown(path)} (in Python: import_module)"
    )


def _note() -> Path:
    return Path(platformdirs.user_data_path("untrimmed")) / "imports.json"


def _trusted() -> dict[str, str]:
    try:
        noted = json.loads(_note().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _find(module: str) -> Source:
    """Where a module is, without executing anything."""
    if module.endswith(".py") or os.sep in module:
        path = Path(module).expanduser().resolve()
        if not path.is_file() or path.suffix != ".py":
            raise ConfigError(f"import {module}: no such .py file; give the path of one, or the name of a module")
        if not path.stem.isidentifier():
            raise ConfigError(f"import {module}: {path.stem!r} is no name of a module; rename the file")
        return _source(path.stem, path)
    spec = _spec(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(f"import {module}: no such module on Python's path or in the current folder; give its file")
    return _source(module, Path(spec.origin))


def _spec(module: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`, which would import the packages above, and in the current folder too."""
    top, *below = module.split(".")
    with suppress(ValueError):  # of a module that is imported and has no spec, as a program has none
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
        for depth in range(len(below)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            name = ".".join([top, *below[: depth + 1]])
            spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
        return spec
    return None


def _source(name: str, path: Path) -> Source:
    return Source(name, str(path.resolve()), file_sha256(path))


def _execute(source: Source) -> None:
    """Import a module from its file, unless it is imported already.

    Raises: ConfigError when another module has its name, or an error ends it.
    """
    there = sys.modules.get(source.name)
    if there is not None:
        file = getattr(there, "__file__", None)
        if file is None or Path(file).resolve() != Path(source.file):
            raise ConfigError(
                f"import {source.file}: module {source.name!r} is {file or 'Python itself'}; rename yours"
            )
        return
    path = Path(source.file)
    levels = source.name.count(".") + (path.name == "__init__.py")
    folder = str(path.parents[min(levels, len(path.parents) - 1)])  # from where it is imported by its name
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that nothing in it hides another module
        importlib.invalidate_caches()
    spec = _spec(source.name)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:  # told before anything is executed
        found = "nothing" if spec is None else spec.origin
        raise ConfigError(f"import {source.file}: Python finds {found} by the name {source.name!r}; rename yours")
    try:
        importlib.import_module(source.name)
    except Exception as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"import {source.file}: {what}; correct the module") from error


def read_sources(values: object) -> list[Source]:
    """The modules that a file names, from what `plain` gave.

    Raises: ValueError for anything else.
    """
    if not isinstance(values, list) or not all(
        isinstance(entry, Mapping) and {*map(type, entry.values())} == {str} for entry in values
    ):
        raise ValueError("imports: wanted a list of name, file and sha256")
    try:
        return [Source(**entry) for entry in values]
    except TypeError as error:
        raise ValueError(f"imports: {error}") from error


def plain(sources: Iterable[Source]) -> list[dict[str, str]]:
    """The modules as a file names them."""
    return [asdict(source) for source in sources]
