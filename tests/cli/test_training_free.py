"""The commands with TF-PRVR: on a data set, and in a library."""

import json

import pytest

from tests.run_world import SMALL
from untrimmed.data.simulation.simulate import simulate
from untrimmed.models.registry import create_model
from untrimmed.models.storage import save_model


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("teacher")
    simulate("tvr", root, num_videos=24, settings=SMALL, teacher=True)
    return root


def test_a_data_set_is_evaluated_without_training(root, typed):
    code, out, err = typed("evaluate", "tf_prvr", "--data", "tvr", "--root", root, "--format", "json", "model.beta=0.5")
    assert code == 0, err
    document = json.loads(out)
    assert "SumR" in document["rows"]["fused"]
    assert any(name.startswith("event") for name in document["rows"])
    code, out, err = typed("evaluate", "tf_prvr", "--data", "tvr", "--root", root, "--no-moments")
    assert code == 0, err
    assert "tf_prvr" in out


def test_a_missing_or_unsuitable_data_set_is_refused_in_one_line(refusal, data_root):
    assert "--data" in refusal("evaluate", "tf_prvr")
    assert "tvr" in refusal("evaluate", "tf_prvr", "--data", "tvr", "--root", data_root)


def test_a_library_switches_to_tf_prvr_and_back(run, videos):
    run("index", videos)
    before = json.loads(run("search", "something green", "--json")[1])
    code, _, err = run("index", "--model", "tf_prvr")
    assert (code, "tf_prvr" in err) == (0, True)
    hits = json.loads(run("search", "something green", "--json")[1])["hits"]
    assert hits[0]["video"] == str(videos / "flag.mp4")
    assert "tf_prvr" in run("doctor")[1]
    assert "tf_prvr" in run("status")[1]
    assert run("index", "--model", "frames")[0] == 0
    assert json.loads(run("search", "something green", "--json")[1]) == before


def test_a_comparison_with_a_run_prints_the_features_of_both(root, typed, tmp_path):
    model = tmp_path / "model"
    save_model(create_model("ms_sl", query_dim=SMALL.query_dim, video_dim=SMALL.video_dim, dim=8), model)
    words = ("evaluate", "tf_prvr", "--data", "tvr", "--root", root, "--no-moments")
    code, _, err = typed(*words, "--against", model)
    assert code == 0, err
    assert all(name in err for name in ("new_clip_vit_32_tvr_vid_features.hdf5", str(model)))
