"""Simulated data: the same from the same seed, with the structure of the task."""

import json

import numpy as np
import pytest

from untrimmed.data.annotations import Annotation
from untrimmed.data.dataset import load_dataset
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings, World, content_words, unit
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError

SMALL = SimulationSettings(query_dim=16, video_dim=16)


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".hdf5"
    }


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path):
    for run, seed in (("a", 3), ("b", 3), ("c", 4)):
        settings = SimulationSettings(query_dim=16, video_dim=16, seed=seed)
        simulate("toy", tmp_path / run, num_videos=8, settings=settings)
    same, again, other = (contents(tmp_path / run / "toy") for run in "abc")
    assert same == again
    assert same.keys() == other.keys()
    assert same != other


def test_a_video_does_not_depend_on_the_other_videos():
    caption = Annotation("v", "v#0", "a dog jumps", ((2.0, 6.0),), 20.0)
    settings = SimulationSettings(query_dim=16, video_dim=16, distraction=0.0)
    alone, among = World(settings), World(settings, ["a cat sleeps", "a dog jumps"])
    among.frames([Annotation("w", "w#0", "a cat sleeps", ((0.0, 3.0),), 9.0)])
    np.testing.assert_array_equal(alone.frames([caption]), among.frames([caption]))


def test_without_background_and_noise_frames_show_words_at_the_moment_and_nothing_elsewhere():
    settings = SimulationSettings(
        query_dim=32, video_dim=32, background=0.0, noise=0.0, distraction=0.0, visibility=1.0, signal=2.0
    )
    world = World(settings)
    frames = world.frames([Annotation("v", "v#0", "the dog jumps", ((5.0, 8.0),), 12.0)])
    assert len(frames) == 12
    assert np.flatnonzero(np.linalg.norm(frames, axis=1)).tolist() == [5, 6, 7]
    bare = SimulationSettings(query_dim=32, video_dim=32, context=0.0)
    dog, jumps = World(bare).words("dog jumps")
    np.testing.assert_allclose(frames[5], 2.0 * unit(dog + jumps), atol=1e-5)


def test_a_word_has_one_vector_in_every_caption():
    world = World(SimulationSettings(query_dim=16, video_dim=16, context=0.0))
    np.testing.assert_array_equal(world.words("A dog jumps.")[1], world.words("the dog")[1])


def test_projections_keep_cosines_when_frames_are_wider_than_words():
    projection = World(SimulationSettings(query_dim=8, video_dim=20)).projection(20)
    np.testing.assert_allclose(projection @ projection.T, np.eye(8), atol=1e-12)


def test_the_teacher_sees_what_the_frames_show_with_noise_of_its_own():
    settings = SimulationSettings(query_dim=8, video_dim=20, teacher_dim=8, distraction=1.0, noise=0.5)
    video = [Annotation("v", "v#0", "the dog jumps", ((5.0, 8.0),), 40.0)]
    world = World(settings, ["a cat sleeps"])
    frames, teacher = world.frames(video), world.teacher_frames(video)
    # Of as many dimensions as words, it knows of a frame all that lies in the space of words.
    own_noise = teacher @ world.projection(8, "teacher").T - frames @ world.projection(20).T
    np.testing.assert_allclose(np.linalg.norm(own_noise, axis=1), 0.5, atol=1e-5)
    assert abs(np.corrcoef(own_noise[:-1].ravel(), own_noise[1:].ravel())[0, 1]) < 0.2  # new in every frame


def test_a_sentence_of_function_words_still_shows_something():
    assert content_words("it is on") == ["it", "is", "on"]
    assert World(SMALL).words("...").shape == (1, 16)


def test_moments_find_videos_that_the_average_of_all_frames_does_not(tmp_path):
    simulate("toy", tmp_path, num_videos=250)
    data = load_dataset("toy", tmp_path, "test")
    videos = data.features.videos(np.arange(len(data.video_ids)))
    words, mask = data.features.words(np.arange(len(data.caption_ids)))
    query = unit(words.sum(axis=1) / mask.sum(axis=1, keepdims=True))
    pooled = query @ unit(videos.frames.sum(axis=1)).T
    moments = np.einsum("qd,vld->qvl", query, videos.clips).max(axis=2)

    def recall_at_5(scores):
        own = scores[np.arange(len(scores)), data.video_index]
        return 100 * np.mean((scores > own[:, None]).sum(axis=1) < 5)

    chance = 100 * 5 / len(data.video_ids)
    assert recall_at_5(pooled) > chance
    assert recall_at_5(moments) > 1.5 * recall_at_5(pooled)


def test_splits_are_three_to_one_to_one_and_share_no_video(tmp_path):
    written = simulate("toy", tmp_path, num_videos=20, settings=SMALL)
    assert written.videos == {"train": 12, "val": 4, "test": 4}
    ids = [set(load_dataset("toy", tmp_path, split).video_ids) for split in ("train", "val", "test")]
    assert len(set.union(*ids)) == 20


def test_settings_are_written_beside_the_data(tmp_path):
    simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    about = json.loads((tmp_path / "toy" / "simulation.json").read_text())
    assert (about["query_dim"], about["seed"], about["captions"], about["num_videos"]) == (16, 0, "grammar", 5)


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "toy").mkdir()
    with pytest.raises(ConfigError, match="already there"):
        simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    assert list((tmp_path / "toy").iterdir()) == []


def test_an_error_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr("untrimmed.data.writing.write_bigfile", full)
    with pytest.raises(FeatureError, match="no space left"):
        simulate("toy", tmp_path, num_videos=5, settings=SMALL)
    assert list(tmp_path.iterdir()) == []


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least 3"):
        simulate("toy", tmp_path, num_videos=2)
    with pytest.raises(ConfigError, match="plain layout has no place"):
        simulate("toy", tmp_path, num_videos=5, layout="plain", teacher=True)
    with pytest.raises(UnknownNameError, match="no benchmark named 'toy'"):
        simulate("toy", tmp_path, num_videos=5, annotations_dir=tmp_path)
    with pytest.raises(FeatureError, match="no train annotations of charades"):
        simulate("charades", tmp_path, num_videos=5, annotations_dir=tmp_path)
    with pytest.raises(ConfigError, match="visibility is 2"):
        SimulationSettings(visibility=2.0)


@pytest.mark.shared
def test_real_captions_keep_all_their_moments(shared, tmp_path):
    folder = shared / "data" / "annotations"
    simulate("didemo", tmp_path, num_videos=10, annotations_dir=folder, settings=SMALL)
    data = load_dataset("didemo", tmp_path, "train")
    assert data.several_annotators
    assert min(len(moments) for moments in data.moments) > 1
    with pytest.raises(ConfigError, match="ask for fewer"):
        simulate("didemo", tmp_path / "more", num_videos=99999, annotations_dir=folder, settings=SMALL)
