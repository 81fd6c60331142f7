"""`untrimmed features --kind ...` and the next commands with tiny networks: train, index --model, search."""

import json

import numpy as np
import pytest

from tests.media import write_pictures
from tests.refusals import require_named
from tests.tiny_features import I3D_DIM, RESNET_DIM, WORD_DIM, save_networks, save_roberta
from tests.tiny_models import SHARED_DIM, save_clip
from tests.toy import write_clip

CLIPS = {"flag": ["red", "white"], "sea": ["blue", "white"], "sun": ["yellow", "red"], "wood": ["green"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four videos, their captions, and the networks."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "videos").mkdir()
    for name, colours in CLIPS.items():
        write_clip(folder / "videos" / f"{name}.mp4", colours, size=(32, 24))
    lines = [{"video": video, "caption": f"a {colour} car"} for video, colours in CLIPS.items() for colour in colours]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    save_networks(folder)
    save_roberta(folder / "roberta")
    save_clip(folder / "clip")
    return folder


@pytest.fixture
def kinds(folder):
    names = {"resnet152": "resnet.safetensors", "i3d": "i3d.pt", "roberta": "roberta"}
    return [part for kind, name in names.items() for part in ("--kind", f"{kind}={folder / name}")]


@pytest.mark.parametrize("layout", ["plain", "field"])
def test_a_run_on_benchmark_features_searches_a_folder_of_videos(layout, typed, folder, kinds, tmp_path):
    arguments = ("--captions", folder / "captions.jsonl", "--layout", layout)
    code, out, err = typed("features", folder / "videos", "--out", tmp_path / "data", *kinds, *arguments, "--json")
    assert code == 0, err
    written = json.loads(out)
    assert (written["frame_dim"], written["word_dim"]) == (RESNET_DIM + I3D_DIM, WORD_DIM)
    data = tmp_path / "data" / "mine"
    if layout == "field":
        shape = (data / "FeatureData" / "resnet152_i3d" / "shape.txt").read_text().split()
        assert shape == ["11", str(RESNET_DIM + I3D_DIM)]  # every 1.5 s: 3 vectors of 4 s, thrice, and 2 of 2 s
    else:
        assert np.load(data / "frames" / "flag.npy").shape == (3, RESNET_DIM + I3D_DIM)
    assert typed("data", "check", "mine", "--root", tmp_path / "data")[0] == 0
    settings = ("model.dim=8", "model.max_frames=12", "train.epochs=1", "train.batch_size=2")
    run = tmp_path / "run"
    code, _, err = typed("train", "ms_sl", "--data", "mine", "--root", tmp_path / "data", "--out", run, *settings)
    assert code == 0, err
    library = tmp_path / "library"  # another one: the run can serve any videos that the same encoder has indexed
    encoder = "+".join(part for part in kinds if part != "--kind")
    code, _, err = typed("index", folder / "videos", "--library", library, "--encoder", encoder)
    assert code == 0, err
    code, _, err = typed("search", "a green car", "--library", library)
    assert code == 2
    require_named(err.strip().splitlines()[-1], "--model")
    code, _, err = typed("index", "--model", run, "--library", library)
    assert code == 0, err
    code, out, err = typed("search", "a green car", "--library", library, "--json")
    assert code == 0, err
    assert {hit["video"] for hit in json.loads(out)["hits"]} == {str(folder / "videos" / f"{n}.mp4") for n in CLIPS}


def test_features_keep_the_rate_of_the_library(typed, folder, kinds, tmp_path):
    video = folder / "videos" / "wood.mp4"
    code, _, err = typed("features", video, "--out", tmp_path, "--name", "a", "--fps", "2", *kinds)
    assert code == 0, err
    assert np.load(tmp_path / "a" / "frames" / "wood.npy").shape[0] == 4  # 2 seconds
    again = ("--out", tmp_path, "--name", "b", "--library", tmp_path / "a-library")
    code, out, err = typed("features", video, *again, *kinds)
    assert (code, "already known" in out) == (0, True), err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--kind", "roberta"), ("--encoder", "builtin"), ("--fps", "2"), ("--pictures-fps", "3")],
)
def test_options_of_indexing_are_refused_without_videos(option, value, typed, tmp_path):
    code, _, err = typed("features", "--library", tmp_path / "library", "--out", tmp_path / "data", option, value)
    assert code == 2
    require_named(err.strip().splitlines()[-1], option, str(tmp_path / "library"))
    assert list(tmp_path.iterdir()) == []


def test_clip_features_have_the_papers_rate_and_need_no_training_to_search(typed, folder, tmp_path):
    code, out, err = typed(
        "features", folder / "videos" / "wood.mp4", "--out", tmp_path, "--kind", f"clip={folder / 'clip'}", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["frame_dim"] == SHARED_DIM
    assert np.load(tmp_path / "mine" / "frames" / "wood.npy").shape == (6, SHARED_DIM)  # 3 per second
    assert typed("search", "a green car", "--library", tmp_path / "mine-library")[0] == 0


def test_a_folder_of_frames_is_a_video(typed, folder, tmp_path):
    for name in ("castle_s01", "castle_s02"):
        pictures = [np.full((24, 32, 3), 30 * number, np.uint8) for number in range(1, 8)]
        write_pictures(tmp_path / "frames" / name, pictures, name="{:05d}.jpg")
    captions = tmp_path / "captions.jsonl"
    captions.write_text('{"video": "castle_s01", "caption": "a red car", "split": "train"}\n')
    kind = ("--kind", f"clip={folder / 'clip'}", "--captions", captions)
    code, _, err = typed("features", tmp_path / "frames", "--out", tmp_path / "data", "--pictures-fps", "3", *kind)
    assert code == 0, err
    for name in ("castle_s01", "castle_s02"):
        assert np.load(tmp_path / "data" / "mine" / "frames" / f"{name}.npy").shape == (7, SHARED_DIM)
    code, out, err = typed("search", "a red car", "--library", tmp_path / "data" / "mine-library", "--json")
    assert code == 0, err
    assert [hit["duration_s"] for hit in json.loads(out)["hits"]] == pytest.approx([7 / 3, 7 / 3])


def test_wrong_kinds_are_refused_before_decoding(typed, folder, kinds, tmp_path):
    def last_line(*arguments):
        code, out, err = typed("features", folder / "videos", "--out", tmp_path / "data", *arguments)
        assert (code, out) == (2, "")
        return err.strip().splitlines()[-1]

    require_named(last_line("--kind", "i3d"), "i3d", "i3d=FILE")
    require_named(last_line("--kind", "c3d"), "c3d", "i3d")
    require_named(last_line("--kind", "roberta"), "roberta", "i3d")
    require_named(last_line(*kinds, "--encoder", "clip-b32"), "--kind", "--encoder", "clip-b32")
    require_named(last_line("--kind", f"i3d={folder / 'i3d.pt'}#sha256={'0' * 64}"), "i3d.pt", "0" * 64)
    require_named(last_line(*kinds, "--fps", "0.0001"), "0.0001")
    assert not (tmp_path / "data" / "mine").exists()


def test_key_frames_alone_are_refused_for_clips(typed, folder, kinds, tmp_path):
    encoder = "+".join(part for part in kinds if part != "--kind")
    arguments = ("--library", tmp_path / "library", "--encoder", encoder, "--keyframes")
    code, _, err = typed("index", folder / "videos", *arguments)
    assert code == 2
    require_named(err.strip().splitlines()[-1], "--keyframes")


def test_key_frames_of_a_library_without_videos_are_refused_for_clips(typed, folder, kinds, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    library = ("--library", tmp_path / "library")
    assert typed("index", tmp_path / "broken.mp4", *library, "--encoder", folder / "clip", "--keyframes")[0] == 3
    encoder = "+".join(part for part in kinds if part != "--kind")
    code, _, err = typed("index", folder / "videos", *library, "--encoder", encoder)
    assert code == 2
    require_named(err.strip().splitlines()[-1], "--no-keyframes")
    assert typed("index", folder / "videos", *library, "--encoder", encoder, "--no-keyframes")[0] == 0
