"""The table of a model without training: the paper's results, and ours if there is data."""

import json
from pathlib import Path

from tests.refusals import refused, require_named
from tests.run_world import SMALL
from untrimmed.data.layouts import read_split
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError
from untrimmed.reproduction.document import grids_of
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.runner import RunSettings
from untrimmed.running.evaluate import evaluate

TABLE = PAPERS["tf_prvr"].entry("table1")


def test_printed_results_have_the_command_that_reproduces_them():
    (grid,) = grids_of(TABLE, RunSettings(Path("runs")))
    assert [line[:6] for line in grid.lines] == [
        ("CLIP-L/14", "SumR", "172.9", "193.9", "-", "-"),
        ("SigLIP-L/14", "SumR", "178.7", "198.5", "-", "-"),
        ("EVA-CLIP-L/14", "SumR", "180.4", "200.8", "-", "-"),
    ]
    assert grid.lines[0][6] == "`untrimmed evaluate tf_prvr --data activitynet_clip_l --root DIR --no-moments`"


def test_our_results_are_listed_for_data_in_the_root(tmp_path):
    simulate("activitynet_siglip_l", tmp_path, num_videos=24, settings=SMALL, teacher=True)
    (grid,) = grids_of(TABLE, RunSettings(Path("runs"), root=tmp_path))
    ours = evaluate("tf_prvr", data="activitynet_siglip_l", root=tmp_path).figures["SumR"]
    label = "SigLIP-L/14, ours simulated"
    assert [line[:6] for line in grid.lines] == [(label, "SumR", "178.7", "198.5", "-", f"{ours:.1f}")]
    require_named(grid.notes[-1], "activitynet_clip_l", "activitynet_eva_clip_l")


def test_with_dense_labels_any_right_video_is_counted_beside_the_annotated_one(tmp_path):
    data = {"data": "activitynet_siglip_l", "root": tmp_path}
    simulate(data["data"], tmp_path, num_videos=24, settings=SMALL, teacher=True)
    captions = read_split(data["data"], tmp_path, "test")
    videos = list(dict.fromkeys(row.video for row in captions))
    labels = [{"query_id": row.caption_id, "gt_video_ids": videos} for row in captions]
    file = tmp_path / data["data"] / "activitynetdenseval.gt.jsonl"
    file.write_text("".join(json.dumps(label) + "\n" for label in labels))
    rows = evaluate("tf_prvr", **data).rows
    (grid,) = grids_of(TABLE, RunSettings(Path("runs"), root=tmp_path))
    one, several = (f"{rows[name]['SumR']:.1f}" for name in ("fused", "any right video"))
    assert grid.lines[0][4:6] == (several, one)
    assert (several, float(one) < 400) == ("400.0", True)


def test_a_root_without_the_data_sets_is_refused(tmp_path):
    with refused(ConfigError, "table1", "activitynet_clip_l", "activitynet_siglip_l"):
        list(grids_of(TABLE, RunSettings(Path("runs"), root=tmp_path)))
