"""Every picture is written from real runs; wrong arguments are refused in one line."""

import shutil

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError, UntrimmedError
from untrimmed.plots.catalogue import PICTURES, PlotOptions, plot

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


def test_every_picture_is_tested():
    assert RUNS_OF.keys() == PICTURES.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_wide_as_a_column(name, runs_folder, tmp_path):
    plot(name, [runs_folder / run for run in RUNS_OF[name]], tmp_path / "deep" / "a.png", device="cpu")
    drawn = image.imread(tmp_path / "deep" / "a.png")
    assert drawn.shape[1] == 1050  # 3.5 inches of 300 dots
    assert 0.02 < (drawn[..., :3].min(axis=2) < 0.95).mean() < 0.9
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.png"]


@pytest.mark.parametrize("suffix", ["png", "SVG"])
def test_a_picture_is_the_same_every_time(runs_folder, tmp_path, suffix):
    files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        plot("matching", [runs_folder / "proto"], file, device="cpu")
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "runs", "out", "message"),
    [
        ("heatmaps", ["v2"], "x.png", "'heatmap'"),
        ("heatmap", ["v2"], "x.jpg", r"\.jpg.*\.png"),
        ("heatmap", ["v2"], "x", r"\.png"),
        ("heatmap", ["nothing"], "x.png", "nothing"),
        ("heatmap", ["data"], "x.png", "data"),
        ("heatmap", [], "x.png", "heatmap"),
        ("heatmap", ["v2", "v2"], "x.png", "v2"),
        ("sweep", ["v2"], "x.png", "sweep.* 1 .* 2 "),
        ("matching", ["proto", "v2"], "x.png", "matching.* 2 "),
        ("tsne", ["v2", "v2_weight", "ral", "proto", "nothing"], "x.png", " 5 .* 4 "),
        ("prototypes", ["v2"], "x.png", "v2.*prototypes.*proto"),
        ("uncertainty", ["v2", "ral"], "x.png", r"v2.*uncertainty.*\+ral"),
        ("words", ["proto"], "x.png", r"proto.*words.*\+ral"),
        ("uncertainty", ["csa"], "x.png", r"gmmformer_v2\+ral"),
        ("sweep", ["v2", "ral"], "x.png", "v2.*ral"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(name, runs, out, message, runs_folder, tmp_path):
    with pytest.raises(UntrimmedError, match=message) as refused:
        plot(name, [runs_folder / run for run in runs], tmp_path / out, device="cpu")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_caption_is_chosen_by_its_id(runs_folder, trained, tmp_path):
    ids = trained["v2"].dataset.caption_ids
    for number in (0, -1):
        options = PlotOptions(query=(ids[number],))
        plot("heatmap", [runs_folder / "v2"], tmp_path / f"{number}.png", options, device="cpu")
    assert not np.array_equal(image.imread(tmp_path / "0.png"), image.imread(tmp_path / "-1.png"))
    with pytest.raises(UnknownNameError, match="'nobody'"):
        plot("heatmap", [runs_folder / "v2"], tmp_path / "x.png", PlotOptions(query=("nobody",)), device="cpu")
    with refused(ConfigError, "noise", "--query"):
        plot("noise", [runs_folder / "v2"], tmp_path / "x.png", PlotOptions(query=("nobody",)))


def test_a_run_without_a_finished_epoch_is_refused(runs_folder, tmp_path):
    (tmp_path / "begun").mkdir()
    shutil.copy(runs_folder / "v2" / "config.yaml", tmp_path / "begun")
    with pytest.raises(CheckpointError, match="begun"):
        plot("tsne", [tmp_path / "begun"], tmp_path / "x.png")


def test_data_that_has_moved_is_found_by_its_new_root(runs_folder, tmp_path):
    shutil.copytree(runs_folder / "data", tmp_path / "elsewhere")
    for root, out in ((None, "a.png"), (tmp_path / "elsewhere", "b.png")):
        plot("noise", [runs_folder / "v2"], tmp_path / out, root=root, device="cpu")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    shutil.rmtree(tmp_path / "elsewhere" / "tvr" / "FeatureData")
    with pytest.raises(UntrimmedError, match="elsewhere"):
        plot("noise", [runs_folder / "v2"], tmp_path / "c.png", root=tmp_path / "elsewhere", device="cpu")


def test_an_existing_picture_is_unchanged_if_drawing_fails(runs_folder, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"older")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *args, **settings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plot("matching", [runs_folder / "proto"], tmp_path / "a.png", device="cpu")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.png", b"older")]
