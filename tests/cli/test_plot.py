"""The command `untrimmed plot`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tests.plots.conftest import SHORT, SMALL_MODEL
from tests.run_world import SMALL
from untrimmed.cli.plot import plot
from untrimmed.data.simulation.simulate import simulate
from untrimmed.plots.catalogue import PICTURES
from untrimmed.running.loaded import open_model
from untrimmed.training.train import train

app = typer.Typer()
app.command()(plot)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of MS-SL."""
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    root = tmp_path_factory.mktemp("plot")
    simulate("tvr", root, num_videos=10, settings=SMALL)
    return train("ms_sl", data="tvr", root=root, out=root / "run", **SMALL_MODEL, **SHORT).folder


def test_without_a_name_all_pictures_are_listed_with_their_figures():
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, [])
    assert result.exit_code == 0
    for name, picture in PICTURES.items():
        assert name in result.stdout
        assert picture.figures.split(",")[0] in result.stdout


def test_a_picture_is_written_and_its_file_named(run, tmp_path):
    out = tmp_path / "heat map.svg"
    result = CliRunner().invoke(app, ["heatmap", str(run), "-o", str(out), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert str(out) in result.stdout
    assert out.read_text().rstrip().endswith("</svg>")


def test_the_first_videos_of_several_captions_are_one_picture(run, tmp_path):
    ids = open_model(run, device="cpu").dataset.caption_ids
    words = ["top", str(run), "--query", ids[0], "--query", ids[-1], "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "top.svg")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "top.svg").is_file()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["heatmap", "RUN"], "-o heatmap.png"),
        (["heatmap", "RUN", "-o", "x.gif"], ".gif"),
        (["noise", "RUN", "-o", "x.png", "--split", "tset"], "'tset'"),
        (["tsne", "RUN", "-o", "x.png", "--seed", "1"], "--seed"),
        (["noise", "RUN", "-o", "x.png", "--moment-ratio", "0.2", "0.4"], "--moment-ratio"),
        (["noise", "RUN", "-o", "x.png", "--videos", "."], "--videos"),
        (["heatmap", "RUN", "-o", "x.png", "--query", "a", "--query", "b"], "--query"),
        (["top", "RUN", "-o", "x.png", "--query", "nobody"], "'nobody'"),
        (["noise", "RUN", "-o", "x.png", "--device", "tpu"], "tpu"),
        (["noise", "RUN", "-o", "x.png", "--root", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_command_is_one_line_with_exit_code_2(words, named, run, tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(tmp_path)
    assert named in refusal("plot", *(word.replace("RUN", str(run)) for word in words))
    assert not list(tmp_path.iterdir())


def test_the_list_of_pictures_is_printed_as_json():
    listed = json.loads(CliRunner().invoke(app, ["--json"]).stdout)
    assert list(listed) == list(PICTURES)
    assert listed["heatmap"]["figures"] == PICTURES["heatmap"].figures
