"""Every picture is written from real runs; what does not fit is refused in one line."""

import shutil

import numpy as np
import pytest

from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError, UntrimmedError
from untrimmed.plots.catalogue import PICTURES, Asked, plot

image = pytest.importorskip("matplotlib.image", reason="the extra `plot` is not installed")
RUNS_OF = {
    "heatmap": ["v2", "proto"],
    "top": ["v2", "proto"],
    "texts": ["v2", "proto"],
    "tsne": ["v2", "proto"],
    "variance": ["v2", "proto"],
    "prototypes": ["proto"],
    "attendance": ["proto"],
    "matching": ["proto"],
    "moment-ratio": ["v2", "ral"],
    "noise": ["v2", "ral"],
    "uncertainty": ["ral", "v2"],
    "words": ["ral"],
    "first-ten": ["v2", "ral"],
    "epochs": ["v2", "ral"],
    "sweep": ["v2", "v2_weight"],
}


def test_every_picture_has_runs_here():
    assert RUNS_OF.keys() == PICTURES.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_wide_as_a_column_and_the_same_every_time(name, runs_folder, tmp_path):
    folders = [runs_folder / run for run in RUNS_OF[name]]
    for out in (tmp_path / "a.png", tmp_path / "deep" / "b.png"):
        plot(name, folders, out, device="cpu")
    first = image.imread(tmp_path / "a.png")
    assert first.shape[1] == 1050  # 3.5 inches of 300 dots
    assert 0.02 < (first[..., :3].min(axis=2) < 0.95).mean() < 0.9
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "deep" / "b.png").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.png"]


def test_an_svg_is_the_same_every_time(runs_folder, tmp_path):
    for out in ("a.svg", "b.SVG"):
        plot("matching", [runs_folder / "proto"], tmp_path / out, device="cpu")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.SVG").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


@pytest.mark.parametrize(
    ("name", "runs", "out", "message"),
    [
        ("heatmaps", ["v2"], "x.png", r"no picture named 'heatmaps'. Did you mean 'heatmap'\?"),
        ("heatmap", ["v2"], "x.jpg", r"ends in '.jpg', wanted .png or .svg; rename it, e.g. x.png"),
        ("heatmap", ["v2"], "x", "has no suffix, wanted .png or .svg"),
        ("heatmap", ["nothing"], "x.png", "nothing: no such folder; give the folder of a run"),
        ("heatmap", ["data"], "x.png", "data: holds no run"),
        ("heatmap", [], "x.png", "found no runs, wanted at least 1 run"),
        ("heatmap", ["v2", "v2"], "x.png", "v2: given twice"),
        ("sweep", ["v2"], "x.png", "plot sweep: found 1 run, wanted at least 2 runs"),
        ("matching", ["proto", "v2"], "x.png", "plot matching: found 2 runs, wanted one run"),
        ("tsne", ["v2", "v2_weight", "ral", "proto", "nothing"], "x.png", "found 5 runs, wanted at most 4 runs"),
        (
            "prototypes",
            ["v2"],
            "x.png",
            "v2: gmmformer_v2 has no part that it shows; plot prototypes wants proto",
        ),
        ("uncertainty", ["v2", "ral"], "x.png", r"v2: gmmformer_v2 .* plot uncertainty wants any \+ral; give such"),
        ("words", ["proto"], "x.png", r"proto: proto .* plot words wants any \+ral"),
        (
            "uncertainty",
            ["csa"],
            "x.png",
            r"gmmformer_v2\+ral was trained without the part that it shows; train one with",
        ),
        ("sweep", ["v2", "ral"], "x.png", "v2 and ral differ in .*; a sweep wants runs that differ"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, runs, out, message, runs_folder, tmp_path):
    with pytest.raises(UntrimmedError, match=message) as refused:
        plot(name, [runs_folder / run for run in runs], tmp_path / out, device="cpu")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_caption_is_chosen_by_its_id_where_one_is_shown(runs_folder, trained, tmp_path):
    ids = trained["v2"].dataset.caption_ids
    for number in (0, -1):
        plot("heatmap", [runs_folder / "v2"], tmp_path / f"{number}.png", Asked(query=(ids[number],)), device="cpu")
    assert not np.array_equal(image.imread(tmp_path / "0.png"), image.imread(tmp_path / "-1.png"))
    with pytest.raises(UnknownNameError, match=r"no caption has the id 'nobody'"):
        plot("heatmap", [runs_folder / "v2"], tmp_path / "x.png", Asked(query=("nobody",)), device="cpu")
    with pytest.raises(ConfigError, match="plot noise takes no --query; it is for heatmap, top, prototypes, words"):
        plot("noise", [runs_folder / "v2"], tmp_path / "x.png", Asked(query=("nobody",)))


def test_a_run_without_a_finished_epoch_is_refused(runs_folder, tmp_path):
    (tmp_path / "begun").mkdir()
    shutil.copy(runs_folder / "v2" / "config.yaml", tmp_path / "begun")
    with pytest.raises(CheckpointError, match="its first epoch is not finished"):
        plot("tsne", [tmp_path / "begun"], tmp_path / "x.png")


def test_data_that_has_moved_is_found_by_its_new_root(runs_folder, tmp_path):
    shutil.copytree(runs_folder / "data", tmp_path / "elsewhere")
    for root, out in ((None, "a.png"), (tmp_path / "elsewhere", "b.png")):
        plot("noise", [runs_folder / "v2"], tmp_path / out, root=root, device="cpu")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    shutil.rmtree(tmp_path / "elsewhere" / "tvr" / "FeatureData")
    with pytest.raises(UntrimmedError, match="elsewhere"):
        plot("noise", [runs_folder / "v2"], tmp_path / "c.png", root=tmp_path / "elsewhere", device="cpu")


def test_an_older_picture_stays_when_drawing_fails(runs_folder, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"older")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *args, **settings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plot("matching", [runs_folder / "proto"], tmp_path / "a.png", device="cpu")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.png", b"older")]
