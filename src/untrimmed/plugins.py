"""Import plug-ins: modules outside the package that register methods, attachments, losses, benchmarks and layouts.

A plug-in is imported by the user's program, by `--import` or `import_module`, or because an installed package lists the
plug-in in its entry points (group `untrimmed.plugins`). A saved model lists the plug-ins that it needs. `require`
imports them when the model is loaded.

A model may come from a stranger, so `require` executes only trusted files, and trusted files may import only trusted
files. A file is trusted if this user has imported it before, and its module name, path and content are unchanged.
Installed packages are always trusted. The list of trusted files is in the user's data folder, never next to the model.
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
from typing import Any

import platformdirs

from untrimmed.errors import ConfigError, UntrimmedError, nearest, one_line, require_type, shown
from untrimmed.files import file_sha256, write_whole

GROUP = "untrimmed.plugins"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PluginModule:
    """An entry of a saved model's list of plug-ins: the module's name, its file, and the hash of the file."""

    name: str
    file: str
    sha256: str


_IMPORTED: dict[str, PluginModule] = {}  # modules that `import_module` has imported
# Entry points that `load_installed` has tried. Loading an entry point may call `load_installed` again.
_INSTALLED: set[str] = set()


def import_module(module: str | os.PathLike[str]) -> PluginModule:
    """Import a plug-in: a module by its name, or a `.py` file by its path.

    Modules are searched for on Python's path and then in the current folder. A file can import modules from its own
    folder. A model that is saved after this call lists the plug-in. This user can load such models without importing
    the plug-in first.

    Raises: ConfigError if the module does not exist or raises an error.
    """
    require_type(module, str | os.PathLike, "import", "the name of a module, or the path of a .py file")
    plugin = _find(os.fspath(module))
    import_again(plugin)
    trust([plugin])
    return plugin


def load_object(reference: str) -> Any:
    """Return the function or class MODULE:NAME or FILE.py:NAME.

    The module is searched for as in `import_module`. Models that are saved afterwards do not list the module.

    Raises: ConfigError if the module cannot be imported, or has no such name.
    """
    module_name, _, path = reference.rpartition(":")
    if module_name not in sys.modules:
        plugin = _find(module_name)
        _execute(plugin)
        module_name = plugin.name
    value: Any = sys.modules[module_name]
    for name in path.split("."):
        if not hasattr(value, name):
            public = {key: item for key, item in vars(value).items() if not key.startswith("_")}
            names = [key for key, item in public.items() if not isinstance(item, ModuleType)]
            raise ConfigError(f"{reference}: {module_name} has no {name!r}{nearest(name, names)}; correct the name")
        value = getattr(value, name)
    return value


def imported() -> list[PluginModule]:
    """Return the modules imported by `import_module`. Another process can import them with `import_again`."""
    return list(_IMPORTED.values())


def import_again(plugin: PluginModule) -> None:
    """Import a module that another process of this program has imported.

    Raises: ConfigError, as for `import_module`.
    """
    _execute(plugin)
    _IMPORTED[plugin.name] = plugin


@cache
def load_installed() -> None:
    """Import the plug-ins of installed packages at the first call. If a plug-in fails, a warning is logged."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.value not in _INSTALLED:
            _INSTALLED.add(entry.value)
            try:
                entry.load()
            except (Exception, SystemExit) as error:  # scripts may call sys.exit
                reason = f"{type(error).__name__}: {one_line(error)}"
                logger.warning("plug-in %s (%s) left out: %s; fix or uninstall it", entry.name, entry.value, reason)


def plugins_of(classes: Iterable[type]) -> list[PluginModule]:
    """Return the modules imported by `import_module`, and the modules outside this package that define `classes`.

    `__main__` is omitted, because importing it would run the user's program again.
    """
    plugins = dict(_IMPORTED)
    for name in dict.fromkeys(cls.__module__ for cls in classes):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and name not in plugins and name.partition(".")[0] not in ("untrimmed", "__main__"):
            with suppress(OSError):
                plugins[name] = _plugin(name, Path(file))
    return list(plugins.values())


def require(plugins: Iterable[PluginModule], folder: Path | str) -> None:
    """Import the plug-ins that the saved model in `folder` lists.

    Raises: ConfigError for a plug-in that is not yet imported and not trusted.
    """
    load_installed()
    for plugin in plugins:
        imported_file = getattr(sys.modules.get(plugin.name), "__file__", None)
        if imported_file is None:
            _require_trust(plugin, folder)
            with _only_trusted(folder):
                _execute(plugin)
        elif has_changed(plugin):
            logger.warning(
                "%s: the model was saved with another version of %s than %s", folder, plugin.name, imported_file
            )


def has_changed(plugin: PluginModule) -> bool:
    """Return whether the imported module of this name differs from the recorded version of the plug-in."""
    file = getattr(sys.modules.get(plugin.name), "__file__", None)
    return file is not None and (not Path(file).is_file() or file_sha256(Path(file)) != plugin.sha256)


def trust(plugins: Iterable[PluginModule]) -> None:
    """Add these plug-ins, and all files that are already imported, to the user's list of trusted files."""
    new = list(plugins)
    trusted = _trusted()
    extended = trusted | {(plugin.name, plugin.file): plugin for plugin in [*new, *(_imported() if new else ())]}
    if extended != trusted:
        file = _trust_file()
        try:
            write_whole(file, json.dumps(plain(extended.values()), indent=1))
        except OSError as error:
            logger.warning(
                "%s: cannot be written (%s); name modules with --import (in Python: import_module) each time",
                file,
                error.strerror,
            )


class _RefusedError(ConfigError):
    """A model lists a file that is not trusted, or a trusted file imports a file that is not trusted."""


class _Guard(MetaPathFinder):
    """An import hook that refuses files that are not trusted."""

    def __init__(self, folder: Path | str):
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        spec = None if fullname in sys.builtin_module_names else PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.has_location and not is_installed(spec.origin):
            _require_trust(PluginModule(fullname, str(Path(spec.origin).resolve()), ""), self._folder)
        return None


@contextmanager
def _only_trusted(folder: Path | str) -> Iterator[None]:
    """Return a context in which only trusted and installed modules can be imported."""
    guard = _Guard(folder)
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


def _imported() -> Iterator[PluginModule]:
    """Yield all modules that are imported from files, except `__main__` and installed modules."""
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if file and name != "__main__" and not is_installed(file):
            with suppress(OSError):
                yield _plugin(name, Path(file))


@cache
def _installed_folders() -> tuple[str, ...]:
    python = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    this_package = str(Path(__file__).parent)  # outside the other folders if the install is editable
    folders = (*python, *site.getsitepackages(), site.getusersitepackages(), this_package)
    return tuple({os.path.realpath(folder) + os.sep for folder in folders})


def is_installed(file: str) -> bool:
    """Whether a file belongs to Python, to this package or to an installed package."""
    return os.path.realpath(file).startswith(_installed_folders())


def _require_trust(plugin: PluginModule, folder: Path | str) -> None:
    path = Path(plugin.file)
    trusted = _trusted().get((plugin.name, plugin.file))
    is_in_package = plugin.name != path.stem  # a module in a package is imported by its dotted name
    argument = plugin.name if is_in_package else shown(path)
    step = f"read it, then add --import {argument}"
    if not path.is_file():
        problem = "does not exist"
        step = f"add --import with its present path instead of {argument}"
    elif trusted is None:
        problem = "you have not imported before" + (f" as {plugin.name!r}" if is_in_package else "")
    elif trusted.sha256 != file_sha256(path):
        problem = "has changed since you last imported it"
    else:
        return
    raise _RefusedError(
        f"{folder}: needs the code of {shown(path)}, which {problem}; {step} (in Python: import_module)"
    )


def _trust_file() -> Path:
    return Path(platformdirs.user_data_path("untrimmed")) / "imports.json"


def _trusted() -> dict[tuple[str, str], PluginModule]:
    """Return the user's list of trusted files as {(module name, file): module}."""
    try:
        plugins = read_plugins(json.loads(_trust_file().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    return {(plugin.name, plugin.file): plugin for plugin in plugins}


def _find(module: str) -> PluginModule:
    """Return the name, file and hash of a module, without executing any code.

    Raises: ConfigError if there is no such module or file.
    """
    if module.endswith(".py") or os.sep in module:
        path = Path(module).expanduser().resolve()
        if not path.is_file() or path.suffix != ".py":
            raise ConfigError(f"import {module}: no such .py file; name an existing file, or a module")
        if not path.stem.isidentifier():
            raise ConfigError(f"import {module}: {path.stem!r} is not a valid module name; rename the file")
        return _plugin(path.stem, path)
    spec = _spec(module)
    if spec is not None and spec.origin in ("built-in", "frozen"):
        raise ConfigError(f"import {module}: is a part of Python, which registers nothing; name your own module")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(f"import {module}: no such module on Python's path or in the current folder; name its file")
    return _plugin(module, Path(spec.origin))


def _spec(module: str) -> ModuleSpec | None:
    """Return the spec of a module, like `importlib.util.find_spec`, or None if there is no such module.

    Unlike `importlib.util.find_spec`, this does not import parent packages, and also searches the current folder.
    """
    top, *children = module.split(".")
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    except _RefusedError:
        raise
    except ValueError:  # the module is imported and has no spec, e.g. the program itself
        return None
    for depth in range(len(children)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = ".".join([top, *children[: depth + 1]])
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _plugin(name: str, path: Path) -> PluginModule:
    return PluginModule(name, str(path.resolve()), file_sha256(path))


def _execute(plugin: PluginModule) -> None:
    """Import a module from its file, unless the module is already imported.

    Raises: ConfigError if another module has the same name, or if the module raises an error.
    """
    module = sys.modules.get(plugin.name)
    if module is not None:
        file = getattr(module, "__file__", None)
        if file is None or Path(file).resolve() != Path(plugin.file):
            raise ConfigError(
                f"import {plugin.file}: the name {plugin.name!r} belongs to {file or 'Python itself'}; rename your file"
            )
        return
    path = Path(plugin.file)
    levels = plugin.name.count(".") + (path.name == "__init__.py")
    folder = str(path.parents[min(levels, len(path.parents) - 1)])  # the folder that must be on Python's path
    old_path = list(sys.path)
    if folder not in sys.path:
        sys.path.append(folder)  # the folder is last, so that nothing in it hides another module
        importlib.invalidate_caches()
    try:
        _import(plugin, path)
    except ConfigError:
        sys.path[:] = old_path
        raise


def _import(plugin: PluginModule, path: Path) -> None:
    spec = _spec(plugin.name)
    # check this before any code is executed
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        other_file = "nothing" if spec is None else spec.origin
        raise ConfigError(f"import {plugin.file}: Python finds {other_file} for {plugin.name!r}; rename your file")
    try:
        importlib.import_module(plugin.name)
    except _RefusedError:
        raise
    except UntrimmedError as error:
        raise ConfigError(f"import {plugin.file}: {error}") from error
    except (Exception, SystemExit) as error:  # scripts may call sys.exit
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"import {plugin.file}: {reason}; fix the module") from error


def read_plugins(values: object) -> list[PluginModule]:
    """Return the list of plug-ins from the result of `plain`.

    Raises: ValueError for any other value.
    """
    if not isinstance(values, list) or not all(
        isinstance(entry, Mapping) and {*map(type, entry.values())} == {str} for entry in values
    ):
        raise ValueError("imports: expected a list of name, file and sha256")
    try:
        return [PluginModule(**entry) for entry in values]
    except TypeError as error:
        raise ValueError(f"imports: {error}") from error


def plain(plugins: Iterable[PluginModule]) -> list[dict[str, str]]:
    """Return plug-ins as values that can be stored as JSON."""
    return [asdict(plugin) for plugin in plugins]
