"""Wrong Python arguments are refused in one line. Harmless variants are accepted."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import untrimmed
from tests.refusals import refused, require_named
from tests.training.test_in_memory import QUICK, SIZES, make
from untrimmed import Annotation, SimulationSettings, create_model, dataset_of_arrays, evaluate, load, load_dataset
from untrimmed import simulate as simulate_files
from untrimmed.data.packed import PackSettings
from untrimmed.errors import UntrimmedError
from untrimmed.models.gmmformer import GMMFormer
from untrimmed.models.ms_sl import MSSL
from untrimmed.models.ral import RALConfig
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.released import import_released_file

FRAMES = {"a": np.ones((3, 10)), "b": np.eye(4, 10)}
WORDS = {"a#0": np.ones((2, 12)), "b#0": np.eye(2, 12)}
CAPTIONS = [Annotation("a", "a#0", "a dog"), Annotation("b", "b#0", "a bus")]


def model(**changed):
    return create_model("ms_sl", query_dim=12, video_dim=10, dim=8, **SIZES | changed)


def frozen(*beginnings):
    made = model()
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(not name.startswith(beginnings))
    return made


def arrays(**changed):
    return dataset_of_arrays(**{"frames": FRAMES, "words": WORDS, "annotations": CAPTIONS} | changed)


@dataclass(frozen=True)
class Sourced(Annotation):
    source: str = ""


def captions(**changed):
    return [Sourced(**{"video": "a", "caption_id": "a#0", "text": "a dog"} | changed), CAPTIONS[1]]


def jsg():
    return create_model("jsg", query_dim=12, video_dim=10)


class World:
    """The objects that the cases below use, created once."""

    def __init__(self, folder):
        self.folder = folder
        self.sets, self.test = (make("train"), make("val", 5)), make("test", 4)
        self.run = untrimmed.train("ms_sl", data=self.sets, out=folder / "run", **QUICK)
        self.ready = load(self.run)
        self.queries = self.ready.encode_queries([np.eye(4, 12)])
        self.videos = self.ready.encode_videos([np.eye(9, 10)])

    def train(self, method="ms_sl", **changed):
        quick = {"train.epochs": 2, "train.batch_size": 4} | ({"model.dim": 8} if isinstance(method, str) else {})
        return untrimmed.train(method, **{"data": self.sets, "out": self.folder / "other"} | quick | changed)

    def simulate(self, name="toy", **changed):
        return simulate_files(name, **{"out": self.folder / "data", "num_videos": 60} | changed)

    def load_dataset(self, name="toy", root="data", split="test", **changed):
        return load_dataset(name, root, split, **changed)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


WRONG = [
    (lambda w: SimulationSettings(query_dim="8"), ("query_dim", "'8'", "help(SimulationSettings)")),
    (lambda w: SimulationSettings(noise=float("nan")), ("noise", "nan")),
    (lambda w: SimulationSettings(seed=-1), ("seed", "-1")),
    (lambda w: MSSL.Config(query_dim="8", video_dim=10), ("query_dim", "'8'", "help(MSSL.Config)")),
    (lambda w: GMMFormer.Config(query_dim=8, video_dim=8, gaussian_widths=3), ("gaussian_widths", "3")),
    (lambda w: RALConfig(csa="off"), ("csa", "'off'", "help(RALConfig)")),
    (lambda w: TrainSettings(epochs="3"), ("epochs", "'3'", "help(TrainSettings)")),
    (lambda w: PackSettings(dtype="float8"), ("dtype", "'float8'", "float16", "float32")),
    (lambda w: w.simulate(layout="nope"), ("layout", "'nope'", "field", "jsg", "plain", "help(simulate)")),
    (lambda w: w.simulate(settings=3), ("settings", "3", "SimulationSettings")),
    (lambda w: w.simulate(settings={"noise": "much"}), ("settings", "noise", "'much'")),
    (lambda w: w.simulate(annotations_dir=3), ("annotations_dir", "3")),
    (lambda w: w.simulate(3), ("name", "3")),
    (lambda w: w.load_dataset(max_frames="x"), ("max_frames", "'x'", "help(load_dataset)")),
    (lambda w: w.load_dataset(root=None), ("root", "None")),
    (lambda w: w.load_dataset(progress=3), ("progress", "3")),
    (lambda w: w.train(42), ("method", "42", "create_model")),
    (lambda w: w.train("tf_prvr"), ("tf_prvr",)),
    (lambda w: w.train("tf_prvr+ral"), ("tf_prvr",)),
    (lambda w: import_released_file("tf_prvr", "authors.ckpt"), ("tf_prvr",)),
    (lambda w: w.train(out=3), ("out", "3", "help(train)")),
    (lambda w: w.train(device=3), ("device", "3")),
    (lambda w: w.train(seed="x"), ("seed", "'x'")),
    (lambda w: w.train(precision="float8"), ("precision", "'float8'", "auto", "float32", "bfloat16")),
    (lambda w: w.train(data="tvr"), ("root", "None", "'tvr'")),
    (lambda w: w.train(data=("tvr", "tvr")), ("data", "('tvr', 'tvr')")),
    (lambda w: w.train(data=w.sets[0]), ("data", "RetrievalDataset")),
    (lambda w: w.train(callback=3), ("callback", "3")),
    (lambda w: w.train(callback=lambda: None), ("callback",)),
    (lambda w: w.train(data=(make("train", 1), w.sets[1])), ("own", "train")),
    (lambda w: w.train(epochs=3), ("'epochs'", 'train={"epochs"')),
    (lambda w: w.train(data=(replace(w.sets[0], annotations=()), w.sets[1])), ("0", "12")),
    (lambda w: evaluate(w.run, replace(w.test, annotations=w.test.annotations[:3])), ("3", "8")),
    (lambda w: w.train(**{"model.dim": [8]}), ("dim", "[8]")),
    (lambda w: w.train(model().double()), ("input.norm.weight", "float64", "float32")),
    (lambda w: w.train(frozen("")), ("ms_sl", "requires_grad")),
    (lambda w: evaluate(3), ("model", "3", "help(evaluate)")),
    (lambda w: evaluate(model()), ("ms_sl", "evaluate(model, dataset)")),
    (lambda w: evaluate(model(), "tvr"), ("dataset", "'tvr'", "load_dataset", "dataset_of_arrays")),
    (lambda w: evaluate(w.run, w.test, truths=3), ("truths", "3")),
    (lambda w: evaluate(w.run, w.test, changed=["a"]), ("changed", "['a']")),
    (lambda w: evaluate(w.run, w.test, changed={3: 4}), ("changed", "3")),
    (lambda w: evaluate(w.run, w.test, moments="abc"), ("moments", "'abc'")),
    (lambda w: load(None), ("folder", "None")),
    (lambda w: create_model(3), ("name", "3", "METHOD+ATTACHMENT+...")),
    (lambda w: arrays(frames=[1]), ("frames", "[1]", "help(dataset_of_arrays)")),
    (lambda w: arrays(frames={1: FRAMES["a"]}), ("frames", "1")),
    (lambda w: arrays(frames={"a": 3, "b": 3}), ("'a'", "()")),
    (lambda w: arrays(words={"a#0": [[1, 2], [3]]}), ("'a#0'", "list")),
    (lambda w: arrays(annotations="abc"), ("annotations", "'abc'")),
    (lambda w: arrays(annotations=[3]), ("annotations[0]", "3", "Annotation")),
    (lambda w: arrays(annotations=[{"vid": "a"}]), ("annotations[0]", "'vid'", "'video'")),
    (lambda w: arrays(annotations=captions(moments=(3.0, 9.0))), ("annotations[0]", "moments[0]", "3.0")),
    (lambda w: arrays(annotations=captions(moments=((9, 3),))), ("9", "3")),
    (lambda w: arrays(annotations=captions(text=3)), ("annotations[0]", "text", "3")),
    (lambda w: arrays(annotations=captions(duration_s=-3)), ("duration_s", "-3")),
    (lambda w: arrays(settings={"num_clips": "8"}), ("settings", "num_clips", "'8'")),
    (lambda w: w.ready.encode_videos(None), ("frames", "None")),
    (lambda w: w.ready.encode_videos(FRAMES), ("frames", "dict")),
    (lambda w: w.ready.encode_queries("a dog"), ("words", "'a dog'")),
    (lambda w: w.ready.encode_queries([[[1, 2], [3]]]), ("words[0]", "list")),
    (lambda w: w.ready.score(w.videos, w.queries), ("queries", "MSSLVideos", "encode_queries")),
    (lambda w: w.ready.score(w.queries, None), ("videos", "None", "encode_videos")),
    (lambda w: jsg().score(w.queries, w.videos), ("MSSLVideos", "JSGVideos")),
    (lambda w: w.ready.on(3), ("dataset", "3", "load_dataset")),
    (lambda w: w.ready.changed(3), ("settings", "3")),
    (lambda w: w.ready.load_dataset(data=3), ("data", "3")),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[" ".join(words) for _, words in WRONG])
def test_a_wrong_value_is_refused_in_one_line_before_anything_is_written(call, words, world):
    with refused(UntrimmedError, *words):
        call(world)
    assert not (world.folder / "other").exists()
    assert not (world.folder / "data").exists()


def test_numbers_of_numpy_and_torch_are_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = SimulationSettings(query_dim=np.int64(12), video_dim=torch.tensor(10), noise=np.float32(0.5))
    assert settings == SimulationSettings(query_dim=12, video_dim=10, noise=0.5)
    assert {type(settings.query_dim), type(settings.video_dim)} == {int}
    simulate_files("toy", "data", num_videos=np.int32(6), settings={"query_dim": 12, "video_dim": 10})
    test = load_dataset("toy", Path("data"), "test", max_frames=np.int64(16), cache_dir="packed")
    assert test.features.settings.max_frames == 16
    assert create_model("ms_sl", query_dim=np.int64(12), video_dim=10, dim=8).config.query_dim == 12


def as_lists(tables):
    return {name: table.tolist() for name, table in tables.items()}


def as_tensors(tables):
    return {name: torch.tensor(table, requires_grad=True) for name, table in tables.items()}


@pytest.mark.parametrize("form", [as_lists, as_tensors])
def test_lists_and_tensors_are_arrays(form, world):
    wanted = arrays()
    found = arrays(frames=form(FRAMES), words=form(WORDS))
    np.testing.assert_allclose(found.features.clips, wanted.features.clips, atol=1e-6)
    np.testing.assert_allclose(found.features.words_packed.rows, wanted.features.words_packed.rows, atol=1e-6)
    encoded = world.ready.encode_videos(list(form(FRAMES).values()))
    wanted = world.ready.encode_videos(iter(FRAMES.values()))
    torch.testing.assert_close(encoded.clips, wanted.clips)
    assert len(world.ready.encode_queries(torch.ones(2, 3, 12, dtype=torch.bfloat16))) == 2


def test_captions_may_be_mappings_or_of_a_class_of_one_s_own():
    rows = [vars(caption) for caption in CAPTIONS]
    assert arrays(annotations=rows).annotations == tuple(CAPTIONS)
    own = Sourced("a", "a#0", "a dog", moments=[np.array([1, 9])], duration_s=np.float32(5), source="me")
    (found, _) = arrays(annotations=(own, CAPTIONS[1])).annotations
    assert found == Sourced("a", "a#0", "a dog", moments=((1.0, 5.0),), duration_s=5.0, source="me")


def test_paths_devices_and_settings_may_be_objects(world, tmp_path):
    numbers = {"train.epochs": np.int64(1), "train.learning_rate": np.float32(0.001), "train.batch_size": 4}
    run = world.train(data=list(world.sets), out=str(tmp_path / "run"), device=torch.device("cpu"), **numbers)
    assert run.config.train.epochs == 1
    assert str(evaluate(str(run.folder), world.test, moments=np.bool_(False))).startswith("ms_sl on own, test: R@1")


def test_frozen_parameters_stay_as_they_are(world, tmp_path):
    made = frozen("query")
    before = {name: parameter.clone() for name, parameter in made.named_parameters()}
    world.train(made, out=tmp_path / "run")
    same = {name.startswith("query"): [] for name in before}
    for name, parameter in made.named_parameters():
        same[name.startswith("query")].append(torch.equal(parameter, before[name]))
    assert all(same[True])
    assert not all(same[False])


def test_nan_that_was_put_among_features_is_named_as_a_cause(world):
    damaged = make("test", 4)
    damaged.features.frames.rows[0, 0] = np.nan
    with refused(UntrimmedError, "8"):
        evaluate(model(), damaged)
    with refused(UntrimmedError, "nan", "own"):
        world.train(data=(damaged, world.sets[1]))


def test_a_model_in_evaluation_mode_learns_with_dropout(world, tmp_path):
    """A model in training mode gives the same run."""
    first, second = model(), model()
    second.load_state_dict(first.state_dict())
    runs = [world.train(made, out=tmp_path / made.name / str(made.training)) for made in (first, second.eval())]
    assert runs[0].history[-1]["loss"] == runs[1].history[-1]["loss"]


def test_training_warns_if_it_is_finished_or_one_video_chooses_the_epoch(world, tmp_path, caplog):
    made, out = model(), tmp_path / "run"
    world.train(made, data=(world.sets[0], make("val", 1)), out=out)
    assert "val" in caplog.text
    assert str(out) not in caplog.text
    world.train(made, data=(world.sets[0], make("val", 1)), out=out)
    assert str(out) in caplog.text


OF_NO_SORT = """
import untrimmed
from untrimmed import create_model
from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.errors import UntrimmedError

model = create_model("ms_sl", query_dim=12, video_dim=10, dim=8)
for call in (
    lambda: model.encode_queries([[1.0]]),
    lambda: model.encode_videos(None),
    lambda: model.score(EncodedVideos(), EncodedQueries(sentence=None)),
    lambda: untrimmed.open(3),
    lambda: untrimmed.Library(b"library"),
):
    try:
        call()
    except UntrimmedError as error:
        print(error)
"""


def test_what_is_no_batch_and_no_folder_is_refused_in_one_line():
    """It runs in a new process, because in this one the checker of shapes would refuse the arguments first."""
    made = subprocess.run([sys.executable, "-c", OF_NO_SORT], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    of_models = (("list", "QueryBatch"), ("NoneType", "VideoBatch"), ("EncodedVideos", "EncodedQueries"))
    pairs = [*of_models, ("library", "3"), ("library", "b'library'")]
    lines = made.stdout.splitlines()
    assert len(lines) == len(pairs)
    for line, words in zip(lines, pairs, strict=True):
        require_named(line, *words)
