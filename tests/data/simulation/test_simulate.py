"""Simulated data sets are reproducible, equal in all layouts, and written atomically."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.benchmarks.registry import get_benchmark
from untrimmed.data.dataset import load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames
from untrimmed.data.simulation.grammar import invent
from untrimmed.data.simulation.simulate import VIDEO_FEATURES, open_world, simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError
from untrimmed.evaluation.moment_ratio import group_of

SMALL = SimulationSettings(query_dim=16, video_dim=20, teacher_dim=8)


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".hdf5"
    }


def test_files_are_equal_for_equal_seeds_and_differ_for_others(tmp_path):
    for run, seed in (("a", 3), ("b", 3), ("c", 4)):
        settings = replace(SMALL, seed=seed)
        simulate("toy", tmp_path / run, num_videos=8, settings=settings)
    first, repeated, different = (contents(tmp_path / run / "toy") for run in "abc")
    assert first == repeated
    assert first.keys() == different.keys()
    assert first != different


def test_splits_are_three_to_one_to_one_and_disjoint(tmp_path):
    written = simulate("toy", tmp_path, num_videos=20, settings=SMALL)
    assert written.videos == {"train": 12, "val": 4, "test": 4}
    ids = [set(load_dataset("toy", tmp_path, split).video_ids) for split in ("train", "val", "test")]
    assert len(set.union(*ids)) == 20


def test_settings_are_written_to_the_data_set(tmp_path):
    simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    about = json.loads((tmp_path / "toy" / "simulation.json").read_text())
    assert (about["query_dim"], about["seed"], about["captions"], about["num_videos"]) == (16, 0, "grammar", 5)


def test_an_existing_folder_is_refused_and_unchanged(tmp_path):
    (tmp_path / "toy").mkdir()
    with pytest.raises(ConfigError):
        simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    assert list((tmp_path / "toy").iterdir()) == []


def test_an_error_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr("untrimmed.data.writing.write_bigfile", full)
    with pytest.raises(FeatureError, match="no space left"):
        simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    assert list(tmp_path.iterdir()) == []


def test_invalid_arguments_are_refused(tmp_path):
    with refused(ConfigError, "3"):
        simulate("toy", tmp_path, num_videos=2)
    with pytest.raises(ConfigError):
        simulate("toy", tmp_path, num_videos=5, layout="plain", teacher=True)
    with refused(UnknownNameError, "'toy'"):
        simulate("toy", tmp_path, num_videos=5, annotations_dir=tmp_path)
    with refused(FeatureError, "train", "charades"):
        simulate("charades", tmp_path, num_videos=5, annotations_dir=tmp_path)


def test_the_world_can_be_rebuilt_from_the_written_settings(tmp_path):
    for layout in ("field", "jsg", "plain"):
        simulate("toy", tmp_path / layout, num_videos=8, layout=layout, settings=SMALL)
        world, data = open_world("toy", tmp_path / layout), load_dataset("toy", tmp_path / layout, "val")
        assert world.settings == SMALL
        first = [data.annotations[caption] for caption in data.captions_of(0)]
        stored = open_frames(Layout.at(tmp_path / layout, "toy")).read(data.video_ids[0])
        np.testing.assert_array_equal(world.frames(first), stored)
    (tmp_path / "plain" / "toy" / "simulation.json").unlink()
    with refused(FeatureError, "simulation.json"):
        open_world("toy", tmp_path / "plain")


def test_settings_that_an_older_file_lacks_have_their_default(tmp_path):
    simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    path = tmp_path / "toy" / "simulation.json"
    about = json.loads(path.read_text())
    for name in ("words", "runs", "teacher_map"):
        about.pop(name)
    path.write_text(json.dumps(about))
    assert open_world("toy", tmp_path).settings == SMALL


@pytest.mark.shared
def test_a_variant_of_a_benchmark_can_have_another_name(shared, tmp_path):
    """It has the same videos and captions as the standard world."""
    annotations, mixed = shared / "data" / "annotations", replace(SMALL, words="mixed")
    simulate("charades", tmp_path, num_videos=10, annotations_dir=annotations, settings=SMALL)
    simulate("charades", tmp_path, num_videos=10, annotations_dir=annotations, settings=mixed, data_set="mixed")
    assert Layout.at(tmp_path, "mixed").benchmark == get_benchmark("charades")
    standard, variant = (load_dataset(name, tmp_path, "test") for name in ("charades", "mixed"))
    assert variant.caption_ids == standard.caption_ids
    frames = [open_frames(Layout.at(tmp_path, name)).read(standard.video_ids[0]) for name in ("charades", "mixed")]
    assert not np.array_equal(*frames)
    assert open_world("mixed", tmp_path).settings == mixed


def test_frames_are_written_one_video_at_a_time(tmp_path):
    """Memory use is far below the size of the written frames."""
    settings = SimulationSettings(query_dim=16, video_dim=2048)
    simulate("warm", tmp_path, num_videos=3, settings=replace(settings, video_dim=20))
    tracemalloc.start()
    simulate("toy", tmp_path, num_videos=60, settings=settings)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    written = (tmp_path / "toy" / "FeatureData" / VIDEO_FEATURES / "feature.bin").stat().st_size
    assert written > 30e6
    assert peak < written / 2


@pytest.mark.check
@pytest.mark.shared
def test_simulated_benchmarks_keep_all_moments_of_captions(shared, tmp_path):
    folder = shared / "data" / "annotations"
    simulate("didemo", tmp_path, num_videos=10, annotations_dir=folder, settings=SMALL)
    data = load_dataset("didemo", tmp_path, "train")
    assert data.several_annotators
    assert min(len(moments) for moments in data.moments) > 1
    with pytest.raises(ConfigError):
        simulate("didemo", tmp_path / "more", num_videos=99999, annotations_dir=folder, settings=SMALL)


def test_invented_captions_have_moments_in_all_ratio_groups():
    ratios = np.array([caption.moment_ratio for caption in invent(100, np.random.default_rng(0))])
    assert (np.bincount(group_of(ratios), minlength=3) > 10).all()
    assert ratios.max() <= 1


@pytest.mark.check
@pytest.mark.shared
@pytest.mark.parametrize("name", ["tvr", "activitynet", "charades"])
def test_simulated_benchmarks_keep_their_moment_ratios(shared, tmp_path, name):
    """Each group has about the same share of captions in the sample as in the whole benchmark."""
    simulate(name, tmp_path, num_videos=250, annotations_dir=shared / "data" / "annotations", settings=SMALL)
    drawn = [r for split in SPLITS for r in load_dataset(name, tmp_path, split).moment_ratios if not np.isnan(r)]
    benchmark = get_benchmark(name)
    parts = [part for part in benchmark.files if benchmark.find(part, shared / "data" / "annotations")]
    real = [a.moment_ratio for part in parts for a in benchmark.read_part(part, shared / "data" / "annotations")]
    groups = [np.bincount(group_of(np.array(r)), minlength=3) / len(r) for r in (drawn, [r for r in real if r])]
    assert (groups[1] > 0.02).all()
    np.testing.assert_allclose(*groups, atol=0.06)
