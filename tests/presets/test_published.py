"""The published figures: `published.yaml` has each of them once, for tables and presets."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.refusals import refused
from untrimmed import presets
from untrimmed.config import read_yaml
from untrimmed.errors import UnknownNameError
from untrimmed.presets import list_presets, load_preset, read_preset
from untrimmed.presets.published import EVENTS, RECALL, published, reported
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.tables import TrainedTable

FOLDER = Path(presets.__file__).parent
READMES = {"ms_sl", "dl_dkd"}  # results in the readmes of released programs


def test_every_figure_is_printed_by_its_table():
    assert published().keys() == PAPERS.keys() | READMES
    for paper in PAPERS.values():
        shown = {}
        for entry in paper.entries:
            rows = {row.name: row.paper for row in entry.rows} if isinstance(entry, TrainedTable) else None
            figures = rows if rows is not None else getattr(entry, "paper", {})
            shown[entry.name] = {name: values for name, values in figures.items() if values}
        assert {name: rows for name, rows in shown.items() if rows} == published()[paper.name]


def test_a_paper_prints_what_its_preset_reports():
    row = next(row for row in PAPERS["gmmformer_v2"].entry("table1").rows if row.name == "GMMFormer v2")
    assert dict(zip(RECALL, row.paper["tvr"], strict=True)) == load_preset("gmmformer_v2", "tvr").reported
    assert load_preset("jsg", "didemo_event").reported.keys() == set(EVENTS)
    assert load_preset("proto", "tvr").reported.keys() == set(RECALL)  # its table has a sixth column


@pytest.mark.parametrize(("method", "dataset"), list_presets())
def test_no_preset_repeats_a_figure(method, dataset):
    assert isinstance(read_yaml(FOLDER / method / f"{dataset}.yaml").get("reported", []), list)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (["gmmformer3", "table1", "MS-SL", "tvr"], "'gmmformer3'.*'gmmformer'"),
        (["gmmformer", "table1", "MSSL", "tvr"], "gmmformer, table1.*'MSSL'.*'MS-SL'"),
        (["gmmformer", "table1", "MS-SL", "tvr", "R@1"], "'R@1'"),
        (["gmmformer", "table1", "MS-SL"], "tvr"),
        (["jsg", "table5", "full", "charades"], "12.8, 49.8.*R@1, R@5, R@10, R@100, SumR"),
        (["gmmformer", "table4", "params_m", "GMMFormer"], "12.85.*R@1"),
        (["gmmformer", "table5", "runtime_ms", "GMMFormer"], "2.68, 2.93, 3.4, 3.94, 4.56.*R@1"),
        (["ral", "table5", "+ RAL", "msrvtt"], "47.2, 73.6, 83.1, 2.0, 12.5.*R@1"),
        (["jsg", "table5", "w/o GD", "charades_event"], "R@10 IoU=0.3"),
    ],
)
def test_an_unknown_row_is_refused_with_suggestions(address, message):
    with pytest.raises(UnknownNameError, match=message):
        reported(address)


def test_importing_the_module_reads_no_figures():
    code = "import untrimmed, untrimmed.presets.published as p; assert p.published.cache_info().misses == 0"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_users_preset_can_name_a_row_or_contain_figures(tmp_path):
    values = read_yaml(FOLDER / "ms_sl" / "tvr.yaml")
    for found, wanted in (
        (["ral", "table1", "MS-SL", "tvr"], load_preset("ms_sl", "tvr").reported),
        ({"SumR": 3}, None),
    ):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values | {"reported": found}))
        assert read_preset(tmp_path / "mine.yaml").reported == (wanted or found)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values | {"reported": ["ral", 1]}))
    with refused(UnknownNameError, "ral", "'1'"):
        read_preset(tmp_path / "mine.yaml")
