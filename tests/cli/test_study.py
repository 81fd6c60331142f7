"""The command `untrimmed study` on 24 simulated videos."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from tests.cli.conftest import numbers
from tests.refusals import require_named
from tests.run_world import SMALL
from untrimmed.data.simulation.simulate import simulate

SIZES = ["--dim", 8, "--frames", 20, "--batch", 4, "--rates", "3e-4", "--search-steps", 4, "--steps", 8]


@pytest.fixture
def words(data_root, tmp_path):
    return ["study", "ms_sl", "--data", "tvr", "--root", data_root, "--out", tmp_path / "runs", *SIZES]


def test_a_study_trains_writes_its_page_and_continues_with_more_seeds(typed, words, tmp_path):
    page = tmp_path / "docs" / "combinations.md"
    page.parent.mkdir()
    words += ["--attach", "evidence,registers", "--page", page]
    code, printed, err = typed(*words, "--seeds", 1)
    assert code == 0
    assert "ms_sl+evidence-0.0003-4-0" in err
    rows = [line.split("|")[1].strip() for line in page.read_text().splitlines() if line.startswith("| ")]
    assert sorted(row.strip("*") for row in rows[2:4]) == ["`ms_sl+evidence`", "`ms_sl`"]
    assert rows[4:9] == ["oracle", "ridge, best run of frames", "ridge", "zero-shot", "chance"]
    assert "registers" in page.read_text()
    assert (page.parent / "figures" / "combinations.png").is_file()
    assert "1 of 1" in page.read_text()
    assert "ms_sl+evidence" in printed

    code, _, err = typed(*words, "--seeds", 2)
    assert code == 0
    code, table, _ = typed("compare", tmp_path / "runs" / "tvr" / "*-8-*", "--format", "csv")
    labels = {tuple(line.split(",")[:3]) for line in table.splitlines()[1:]}
    assert (code, labels) == (0, {("tvr", "ms_sl", "2"), ("tvr", "ms_sl+evidence", "2")})
    trained = set(re.findall(r"ms_sl[+\w]*-0\.0003-8-\d", err))
    assert trained == {"ms_sl-0.0003-8-1", "ms_sl+evidence-0.0003-8-1"}
    assert "2 of 2" in page.read_text()
    assert "±" in page.read_text()


def test_a_page_is_written_from_existing_runs(typed, words, tmp_path):
    page = tmp_path / "page.md"
    assert typed(*words, "--seeds", 1, "--attach", "evidence", "--page", page)[0] == 0
    more = ["--seeds", 2, "--attach", "evidence,transport", "--rates", "1e-3,3e-4"]
    code, _, err = typed(*words, *more, "--page", page, "--jobs", 0)
    assert code == 0
    assert "ms_sl-" not in err
    assert all(value in page.read_text() for value in ("`ms_sl+transport`", "0.001", "1 of 2"))


def test_result_files_give_the_same_page_without_the_runs(typed, words, tmp_path):
    pages = [tmp_path / "first" / "page.md", tmp_path / "second" / "page.md"]
    for page in pages:
        page.parent.mkdir()
    words += ["--seeds", 1, "--attach", "evidence", "--page"]
    assert typed(*words, pages[0])[0] == 0
    for run in (tmp_path / "runs" / "tvr").glob("*/"):
        shutil.rmtree(run)
    code, _, err = typed(*words, pages[1], "--jobs", 0)
    assert (code, "ms_sl-" in err) == (0, False)
    first, second = ([_told(line) for line in page.read_text().splitlines()] for page in pages)
    assert first == second


def test_json_has_the_rows_and_the_results_of_the_search(typed, words):
    words += ["--rates", "1e-3,3e-4", "--grid", "model.dropout=0.1,0.2", "--seeds", 2, "gmmformer"]
    code, printed, _ = typed(*words)
    assert code == 0
    code, text, _ = typed(*words, "--jobs", 0, "--json")
    (results,) = json.loads(text)
    best, other = results["rows"]
    assert (code, results["data"], best["seeds"], best["p to best, seeds"]) == (0, "tvr", 2, None)
    assert best["SumR"] >= other["SumR"]
    assert other["costs"]["parameters"] > 0
    assert results["untrained"]["oracle"]["SumR"] > results["untrained"]["chance"]["SumR"]
    searched = [entry for entry in results["searched"] if entry["model"] == "ms_sl"]
    choices = {(entry["rate"], *entry["settings"]) for entry in searched}
    assert choices == {(rate, f"model.dropout={value}") for rate in (1e-3, 3e-4) for value in (0.1, 0.2)}
    rows = [re.findall(r"[\w.]+", line) for line in printed.splitlines() if line.startswith("| `ms_sl` | 0.0")]
    assert [row[0:2] for row in rows] == [["ms_sl", "0.001"], ["ms_sl", "0.0003"]]
    assert {float(cell) for row in rows for cell in row[2:]} == {round(entry["SumR"], 1) for entry in searched}


def _told(line):
    """A line of the page, without the measured times of a table."""
    cells = line.split("|")
    return cells[:12] + cells[13:] if len(cells) > 3 else cells


def test_several_worlds_are_compared_on_the_page_and_in_the_output(typed, tmp_path):
    for name, settings in (("tvr", SMALL), ("tvr_mixed", replace(SMALL, words="mixed"))):
        simulate(name, tmp_path / "data", num_videos=24, settings=settings)
    page = tmp_path / "page.md"
    words = ["study", "ms_sl", "--data", "tvr", "--data", "tvr_mixed", "--root", tmp_path / "data"]
    code, printed, _ = typed(*words, "--out", tmp_path / "runs", *SIZES, "--seeds", 1, "--page", page)
    assert code == 0
    for text in (printed, page.read_text()):
        header = next(line for line in text.splitlines() if "| tvr | tvr_mixed |" in line)
        (row,) = (line for line in text[text.index(header) :].splitlines() if line.startswith("| `ms_sl`"))
        assert row.count("(1)") == 2  # its place in each world
        assert "`words=mixed`" in text
        assert "favours" in text


def test_a_dry_run_lists_the_trainings_and_trains_nothing(typed, words, tmp_path):
    code, printed, _ = typed(*words, "--attach", "evidence,registers", "--dry-run")
    assert code == 0
    assert all(word in printed for word in ("tvr", "evidence", "registers"))
    assert {1, 4} <= set(numbers(printed))
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_gives_the_purpose_of_several_rates(typed, words):
    for more in (["--rates", "1e-3,3e-4"], ["gmmformer"]):
        assert {2, 4} <= set(numbers(typed(*words, *more, "--dry-run")[1]))


def test_a_dry_run_refuses_runs_of_other_sizes_and_data_and_writes_nothing(typed, refusal, words, tmp_path):
    runs = tmp_path / "runs"
    assert typed(*words, "--seeds", 1)[0] == 0
    before = {path: path.read_bytes() for path in runs.rglob("*.json")}
    assert typed(*words, "--dry-run")[0] == 0
    assert re.search(r"\b8\b.*\b16\b", refusal(*words, "--dim", 16, "--dry-run"))
    assert {path: path.read_bytes() for path in runs.rglob("*.json")} == before

    simulate("tvr", tmp_path / "other", num_videos=24, settings=replace(SMALL, seed=7))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refusal(*words, "--root", tmp_path / "other", "--dry-run")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--attach", "evidenc"], "'evidence'"),
        (["--attach", "transport,evidence,transport"], "'transport'"),
        (["ms_sl"], "'ms_sl'"),
        (["ms_sl+matching", "ms_sl+optimal_matching"], "'ms_sl+optimal_matching'"),
        (["--page", "page.html"], ".md"),
        (["--rates", "fast"], "fast"),
        (["--seeds", 0], "seeds"),
        (["--batch", 0], "batch"),
        (["ms_sll"], "'ms_sl'"),
        (["tf_prvr"], "tf_prvr"),
        (["dl_dkd"], "dl_dkd"),
    ],
)
def test_mistakes_are_named_before_training(refusal, words, wrong, named):
    assert named in refusal(*words, *wrong)


@pytest.mark.parametrize("row", ["ms_sl,weights.evidence=0.5", "gmmformer,weights.clip_nec=0.5"])
def test_a_weight_without_a_loss_is_refused_with_its_row_before_training(refusal, words, row):
    message = refusal(*words, row, "--dry-run")
    assert message.count(row) == 1
    assert "ms_sl+evidence" in message or "'clip_nce'" in message


def test_a_grid_that_fits_only_some_methods_is_refused_with_advice(refusal, words):
    words = [*words, "proto", "--dry-run", "--grid"]
    require_named(refusal(*words, "model.iterations=1,2").strip(), "ms_sl", "--grid", "proto,model.iterations=1")
    assert "--grid" not in refusal(*words, "model.iteration=1,2")
