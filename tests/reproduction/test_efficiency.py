import pytest
import torch

from untrimmed.nn.attention import TokenAttention
from untrimmed.presets.published import published
from untrimmed.reproduction import efficiency
from untrimmed.reproduction.efficiency import (
    MethodCosts,
    flops,
    matching_gflops,
    megabytes_per_video,
    parameters,
    published_model,
    query_ms,
    stored_numbers,
)
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.results import efficiency_grid
from untrimmed.reproduction.tables import EfficiencyTable

COSTS = published()["ral"]["table6"]
PRINTED = {"gmmformer": "GMMFormer", "gmmformer_v2": "GMMFormer v2", "gmmformer_v2+ral": "RAL"}


@pytest.mark.parametrize("method", PRINTED)
def test_parameters_equal_the_printed_ones_and_flops_come_within_5_percent(method):
    model = published_model(method)
    assert [round(parameters(model) / 1e6, 2)] == COSTS["params_m"][PRINTED[method]]
    assert [flops(model).weights / 1e9] == pytest.approx(COSTS["flops_g"][PRINTED[method]], rel=0.05)


def test_the_flops_of_ms_sl_are_those_of_a_query_and_2500_videos():
    model = published_model("ms_sl")
    assert round(parameters(model) / 1e6, 2) == 4.85
    query = 2 * 30 * (768 * 384 + 4 * 384 * 384)  # input layer, then queries, keys, values and output map
    assert query / 1e9 + matching_gflops(model, 2500) == pytest.approx(1.29, rel=0.05)


def test_flops_of_two_linear_maps_are_two_for_each_weight_and_row():
    # clip4clip on TVR: 128 frames from 3072 to 512, 30 words from 768 to 512, and nothing else
    counted = flops(published_model("clip4clip"))
    assert counted.weights == 2 * 512 * (128 * 3072 + 30 * 768)
    assert counted.activations == 0


def test_rows_that_several_tokens_read_are_mapped_once():
    module, rows = TokenAttention(8, 2, 0.0), torch.randn(2, 5, 8)
    counts = []
    for read in (rows, rows.expand(3, 2, 5, 8)):
        saved = efficiency._SavedMaps(module)
        module(torch.randn(3, 1, 8) if read.ndim == 4 else torch.randn(8), read)
        counts.append(saved.finish())
    assert counts == [2 * 10 * 2 * 64] * 2


def test_number_of_stored_vectors_of_a_video():
    # 528 clips and 128 frames; 32 clips and the pooled video; 32 clips and 128 frames; 30 prototypes a branch
    vectors = {"ms_sl": 656, "gmmformer": 33, "gmmformer_v2": 160, "proto": 60}
    assert {method: stored_numbers(published_model(method)) // 384 for method in vectors} == vectors


def test_matching_and_memory_are_those_of_protoprvr():
    for method, name in {"ms_sl": "MS-SL", "gmmformer": "GMMFormer", "proto": "ProtoPRVR"}.items():
        model, figures = published_model(method), published()["proto"]
        assert round(matching_gflops(model, 4000), 2) == figures["table3"]["matching_g"][name][-1]
        assert round(megabytes_per_video(model), 2) == figures["table1"][name]["tvr"][-1]


@pytest.mark.check
def test_a_larger_corpus_takes_longer():
    torch.manual_seed(0)
    model = published_model("gmmformer", {"model.max_frames": 8, "model.gaussian_widths": [1.0]})
    assert 0 < query_ms(model, 10) < query_ms(model, 20_000)


def test_a_table_has_the_papers_costs_and_ours(tmp_path):
    table = PAPERS["gmmformer"].entry("table4")
    assert isinstance(table, EfficiencyTable)
    grid = efficiency_grid(table, MethodCosts(tmp_path / "times.json"))
    assert grid.header == ("", "FLOPs (G)", "parameters (M)", "FLOPs of attention (G)")
    assert ("GMMFormer", "1.95 / 1.94", "12.85 / 12.85", "- / 0.22") in grid.lines
    assert any("1.31" in note for note in grid.notes)
    assert not (tmp_path / "times.json").exists()


def test_a_measured_time_is_cached(tmp_path, monkeypatch):
    times = iter([3.5, 7.0])
    monkeypatch.setattr(efficiency, "query_ms", lambda model, num_videos: next(times))
    measured = [
        MethodCosts(tmp_path / "runs" / "times.json").measure("clip4clip", ["runtime_ms"], sizes)["runtime_ms"]
        for sizes in ((10,), (10, 20))
    ]
    assert measured == [(3.5,), (3.5, 7.0)]


@pytest.mark.check
def test_a_table_by_corpus_size_has_a_line_for_each_quantity(tmp_path, monkeypatch):
    monkeypatch.setattr(efficiency, "query_ms", lambda model, num_videos: num_videos / 100)
    grid = efficiency_grid(PAPERS["ral"].entry("table7"), MethodCosts(tmp_path / "times.json"))
    assert grid.header == ("", "", *(f"{size:,} videos" for size in (500, 1000, 1500, 2000, 2500)))
    assert grid.lines[0][:4] == ("MS-SL", "ms a query", "4.89 / 5.00", "6.11 / 10.00")
