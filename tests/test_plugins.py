"""Plug-ins are imported by name or file, and again by a run, but only if this user has imported them before."""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests import outside_code
from tests.refusals import refused
from untrimmed import create_model, import_module, list_models, load, plugins
from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError
from untrimmed.models.storage import save_model


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with the module, while no plug-in is registered or trusted."""
    with outside_code.written(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture
def saved(world):
    """A saved model of the module's method. The module is removed afterwards, as in a new process."""
    import_module(world / "code" / "diary.py")
    save_model(create_model("diary_frames+diary_bias", query_dim=4, video_dim=4, dim=8), world / "run")
    outside_code.forget()
    return world / "run"


def rewrite(run, **changes):
    settings = json.loads((run / "config.json").read_text())
    settings["imports"][0] |= changes
    (run / "config.json").write_text(json.dumps(settings))


def hostile(path):
    """Write a module that creates a file when it is executed, and return the path of that file."""
    mark = path.with_name("executed")
    path.write_text(f"open({str(mark)!r}, 'w').close()\n")
    return mark


def test_a_module_that_was_imported_before_is_imported_again(saved):
    assert load(saved).model.name == "diary_frames+diary_bias"


def test_a_module_next_to_a_strangers_run_is_not_executed(saved, monkeypatch):
    stranger = saved.parent / "download" / "run"
    shutil.copytree(saved, stranger)
    mark = hostile(stranger / "evil.py")
    content = plugins.file_sha256(stranger / "evil.py")
    for name, file in (
        ("evil", stranger / "evil.py"),
        ("evil", Path("evil.py")),
        ("evil", saved.parent / "code/diary.py"),
    ):
        rewrite(stranger, name=name, file=str(file), sha256=content)
        monkeypatch.chdir(stranger)
        sys.path.insert(0, "")  # like Python with -m
        with pytest.raises(ConfigError, match=r"evil|diary") as refused:
            load(stranger)
        assert len(str(refused.value).splitlines()) == 1
    assert not mark.exists()
    assert "evil" not in sys.modules


def test_a_package_that_appears_around_a_module_is_not_executed(saved, tmp_path):
    """A stranger's run lists the user's own file as part of a package that was created later."""
    (tmp_path / "code").rename(tmp_path / "notes")
    file, before = tmp_path / "notes" / "diary.py", list(sys.path)
    import_module(file)
    outside_code.forget()
    sys.path[:] = before
    mark = hostile(tmp_path / "notes" / "__init__.py")
    rewrite(saved, name="notes.diary", file=str(file))
    with pytest.raises(ConfigError, match=r"--import notes\.diary"):
        load(saved)
    assert sys.path == before
    assert not mark.exists()


def test_a_package_that_gets_an_init_file_later_is_not_executed(world, monkeypatch):
    package = world / "lab" / "jotter"
    package.mkdir(parents=True)
    shutil.copy(world / "code" / "diary.py", package / "diary.py")
    shutil.copy(world / "code" / "diary_losses.py", world / "lab")
    monkeypatch.chdir(world / "lab")
    import_module("jotter.diary")
    save_model(create_model("diary_frames", query_dim=4, video_dim=4, dim=8), world / "run")
    for name in ("jotter.diary", "jotter"):
        del sys.modules[name]
    outside_code.forget()
    sys.path[:] = [place for place in sys.path if place != str(world / "lab")]
    mark, before = hostile(package / "__init__.py"), list(sys.path)
    with pytest.raises(ConfigError, match=r"jotter/__init__\.py"):
        load(world / "run")
    assert not mark.exists()
    assert sys.path == before


def test_a_changed_module_in_the_same_folder_must_be_imported_again(saved, tmp_path):
    beside = tmp_path / "code" / "diary_losses.py"
    mark = tmp_path / "executed"
    beside.write_text(beside.read_text() + f"\nopen({str(mark)!r}, 'w').close()\n")
    with pytest.raises(ConfigError, match=r"diary_losses\.py"):
        load(saved)
    assert not mark.exists()
    import_module(beside)
    assert load(saved).model.name == "diary_frames+diary_bias"


def test_a_changed_file_must_be_imported_again(saved, tmp_path, caplog):
    file = tmp_path / "code" / "diary.py"
    file.write_text(file.read_text() + "\n# more\n")
    with pytest.raises(ConfigError, match="--import"):
        load(saved)
    import_module(file)
    load(saved)
    assert "diary" in caplog.text


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_file_that_was_not_imported_from_its_path_must_be_named(saved, tmp_path, has_moved):
    if has_moved:
        (tmp_path / "code").rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "user" / "untrimmed" / "imports.json").unlink()
    with refused(ConfigError, "--import", "diary.py"):
        load(saved)
    import_module(tmp_path / ("elsewhere" if has_moved else "code") / "diary.py")
    assert load(saved).model.name == "diary_frames+diary_bias"


@pytest.mark.parametrize("imports", ["evil", [{"name": "evil"}], [3], [{"name": 1, "file": "x", "sha256": "y"}]])
def test_a_damaged_list_of_modules_is_reported(imports, saved):
    settings = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(settings | {"imports": imports}))
    with refused(CheckpointError, "config.json"):
        load(saved)


def test_a_model_of_this_package_lists_no_module(tmp_path):
    save_model(create_model("ms_sl", query_dim=4, video_dim=4, dim=8), tmp_path)
    assert "imports" not in json.loads((tmp_path / "config.json").read_text())


def test_a_module_in_a_package_is_imported_by_name(world, monkeypatch):
    package = world / "lab" / "notes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(world / "code" / "diary.py", package / "diary.py")
    shutil.copy(world / "code" / "diary_losses.py", world / "lab")
    monkeypatch.chdir(world / "lab")  # the current folder is searched last, because a script starts the command line
    assert import_module("notes.diary").file == str(package / "diary.py")
    assert "diary_frames" in list_models()
    del sys.modules["notes.diary"], sys.modules["notes"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no_such_module", "", "no_such_module"),
        ("missing.py", "", r"missing\.py"),
        ("my-method.py", "x = 1", "'my-method'"),
        ("broken.py", "import no_such_package", "ModuleNotFoundError: .*'no_such_package'"),
        ("leaves.py", "import sys; sys.exit()", "SystemExit"),
        ("os", "", "os"),
        ("json.py", "x = 1", "'json'"),
        ("antigravity.py", "x = 1", "'antigravity'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_in_one_line(name, text, message, world):
    before = list(sys.path)
    if text:
        (world / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        import_module(str(world / name) if name.endswith(".py") else name)
    assert sys.path == before


def test_plug_ins_of_installed_packages_are_imported_and_broken_ones_skipped(world, monkeypatch, caplog):
    sys.path.insert(0, str(world / "code"))
    names = ("diary_broken", "diary_leaves", "diary")
    entries = [importlib.metadata.EntryPoint(name, name, plugins.GROUP) for name in names]
    (world / "code" / "diary_broken.py").write_text("1 / 0")
    (world / "code" / "diary_leaves.py").write_text("raise SystemExit(0)")
    monkeypatch.setattr(plugins.importlib.metadata, "entry_points", lambda group: entries)
    monkeypatch.setattr(plugins, "_INSTALLED", set())
    plugins.load_installed.cache_clear()
    assert find_benchmark("pages") is not None
    assert create_model("diary_frames", query_dim=4, video_dim=4, dim=8).name == "diary_frames"
    errors = {"diary_broken": "ZeroDivisionError", "diary_leaves": "SystemExit"}
    messages = [record.getMessage() for record in caplog.records]
    assert all(any(name in line and error in line for line in messages) for name, error in errors.items())


def test_without_its_module_a_method_is_unknown(world):
    with pytest.raises(UnknownNameError):
        create_model("diary_frames", query_dim=4, video_dim=4)
