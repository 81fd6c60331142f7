"""`untrimmed features` as it is typed, and the way on from there: check, train, index --model, search, evaluate."""

import json

import pytest

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
    """Type a command for a library of an encoder whose words are wider than its frames."""
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
def test_from_videos_to_a_trained_library_command_by_command(layout, run, videos, captions, tmp_path):
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--captions", captions, "--layout", layout)
    assert code == 0, err
    assert "frames  4 videos, width 4" in out
    assert "words   captions:" in out
    assert "width 5" in out
    assert f"next    untrimmed train gmmformer_v2 --data mine --root {tmp_path / 'data'}" in out
    library = tmp_path / "data" / "mine-library"
    assert f"then    untrimmed index --model RUN --library {library}" in out
    code, _, err = run("data", "check", "mine", "--root", tmp_path / "data")
    assert code == 0, err
    settings = ("model.dim=8", "model.max_frames=12", "train.epochs=1", "train.batch_size=2")
    run_folder = tmp_path / "run"
    code, _, err = run("train", "ms_sl", "--data", "mine", "--root", tmp_path / "data", "--out", run_folder, *settings)
    assert code == 0, err
    code, _, err = run("index", "--model", run_folder, "--library", library)
    assert code == 0
    assert "searching with ms_sl:" in err
    code, out, _ = run("search", "it is green", "--library", library, "--json")
    assert code == 0
    assert {hit["video"] for hit in json.loads(out)["hits"]} == {str(videos / f"{name}.mp4") for name in CLIPS}
    code, out, _ = run("evaluate", library, "--queries", captions, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["figures"]["R@5"] == 100
    assert len(document["queries"]) == len(CAPTIONS)


def test_json_says_what_was_written(run, videos, captions, tmp_path):
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
    assert code == 0
    assert "words   captions: none" in out
    assert "next" not in out


def test_captions_of_a_video_that_is_not_there_are_named_and_exit_code_3(run, videos, captions, tmp_path):
    with captions.open("a") as file:
        file.write('{"video": "gone", "caption": "it is red"}\n')
    code, out, err = run("features", videos, "--out", tmp_path, "--captions", captions)
    assert code == 3
    assert f"left out  {captions}, line {len(CAPTIONS) + 1}: no video 'gone'" in err
    assert "frames  4 videos" in out


def test_a_file_that_is_no_video_is_named_and_exit_code_3(run, videos, captions, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video at all")
    code, out, err = run("features", videos, tmp_path / "broken.mp4", "--out", tmp_path, "--captions", captions)
    assert code == 3
    assert "broken.mp4" in err
    assert "frames  4 videos" in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"video": "flag", "caption": ""}', "caption is '', wanted a sentence; write one or remove the caption"),
        ('{"video": "flag", "capt', "not JSON"),
        ('{"caption": "it is red"}', "video"),
        ('{"video": "flag", "caption": "it is red", "split": "dev"}', "split 'dev', wanted one of train, val, test"),
    ],
)
def test_a_wrong_line_is_one_line_before_anything_is_decoded(line, message, run, videos, captions, tmp_path):
    with captions.open("a") as file:
        file.write(line + "\n")
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--captions", captions)
    assert code == 2
    assert out == ""
    assert err.startswith(f"untrimmed: {captions}, line {len(CAPTIONS) + 1}: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_captions_that_fit_no_video_at_all_are_refused(run, videos, tmp_path):
    (tmp_path / "c.jsonl").write_text('{"video": "gone", "caption": "it is red"}\n')
    code, _, err = run("features", videos, "--out", tmp_path / "data", "--captions", tmp_path / "c.jsonl")
    assert code == 2
    assert "line 1: video 'gone' and all others with captions are not among the 4 videos" in err.splitlines()[-1]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine-library"]


def test_a_data_set_that_is_there_is_refused_before_anything_is_decoded(run, videos, tmp_path):
    (tmp_path / "mine").mkdir()
    code, out, err = run("features", videos, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"untrimmed: {tmp_path / 'mine'} is already there; choose another --name, or remove it first\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_videos_and_missing_captions_are_named(run, videos, tmp_path):
    code, _, err = run("features", "--out", tmp_path)
    assert code == 2
    assert "nothing to export: name video files or folders" in err
    code, _, err = run("features", tmp_path / "nowhere", "--out", tmp_path)
    assert code == 2
    assert "nowhere" in err
    code, _, err = run("features", videos, "--out", tmp_path / "data", "--captions", tmp_path / "no.jsonl")
    assert code == 2
    assert "no.jsonl: no such file" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.fixture
def prepare(run, tmp_path):
    """Type `untrimmed data prepare` for a few captions of Charades-STA; one video of them is nowhere."""
    source = tmp_path / "annotations"
    source.mkdir()
    train = ("flag 0.0 2.0##red it is.", "gone 0.0 1.0##red it is.", "sea 0.0 2.0##blue it is.")
    (source / "charades_sta_train.txt").write_text("\n".join(train) + "\n")
    (source / "charades_sta_test.txt").write_text("sun 0.0 2.0##yellow it is.\nwood 0.0 2.0##green it is.\n")
    return lambda: run("data", "prepare", "charades", "--annotations", source, "--out", tmp_path / "data")


def test_prepared_captions_get_features_and_are_trained_on(run, prepare, videos, tmp_path):
    assert prepare()[0] == 0
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--name", "charades")
    place = tmp_path / "data" / "charades" / "TextData" / "charadestrain.caption.txt"
    assert code == 3
    assert f"left out  {place}: no video 'gone'" in err
    assert "frames  4 videos, width 4" in out
    assert "words   captions: 2 train, 2 val, 2 test, width 5" in out
    code, checked, _ = run("data", "check", "charades", "--root", tmp_path / "data")
    assert code == 0, checked
    (following,) = (line for line in out.splitlines() if line.startswith("next"))
    words = following.split()[2:]
    assert words[-2:] == ["model.query_dim=5", "model.video_dim=4"]
    small = ("model.dim=8", "model.max_frames=12", "train.epochs=1", "train.batch_size=2")
    code, _, err = run(*words, "--out", tmp_path / "run", *small)
    assert code == 0, err


def test_frames_before_captions_are_completed_without_decoding_again(run, prepare, videos, tmp_path, monkeypatch):
    command = ("features", videos, "--out", tmp_path / "data", "--name", "charades")
    assert run(*command, "--layout", "field")[0] == 0
    assert prepare()[0] == 0
    monkeypatch.setattr(WideWordEncoder, "encode_frames", lambda *_: pytest.fail("a frame was encoded again"))
    assert run(*command)[0] == 3
    code, out, _ = run("data", "check", "charades", "--root", tmp_path / "data")
    assert code == 0, out
    assert prepare()[0] == 0
    assert run(*command)[0] == 3  # captions of videos that were not there are back, and looked for again


def test_captions_are_not_prepared_where_they_would_not_be_read(run, prepare, videos, tmp_path):
    assert run("features", videos, "--out", tmp_path / "data", "--name", "charades")[0] == 0
    code, _, err = prepare()
    assert code == 2
    assert err == (
        f"untrimmed: {tmp_path / 'data' / 'charades'}: a data set in the plain layout, in which no captions of "
        "charades are read; choose another name (--name), or remove it, prepare, and run untrimmed features for it "
        "then: it puts frames and words beside prepared captions\n"
    )


def test_captions_of_one_s_own_are_not_written_over(run, prepare, videos, captions, tmp_path):
    command = ("features", videos, "--out", tmp_path / "data", "--name", "charades", "--layout", "field")
    assert run(*command, "--captions", captions)[0] == 0
    code, _, err = prepare()
    assert code == 2
    assert "has captions of your own with features; choose another name (--name), or remove it" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--captions", "CAPTIONS"], "has prepared captions already; leave --captions out, or choose another --name"),
        (["--layout", "plain"], "has prepared captions already; leave --layout plain out, or choose another --name"),
        ([], "has features of another network; prepare the captions again under a name for these"),
    ],
)
def test_prepared_captions_keep_their_own_features(words, message, run, prepare, videos, captions, tmp_path):
    prepare()
    if not words:
        (tmp_path / "data" / "charades" / "TextData" / "roberta_charades_query_feat.hdf5").touch()
    words = [captions if word == "CAPTIONS" else word for word in words]
    code, out, err = run("features", videos, "--out", tmp_path / "data", "--name", "charades", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["charades"]


def test_no_video_of_prepared_captions_is_told_before_captions_change(run, prepare, videos, tmp_path):
    prepare()
    written = sorted((tmp_path / "data" / "charades").rglob("*"))
    (tmp_path / "other.mp4").write_bytes((videos / "wood.mp4").read_bytes())
    code, _, err = run("features", tmp_path / "other.mp4", "--out", tmp_path / "data", "--name", "charades")
    assert code == 2
    assert "none of the 5 videos with captions is among the 1 given, e.g. 'flag'" in err.splitlines()[-1]
    assert sorted((tmp_path / "data" / "charades").rglob("*")) == written
