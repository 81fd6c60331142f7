"""`untrimmed features` and the next commands: check, train, index --model, search, evaluate."""

import json

import h5py
import numpy as np
import pytest

from tests.cli.conftest import numbers
from tests.refusals import require_named
from tests.toy import WideWordEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module

CLIPS = {"flag": ["red", "white"], "sea": ["blue", "white"], "sun": ["yellow", "red"], "wood": ["green"]}
CAPTIONS = [
    {"video": video, "caption": f"it is {colour}", "start_s": 2 * number, "end_s": 2 * number + 2}
    for video, colours in CLIPS.items()
    for number, colour in enumerate(colours)
]


@pytest.fixture
def run(typed, monkeypatch):
    """Run commands with an encoder whose words are wider than its frames."""
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(WideWordEncoder(), None))
    return typed


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for name, colours in CLIPS.items():
        write_clip(folder / f"{name}.mp4", colours)
    return folder


@pytest.fixture
def captions(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in CAPTIONS))
    return path


@pytest.mark.parametrize("layout", ["plain", "field"])
def test_features_can_be_trained_on_and_the_model_searches_the_library(layout, run, videos, captions, tmp_path):
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--captions", captions, "--layout", layout)
    assert code == 0, err
    assert {4, 5} <= set(numbers(out))  # videos, and the widths of frames and words
    assert f"untrimmed train gmmformer_v2 --data mine --root {tmp_path / 'data'}" in out
    library = tmp_path / "data" / "mine-library"
    assert f"untrimmed index --model RUN --library {library}" in out
    code, _, err = run("data", "check", "mine", "--root", tmp_path / "data")
    assert code == 0, err
    settings = ("model.dim=8", "model.max_frames=12", "train.epochs=1", "train.batch_size=2")
    run_folder = tmp_path / "run"
    code, _, err = run("train", "ms_sl", "--data", "mine", "--root", tmp_path / "data", "--out", run_folder, *settings)
    assert code == 0, err
    code, _, err = run("index", "--model", run_folder, "--library", library)
    assert (code, "ms_sl" in err, "simulated" in err) == (0, True, False)
    (tmp_path / "data" / "mine" / "simulation.json").touch()  # as if `data simulate` had made the features
    assert "simulated" in run("index", "--model", run_folder, "--library", library)[2]
    code, out, _ = run("search", "it is green", "--library", library, "--json")
    assert code == 0
    assert {hit["video"] for hit in json.loads(out)["hits"]} == {str(videos / f"{name}.mp4") for name in CLIPS}
    code, out, _ = run("evaluate", library, "--queries", captions, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["figures"]["R@5"] == 100
    assert len(document["queries"]) == len(CAPTIONS)


def test_json_output_describes_the_written_data_set(run, videos, captions, tmp_path):
    code, out, _ = run("features", videos, "--out", tmp_path, "--name", "own", "--captions", captions, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["folder"] == str(tmp_path / "own")
    assert (document["num_videos"], document["frame_dim"], document["word_dim"]) == (4, 4, 5)
    assert sum(document["captions"].values()) == len(CAPTIONS)


def test_a_library_is_exported_without_decoding(run, videos, tmp_path, monkeypatch):
    assert run("index", videos, "--library", tmp_path / "library")[0] == 0
    monkeypatch.setattr(WideWordEncoder, "encode_frames", lambda *_: pytest.fail("a frame was encoded again"))
    code, out, _ = run("features", "--library", tmp_path / "library", "--out", tmp_path)
    assert (code, "untrimmed train" in out) == (0, False)


def test_captions_of_a_missing_video_are_reported_with_exit_code_3(run, videos, captions, tmp_path):
    with captions.open("a") as file:
        file.write('{"video": "gone", "caption": "it is red"}\n')
    code, out, err = run("features", videos, "--out", tmp_path, "--captions", captions)
    assert code == 3
    assert all(value in err for value in (str(captions), f"line {len(CAPTIONS) + 1}", "'gone'"))
    assert 4 in numbers(out)


def test_an_unreadable_video_is_reported_with_exit_code_3(run, videos, captions, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video at all")
    code, out, err = run("features", videos, tmp_path / "broken.mp4", "--out", tmp_path, "--captions", captions)
    assert code == 3
    assert "broken.mp4" in err
    assert 4 in numbers(out)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"video": "flag", "caption": ""}', "caption"),
        ('{"video": "flag", "capt', "JSON"),
        ('{"caption": "it is red"}', "video"),
        ('{"video": "flag", "caption": "it is red", "split": "dev"}', "'dev'"),
    ],
)
def test_an_invalid_caption_line_is_reported_before_decoding(line, word, run, videos, captions, tmp_path):
    with captions.open("a") as file:
        file.write(line + "\n")
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--captions", captions)
    assert (code, out) == (2, "")
    require_named(err.strip(), str(captions), f"line {len(CAPTIONS) + 1}", word)
    assert not (tmp_path / "data").exists()


def test_captions_without_any_matching_video_are_refused(run, videos, tmp_path):
    (tmp_path / "c.jsonl").write_text('{"video": "gone", "caption": "it is red"}\n')
    code, _, err = run("features", videos, "--out", tmp_path / "data", "--captions", tmp_path / "c.jsonl")
    assert code == 2
    assert ["line 1" in err.splitlines()[-1], "'gone'" in err.splitlines()[-1]] == [True, True]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine-library"]


def test_an_existing_data_set_is_refused_before_decoding(run, videos, tmp_path):
    (tmp_path / "mine").mkdir()
    code, out, err = run("features", videos, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert [err.count("\n"), str(tmp_path / "mine") in err, "--name" in err] == [1, True, True]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_video_and_caption_files_are_refused(run, videos, tmp_path):
    assert run("features", "--out", tmp_path)[0] == 2
    code, _, err = run("features", tmp_path / "nowhere", "--out", tmp_path)
    assert (code, "nowhere" in err) == (2, True)
    code, _, err = run("features", videos, "--out", tmp_path / "data", "--captions", tmp_path / "no.jsonl")
    assert (code, "no.jsonl" in err, err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "data").exists()


@pytest.fixture
def prepare(run, tmp_path):
    """Run `untrimmed data prepare` for a few captions of Charades-STA. The video `gone` is missing."""
    source = tmp_path / "annotations"
    source.mkdir()
    train = ("flag 0.0 2.0##red it is.", "gone 0.0 1.0##red it is.", "sea 0.0 2.0##blue it is.")
    (source / "charades_sta_train.txt").write_text("\n".join(train) + "\n")
    (source / "charades_sta_test.txt").write_text("sun 0.0 2.0##yellow it is.\nwood 0.0 2.0##green it is.\n")
    command = ("data", "prepare", "charades", "--annotations", source, "--out", tmp_path / "data")
    return lambda *options: run(*command, *options)


def test_prepared_captions_get_features_for_training(run, prepare, videos, tmp_path):
    assert prepare()[0] == 0
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--name", "charades")
    place = tmp_path / "data" / "charades" / "TextData" / "charadestrain.caption.txt"
    assert code == 3
    assert [str(place) in err, "'gone'" in err] == [True, True]
    assert {2, 4, 5} <= set(numbers(out))
    code, checked, _ = run("data", "check", "charades", "--root", tmp_path / "data")
    assert code == 0, checked
    (following,) = (line for line in out.splitlines() if line.startswith("next"))
    words = following.split()[2:]
    assert words[-2:] == ["model.query_dim=5", "model.video_dim=4"]
    small = ("model.dim=8", "model.max_frames=12", "train.epochs=1", "train.batch_size=2")
    code, _, err = run(*words, "--out", tmp_path / "run", *small)
    assert code == 0, err


def test_prepared_subtitles_get_the_mean_word_vector_of_each_passage(run, prepare, videos, tmp_path):
    subtitles = [{"text": text, "start": 0, "end": 1} for text in ("so red", "is it")]
    (tmp_path / "subtitles.jsonl").write_text(json.dumps({"vid_name": "flag", "sub": subtitles}) + "\n")
    code, out, err = prepare("--subtitles", tmp_path / "subtitles.jsonl")
    assert code == 0, err
    assert {2, 1} <= set(numbers(next(line for line in out.splitlines() if line.startswith("subtitles"))))
    assert run("features", videos, "--out", tmp_path / "data", "--name", "charades")[0] == 3
    with h5py.File(tmp_path / "data" / "charades" / "subtitles.h5") as file:
        means = [features.words.mean(axis=0) for features in WideWordEncoder().encode_texts(["so red", "is it"])]
        assert np.array_equal(file["flag"], means)
    assert run("data", "check", "charades", "--root", tmp_path / "data")[0] == 0


def test_captions_can_be_prepared_after_frames_without_decoding_again(run, prepare, videos, tmp_path, monkeypatch):
    command = ("features", videos, "--out", tmp_path / "data", "--name", "charades")
    assert run(*command, "--layout", "field")[0] == 0
    assert prepare()[0] == 0
    monkeypatch.setattr(WideWordEncoder, "encode_frames", lambda *_: pytest.fail("a frame was encoded again"))
    assert run(*command)[0] == 3
    code, out, _ = run("data", "check", "charades", "--root", tmp_path / "data")
    assert code == 0, out
    assert prepare()[0] == 0
    assert run(*command)[0] == 3  # prepare restored the captions of missing videos


def test_captions_are_not_prepared_in_a_folder_with_the_plain_layout(run, prepare, videos, tmp_path):
    assert run("features", videos, "--out", tmp_path / "data", "--name", "charades")[0] == 0
    code, _, err = prepare()
    assert code == 2
    assert all(value in err for value in (str(tmp_path / "data" / "charades"), "plain", "--name", "untrimmed features"))


def test_prepare_does_not_overwrite_your_own_captions(run, prepare, videos, captions, tmp_path):
    command = ("features", videos, "--out", tmp_path / "data", "--name", "charades", "--layout", "field")
    assert run(*command, "--captions", captions)[0] == 0
    code, _, err = prepare()
    assert (code, "--name" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--captions", "CAPTIONS"], "--captions"), (["--layout", "plain"], "--layout"), ([], "charades")],
)
def test_conflicts_with_prepared_captions_are_refused(options, word, run, prepare, videos, captions, tmp_path):
    prepare()
    if not options:
        (tmp_path / "data" / "charades" / "TextData" / "roberta_charades_query_feat.hdf5").touch()
    options = [captions if option == "CAPTIONS" else option for option in options]
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--name", "charades", *options)
    assert (code, out) == (2, "")
    assert (word in err, err.count("\n")) == (True, 1)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["charades"]


def test_prepared_captions_are_unchanged_if_no_video_matches(run, prepare, videos, tmp_path):
    prepare()
    written = sorted((tmp_path / "data" / "charades").rglob("*"))
    (tmp_path / "other.mp4").write_bytes((videos / "wood.mp4").read_bytes())
    code, _, err = run("features", tmp_path / "other.mp4", "--out", tmp_path / "data", "--name", "charades")
    assert (code, "'flag'" in err.splitlines()[-1]) == (2, True)
    assert sorted((tmp_path / "data" / "charades").rglob("*")) == written
