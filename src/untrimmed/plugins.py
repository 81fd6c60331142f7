"""Code from outside the package: modules that register methods, attachments, losses, benchmarks and layouts.

There are three ways in: a module that a program imports by itself, one that `--import` or `import_module` names, and an
installed package whose entry points in the group `untrimmed.plugins` name its modules. A saved model names those it
needs, so that it is opened again without being told. Naming is no permission: a folder may come from a stranger. Only a
file that this user has imported before, by the same name, at the same place and with the same content, is executed
because a folder names it (`require`), and the same holds for every file that is imported with it: packages above it,
modules beside it. Of installed packages nothing is asked. What was imported is noted in the user's own folder, never
beside the model.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

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
            except (Exception, SystemExit) as error:  # a script calls sys.exit
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
            with _only_trusted(place):
                _execute(source)
        elif not Path(there).is_file() or file_sha256(Path(there)) != source.sha256:
            logger.warning("%s: made with other code of %s than that of %s", place, source.name, there)


def trust(sources: Iterable[Source]) -> None:
    """Note that this user has run these files and those imported with them, as they are now.

    Models that name them are opened without being told.
    """
    asked = list(sources)
    noted = _trusted()
    wanted = noted | {(source.name, source.file): source for source in [*asked, *(_imported() if asked else ())]}
    if wanted != noted:
        try:
            write_whole(_note(), json.dumps(plain(wanted.values()), indent=1))
        except OSError as error:
            logger.warning("%s: cannot be written (%s); name modules with --import each time", _note(), error.strerror)


class _RefusedError(ConfigError):
    """A folder names code, or code that it names imports some, that this user has not run as it is."""


class _Guard(MetaPathFinder):
    """Finds nothing, and stops the import of a file that this user has not run before by this name, as it is now."""

    def __init__(self, place: Path | str):
        self._place = place

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        spec = None if fullname in sys.builtin_module_names else PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.has_location and not _is_installed(spec.origin):
            _require_trust(Source(fullname, str(Path(spec.origin).resolve()), ""), self._place)
        return None


@contextmanager
def _only_trusted(place: Path | str) -> Iterator[None]:
    """Nothing but what this user has run before, and what is installed, can be imported meanwhile."""
    guard = _Guard(place)
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


def _imported() -> Iterator[Source]:
    """Yield all modules that are imported from files, except the program and what `_is_installed`."""
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if file and name != "__main__" and not _is_installed(file):
            with suppress(OSError):
                yield _source(name, Path(file))


@cache
def _installed_folders() -> tuple[str, ...]:
    python = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    this_package = str(Path(__file__).parent)  # an editable install has it elsewhere
    folders = (*python, *site.getsitepackages(), site.getusersitepackages(), this_package)
    return tuple({os.path.realpath(folder) + os.sep for folder in folders})


def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python, to this package or to an installed one: no other folder can bring it."""
    return os.path.realpath(file).startswith(_installed_folders())


def _require_trust(source: Source, place: Path | str) -> None:
    path, known = Path(source.file), _trusted().get((source.name, source.file))
    by_name = source.name != path.stem  # of a package, whose modules go by its name
    given = source.name if by_name else shown(path)
    step = f"look at it, then add --import {given}"
    if not path.is_file():
        wrong, step = "is not there", f"add --import and where it is now, instead of {given}"
    elif known is None:
        wrong = "has not been imported by you before" + (f" as {source.name!r}" if by_name else "")
    elif known.sha256 != file_sha256(path):
        wrong = "has changed since you last imported it"
    else:
        return
    raise _RefusedError(f"{place}: needs the code of {shown(path)}, which {wrong}; {step} (in Python: import_module)")


def _note() -> Path:
    return Path(platformdirs.user_data_path("untrimmed")) / "imports.json"


def _trusted() -> dict[tuple[str, str], Source]:
    """What this user has run, by name and file."""
    try:
        noted = read_sources(json.loads(_note().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    return {(source.name, source.file): source for source in noted}


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
    if spec is not None and spec.origin in ("built-in", "frozen"):
        raise ConfigError(f"import {module}: is part of Python itself, which registers nothing; give a module of yours")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(f"import {module}: no such module on Python's path or in the current folder; give its file")
    return _source(module, Path(spec.origin))


def _spec(module: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`, which would import the packages above, and in the current folder too."""
    top, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    except _RefusedError:
        raise
    except ValueError:  # of a module that is imported and has no spec, as a program has none
        return None
    for depth in range(len(below)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = ".".join([top, *below[: depth + 1]])
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


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
    before = list(sys.path)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that nothing in it hides another module
        importlib.invalidate_caches()
    try:
        _import_found(source, path)
    except ConfigError:
        sys.path[:] = before
        raise


def _import_found(source: Source, path: Path) -> None:
    spec = _spec(source.name)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:  # told before anything is executed
        found = "nothing" if spec is None else spec.origin
        raise ConfigError(f"import {source.file}: Python finds {found} by the name {source.name!r}; rename yours")
    try:
        importlib.import_module(source.name)
    except _RefusedError:
        raise
    except (Exception, SystemExit) as error:  # a script calls sys.exit
        what = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"import {source.file}: {what}; correct the module") from error


def read_sources(values: object) -> list[Source]:
    """The modules that a file names, from what `plain` gave.

    Raises: ValueError for anything else.
    """
    if not isinstance(values, list) or not all(
        isinstance(entry, Mapping) and {*map(type, entry.values())} == {str} for entry in values
    ):
        raise ValueError("imports: expected a list of name, file and sha256")
    try:
        return [Source(**entry) for entry in values]
    except TypeError as error:
        raise ValueError(f"imports: {error}") from error


def plain(sources: Iterable[Source]) -> list[dict[str, str]]:
    """The modules as a file names them."""
    return [asdict(source) for source in sources]
