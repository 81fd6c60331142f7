"""Output and exit codes of `untrimmed data`."""

import json

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.refusals import refused, require_named
from untrimmed.cli.data import data_app
from untrimmed.data.benchmarks.registry import list_benchmarks
from untrimmed.data.layouts import read_split
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError


def run(*arguments):
    return CliRunner().invoke(data_app, [str(argument) for argument in arguments])


@pytest.fixture
def root(tmp_path):
    result = run("simulate", "toy", "--out", tmp_path, "--videos", "10", "video_dim=5", "query_dim=6")
    assert result.exit_code == 0, result.output
    return tmp_path


def test_simulate_prints_the_folder_and_a_training_command(tmp_path):
    result = run("simulate", "toy", "--out", tmp_path, "--videos", "10", "--layout", "plain", "video_dim=5")
    assert result.exit_code == 0
    assert str(tmp_path / "toy") in result.stdout
    assert (
        result.stdout.splitlines()[-1].split(maxsplit=1)[1]
        == f"untrimmed train gmmformer_v2 --data toy --root {tmp_path}"
    )


def test_simulate_prints_its_folder_and_numbers_as_json(tmp_path):
    document = json.loads(run("simulate", "toy", "--out", tmp_path, "--videos", "10", "--json").stdout)
    assert document["folder"] == str(tmp_path / "toy")
    assert document["videos"] == {"train": 6, "val": 2, "test": 2}
    assert document["captions"]["test"] > 2


def test_the_training_command_sets_widths_that_differ_from_the_preset(tmp_path):
    result = run("simulate", "tvr", "--out", tmp_path, "--videos", "10")
    command = f"untrimmed train gmmformer_v2 --data tvr --root {tmp_path} model.query_dim=1024"
    assert result.stdout.splitlines()[-1].split(maxsplit=1)[1] == command


def test_check_exits_with_0_without_problems_and_2_with_problems(root):
    assert run("check", "toy", "--root", root).exit_code == 0
    assert json.loads(run("check", "toy", "--root", root, "--json").stdout) == {"problems": []}
    (root / "toy" / "TextData" / "roberta_toy_query_feat.hdf5").write_bytes(b"")
    result = run("check", "toy", "--root", root)
    assert result.exit_code == 2
    assert "roberta_toy_query_feat.hdf5" in result.stdout
    result = run("check", "toy", "--root", root, "--json")
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert "roberta_toy_query_feat.hdf5" in problem


def test_describe_prints_a_histogram_and_json(root):
    result = run("describe", "toy", "--root", root)
    assert result.exit_code == 0
    assert "0.0 - 0.1 █" in result.stdout
    document = json.loads(run("describe", "toy", "--root", root, "--json").stdout)
    assert [split["split"] for split in document] == ["train", "val", "test"]
    assert document[0]["videos"] == 6


def test_untrained_prints_one_row_per_baseline(root):
    printed = run("untrained", "toy", "--root", root)
    assert printed.exit_code == 0, printed.output
    _, *rows = printed.stdout.splitlines()
    assert [row[:25].strip() for row in rows] == ["chance", "zero-shot", "ridge", "ridge, best run of frames", "oracle"]
    assert rows[0].endswith("R@1  50.0   R@5 100.0   R@10 100.0   R@100 100.0   SumR 350.0")
    document = json.loads(run("untrained", "toy", "--root", root, "--json").stdout)
    assert (document["videos"], document["rows"]["chance"]["SumR"]) == (2, 350.0)
    (root / "toy" / "simulation.json").unlink()  # real features have no hidden meanings
    assert "oracle" not in run("untrained", "toy", "--root", root).stdout


def test_subtitles_are_simulated_and_ranked_without_training(tmp_path):
    assert run("simulate", "toy", "--out", tmp_path, "--videos", "10", "--subtitles", "query_dim=8").exit_code == 0
    rows = json.loads(run("untrained", "toy", "--root", tmp_path, "--json").stdout)["rows"]
    assert list(rows)[-2:] == ["subtitles", "oracle"]
    assert rows["subtitles"].keys() == rows["oracle"].keys()
    with h5py.File(tmp_path / "toy" / "subtitles.h5", "a") as file:
        for video, table in list(file.items()):
            wide = np.pad(table[()], ((0, 0), (0, 1)))
            del file[video]
            file[video] = wide
    result = run("untrained", "toy", "--root", tmp_path)
    assert isinstance(result.exception, FeatureError)
    require_named(str(result.exception), "width 9", "8")


def test_describe_skips_missing_splits(root):
    for name in ("toyval.caption.txt", "prvr_vcmr_val.jsonl"):
        (root / "toy" / "TextData" / name).unlink()
    result = run("describe", "toy", "--root", root)
    assert (result.exit_code, "val" in result.stderr) == (0, True)


def test_prepare_prints_the_published_counts(tmp_path):
    (tmp_path / "charades_sta_test.txt").write_text("A 2.0 3.0##first.\n")
    result = run("prepare", "charades", "--annotations", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "1,334 / 3,720" in result.stdout
    assert "train" in result.stderr


def test_prepare_prints_its_counts_as_json(tmp_path):
    (tmp_path / "charades_sta_test.txt").write_text("AAAAA 0.0 5.0##a person sits.\n")
    result = run("prepare", "charades", "--annotations", tmp_path, "--out", tmp_path / "out", "--json")
    document = json.loads(result.stdout)
    assert document["folder"] == str(tmp_path / "out" / "charades")
    assert {split["split"]: split["captions"] for split in document["splits"]}["test"] == 1


def test_prepare_writes_to_the_folder_of_the_name_option(tmp_path):
    (tmp_path / "charades_sta_test.txt").write_text("A 2.0 3.0##first.\n")
    words = ["prepare", "charades", "--annotations", tmp_path, "--out", tmp_path / "out", "--name", "charades_clip"]
    assert run(*words).exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["charades_clip"]
    assert [annotation.text for annotation in read_split("charades_clip", tmp_path / "out", "test")] == ["first."]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("prepare", "charade", "--annotations", ".", "--out", "out"), UnknownNameError),
        (("describe", "nothing", "--root", "."), FeatureError),
        (("simulate", "toy", "--out", "out", "niose=3"), ConfigError),
        (("simulate", "toy", "--out", "out", "--annotations", "nowhere"), ConfigError),
    ],
)
def test_invalid_arguments_raise_errors_of_one_line(tmp_path, monkeypatch, arguments, error):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert isinstance(result.exception, error)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_sources_print_places_and_commands_and_what_is_not_known():
    text = run("sources", "charades").stdout
    for word in ("microsoft/2D-TAN", "charades_sta_train.txt", "untrimmed data prepare charades", "not known"):
        assert word in text
    assert "TVRetrieval" not in text
    archives = json.loads(run("sources", "--json").stdout)
    assert {archive["benchmark"] for archive in archives} == set(list_benchmarks())
    assert all(archive["command"] and archive["files"] for archive in archives)
    with refused(UnknownNameError, "charade", "charades"):
        raise run("sources", "charade").exception
