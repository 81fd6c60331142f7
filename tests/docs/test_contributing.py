"""The files of the example in CONTRIBUTING run with the package from the source tree, a wheel, an editable install."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.toy import write_clip
from untrimmed import evaluate, import_module, plugins, train
from untrimmed.data import layouts
from untrimmed.data.check import check_dataset

pytestmark = pytest.mark.check

ROOT = Path(__file__).resolve().parents[2]
CLIPS = {
    "flag": ["red", "white", "green"],
    "sea": ["blue", "blue", "white", "blue"],
    "sun": ["yellow", "red"],
    "wood": ["green"],
    "snow": ["white"],
    "dusk": ["red", "blue"],
}
# A toy encoder with the widths of `builtin`, for which the example is written.
TOY = """
import runpy
import sys

import numpy as np

from tests.toy import ToyEncoder
from untrimmed.cli.app import start
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library
from untrimmed.types import TextFeatures


class Wide(ToyEncoder):
    frame_dim, word_dim = 397, 384

    def encode_frames(self, frames):
        return np.pad(super().encode_frames(frames), ((0, 0), (0, 393)))

    def _text(self, text):
        features = super()._text(text)
        sentence, words = np.pad(features.sentence, (0, 393)), np.pad(features.words, ((0, 0), (0, 380)))
        return TextFeatures(text, sentence, words, features.tokens)


library.load_encoder = lambda *_, **__: LoadedEncoder(Wide(), None)
"""


def write_files(folder):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name, body in re.findall(r"(?ms)^```\w+\n# (\w+\.\w+)\n(.*?)^```", text):
        (folder / name).write_text(body, encoding="utf-8")


INSTALL = ("install", "--no-deps", "--no-build-isolation", "--no-index")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the files that the package is built from."""
    pytest.importorskip("setuptools", minversion="77", reason="the package is built with setuptools 77 or later")
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, sources):
    """A folder in which the package is installed from a wheel."""
    installed = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--no-input"]
    run_program([*pip, *INSTALL, "--target", str(installed), str(sources)])
    return Python(sys.executable, installed, (installed, ROOT))


@pytest.fixture(scope="module")
def editable(tmp_path_factory, sources):
    """A virtual environment with an editable install. Other packages are those of the environment of the tests."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    executable = environment / "bin" / "python"
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    (own,) = environment.glob("lib/python*/site-packages")
    (own / "packages_of_the_tests.pth").write_text("".join(f"{folder}\n" for folder in dict.fromkeys(folders)))
    pip = [sys.executable, "-m", "pip", "--no-input", "--python", str(executable)]
    run_program([*pip, *INSTALL, "--ignore-installed", "--editable", str(sources)], PYTHONPATH="")
    return Python(str(executable), sources / "src", (ROOT,))


def run_program(command, folder=None, **environment):
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | environment)
    assert process.returncode == 0, process.stderr
    return process.stdout


@dataclass(frozen=True)
class Python:
    """Runs Python code in new processes, in which the package must come from a folder."""

    executable: str
    package: Path
    path: tuple[Path, ...]

    def command(self, code, arguments):
        check = f"import untrimmed\nassert untrimmed.__file__.startswith({str(self.package)!r})\n"
        return [self.executable, "-c", check + code, *map(str, arguments)]

    @property
    def environment(self):
        return {"PYTHONPATH": os.pathsep.join(map(str, self.path))}

    def __call__(self, code, *arguments, folder):
        return run_program(self.command(code, arguments), folder, **self.environment)

    @contextmanager
    def serving(self, code, *arguments, folder):
        """The address of a service in another process."""
        command = self.command(code, ["serve", "--port", 0, *arguments])
        environment = os.environ | self.environment
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
            try:
                yield process.stdout.readline().strip()
            finally:
                process.kill()


@pytest.fixture(
    scope="module", params=["source", *(pytest.param(name, marks=pytest.mark.slow) for name in ("wheel", "editable"))]
)
def python(request):
    """Python with the package from the source tree, a wheel or an editable install."""
    if request.param == "source":
        return Python(sys.executable, ROOT / "src", (ROOT / "src", ROOT))
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def example(tmp_path_factory, python):
    """A folder with the example's files, six clips and captions; and the output of the example's program."""
    folder = tmp_path_factory.mktemp("example")
    write_files(folder)
    (folder / "videos").mkdir()
    captions = []
    for number, (name, colours) in enumerate(CLIPS.items()):
        write_clip(folder / "videos" / f"{name}.mp4", colours)
        split = ("train", "train", "val", "test")[number % 4]
        captions += [
            {"video": name, "caption": f"it is {colour}", "start_s": 2 * i, "end_s": 2 * i + 2, "split": split}
            for i, colour in enumerate(colours)
        ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in captions), encoding="utf-8")
    program = TOY + 'sys.path.insert(0, "")\nrunpy.run_path("try_it.py")\n'
    return folder, python(program, folder=folder)


def test_training_includes_the_term_of_the_attachment(example):
    folder, _ = example
    epochs = [json.loads(line) for line in (folder / "runs/mine/metrics.jsonl").read_text("utf-8").splitlines()]
    assert len(epochs) == 5
    assert all(epoch["loss"] == pytest.approx(epoch["nce"] + 0.1 * epoch["spread"]) for epoch in epochs)
    assert all(epoch["spread"] > 0 for epoch in epochs)


def test_the_program_evaluates_and_searches(example):
    folder, printed = example
    assert "best_frame+spread" in printed
    hits = re.findall(r"(?m)^(\w+)\.mp4 ([\d.]+) ([\d.]+) (-?[\d.]+)$", printed)
    assert sorted(hit[0] for hit in hits) == sorted(CLIPS)
    scores = [float(hit[3]) for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
    assert json.loads((folder / "library/library.json").read_text("utf-8"))["model"].startswith("best_frame+spread:")


def test_later_commands_import_the_files_again(example, python):
    def untrimmed(*words):
        return python(TOY + "start()\n", *words, folder=example[0])

    untrimmed(
        *("train", "best_frame+spread", "--import", "best_frame.py", "--import", "spread.py", "--data", "mine"),
        *("--root", "data", "--out", "runs/typed", "--preset", "best_frame.yaml"),
    )
    assert "best_frame+spread on mine, test" in untrimmed("evaluate", "runs/typed")
    untrimmed("plot", "moment-ratio", "runs/typed", "--out", "ratio.svg")
    assert (example[0] / "ratio.svg").is_file()
    untrimmed("index", "--library", "library", "--model", "runs/typed")
    assert "flag.mp4" in untrimmed("search", "--library", "library", "a dog jumps into a lake")
    body = json.dumps({"text": "a dog jumps into a lake"}).encode()
    with python.serving(TOY + "start()\n", "--library", "library", folder=example[0]) as address:
        request = urllib.request.Request(f"{address}api/search", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
    assert "flag.mp4" in json.dumps(answer)


def test_a_study_compares_the_method_and_the_loss_with_a_method_of_the_package(example, python):
    folder = example[0]

    def untrimmed(*words):
        return python(TOY + "start()\n", *words, folder=folder)

    files = ("--import", "best_frame.py", "--import", "spread.py")
    sizes = ("--dim", "8", "--frames", "8", "--batch", "2", "--rates", "1e-3", "--search-steps", "2", "--steps", "2")
    place = ("--data", "mine", "--root", "data", "--out", "study", "--page", "page.md")
    methods = ("best_frame+spread,weights.spread=0.5", "ms_sl")
    untrimmed("study", *methods, *files, *sizes, *place, "--seeds", "2", "--jobs", "2")
    page = (folder / "page.md").read_text("utf-8")
    assert "--import best_frame.py --import spread.py" in page
    assert "2 of 2 seeds" in page
    rows = [line.split("|")[1].strip(" *`") for line in page.splitlines() if line.startswith("| ")]
    assert set(methods) <= set(rows)
    runs = [path.relative_to(folder) for path in (folder / "study" / "mine").glob("*-2-*")]  # also files beside runs
    table = list(csv.DictReader(io.StringIO(untrimmed("compare", *runs, "--format", "csv"))))
    assert sorted((row["model"], row["seeds"]) for row in table) == [(method, "2") for method in methods]


def test_a_layout_from_outside_is_checked_and_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_files(tmp_path)
    import_module(tmp_path / "my_layout.py")
    folder = tmp_path / "talks"
    folder.mkdir()
    lines = {
        split: [
            {"talk": f"{split}{n}", "id": f"{split}{n}#0", "text": "hello", "from": 1, "to": 2, "length": 9}
            for n in range(3)
        ]
        for split in ("train", "val", "test")
    }
    (folder / "talks.json").write_text(json.dumps(lines))
    draw = np.random.default_rng(0).normal
    with h5py.File(folder / "frames.h5", "w") as frames, h5py.File(folder / "words.h5", "w") as words:
        for line in (line for split in lines.values() for line in split):
            frames[line["talk"]], words[line["id"]] = draw(size=(7, 10)), draw(size=(3, 12))
    assert check_dataset("talks", tmp_path) == []
    run = train("ms_sl", data="talks", root=tmp_path, out=tmp_path / "run", **{"train.epochs": 1, "model.dim": 8})
    assert evaluate(run).rows["fused"]["R@100"] == 100
    assert json.loads((tmp_path / "run" / "config.json").read_text())["imports"][0]["name"] == "my_layout"
    del layouts._LAYOUTS["my_layout"], plugins._IMPORTED["my_layout"]
