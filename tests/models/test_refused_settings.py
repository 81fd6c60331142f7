"""Invalid settings are refused when a model is created. The message names the setting and its value."""

import math

import pytest

from tests.refusals import refused
from tests.retrieval_world import SIZES
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.registry import create_model

IMPOSSIBLE = [
    ("ms_sl", {"dimm": 4}, ("ms_sl", "'dimm'", "'dim'")),
    ("ms_sl", {"query_dim": None}, ("query_dim", "None")),
    ("ms_sl", {"num_heads": 3}, ("8", "num_heads", "3")),
    ("ms_sl", {"dropout": 1.0}, ("dropout", "1.0")),
    ("ms_sl", {"max_frames": 0}, ("max_frames", "0")),
    ("ms_sl", {"norm": "sandwich"}, ("norm", "'sandwich'", "post", "pre")),
    ("ms_sl", {"margin": math.nan}, ("margin", "nan")),
    ("ms_sl", {"losses": {"query_diversity": {"margins": 1.0}}}, ("'margin'",)),
    ("gmmformer_v2", {"gaussian_widths": ()}, ("gaussian_widths", "[]")),
    ("gmmformer", {"gaussian_widths": (1.0, -1.0)}, ("gaussian_widths", "0")),
    ("gmmformer", {"gaussian_widths": (math.nan,)}, ("gaussian_widths", "nan")),
    ("gmmformer", {"num_blocks": 0}, ("num_blocks", "0")),
    ("gmmformer_v2", {"temperature": 0.0}, ("temperature", "0.0")),
    ("clip4clip", {"temperature": 0.001}, ("temperature", "0.001", "0.01")),
    ("dl_dkd", {"exploration_dim": 6}, ()),
    ("dl_dkd", {"version": "later", "exploration_dim": 7}, ("num_heads",)),
    ("dl_dkd", {"hard_share": 1.2}, ("1.2",)),
    ("dl_dkd", {"temperature": 0.0}, ("0.0",)),
    ("dreamprvr", {"registers": {"num_registers": 0}}, ("registers.num_registers", "0", "1")),
    ("dreamprvr", {"registers": {"num_steps": 0}}, ("registers.num_steps", "0", "1")),
    ("dreamprvr", {"registers": {"perturbation": -0.1}}, ("registers.perturbation", "-0.1")),
    ("dreamprvr", {"losses": {"query_similarity": {"temperature": 0.0}}}, ("query_similarity.temperature", "0.0")),
    ("hlformer", {"lorentz_dim": 8}, ("lorentz_dim", "8", "num_heads", "2")),
    ("hlformer", {"lorentz_dim": 1}, ("lorentz_dim", "1")),
    ("hlformer", {"lorentz_widths": ()}, ("lorentz_widths", "[]", "0")),
    ("hlformer", {"losses": {"partial_order": {"curvature": 0.0}}}, ("curvature", "0.0", "radius", "0.1")),
    ("holmes", {"losses": {"evidence": {"temperature": 0.0}}}, ("evidence.temperature", "0.0")),
    ("holmes", {"losses": {"evidence": {"smoothing": 1.5}}}, ("evidence.smoothing", "1.5")),
    ("holmes", {"losses": {"transport": {"iterations": 0}}}, ("transport.iterations", "0")),
    ("holmes", {"losses": {"transport": {"regularisation": -1.0}}}, ("transport.regularisation", "-1.0")),
    ("jsg", {"num_centers": 0}, ("num_centers",)),
    ("jsg", {"min_width": 0.0}, ("min_width",)),
    ("jsg", {"max_width": 1.5}, ("max_width",)),
    ("jsg", {"conv_stride": 0}, ("conv_stride",)),
    ("proto", {"num_prototypes": 0}, ("num_prototypes", "0")),
    ("proto", {"iterations": 0}, ("iterations", "0")),
    ("proto", {"num_clips": 1}, ("num_clips", "1")),
    ("proto", {"masked_share": 0.0}, ("masked_share",)),
    ("proto", {"prototype_sharpness": 0.0}, ("prototype_sharpness", "0.0")),
    ("proto", {"builder": "transformer"}, ("'transformer'", "cross_attention", "perceiver", "slot_attention")),
    ("ms_sl+prototypes", {"prototypes": {"iterations": 0}}, ("prototypes", "iterations", "0")),
    ("ms_sl+prototypes", {"prototypes": {"prototype_sharpness": -1.0}}, ("prototypes", "prototype_sharpness", "-1.0")),
    ("ms_sl+prototypes", {"moments": "clips"}, ("'clips'", "prototypes")),
    ("ms_sl+ral", {"ral": {"csa": False, "msra": False}}, ()),
    ("ms_sl+ral", {"ral": {"num_proxys": 3}}, ("'num_proxies'",)),
    ("ms_sl+ral", {"ral": {"num_proxies": -1}}, ("num_proxies", "-1")),
    ("ms_sl+matching", {"losses": {}}, ("optimal_matching",)),
    ("ms_sl", {"ral": {"csa": False}}, ("ral", "ms_sl+ral")),
    ("ms_sl", {"transport": {}}, ("transport", "ms_sl", "losses.transport")),
    ("dl_dkd", {"losses": {"transport": {}}}, ("transport", "dl_dkd")),
    ("proto", {"losses": {"partial_order": {}}}, ("partial_order", "proto")),
]
SENSELESS = [
    ("gmmformer_v2+matching", ConfigError, ("gmmformer_v2", "optimal_matching")),
    ("ms_sl+gmmformer", ConfigError, ("gmmformer",)),
    ("ms_sl+ral+ral", ConfigError, ("'ral'",)),
    ("ms_sl+", ConfigError, ("ms_sl+",)),
    ("ms_sl+ral,train.epochs=3", ConfigError, ("ms_sl+ral train.epochs=3",)),
    ("ms_sl+x=3", ConfigError, ("ms_sl x=3",)),
    ("ms_sl+matchin", UnknownNameError, ("'matchin'",)),
    ("ms_sl+rall", UnknownNameError, ("'ral'",)),
    ("ms_sll+ral", UnknownNameError, ("'ms_sll'", "'ms_sl'")),
    ("ral", UnknownNameError, ("'ral'",)),
]


@pytest.mark.parametrize(("name", "settings", "words"), IMPOSSIBLE)
def test_settings_that_no_model_can_have_are_refused(name, settings, words):
    with refused(ConfigError, *words):
        create_model(name, **(SIZES | settings))


@pytest.mark.parametrize(("name", "error", "words"), SENSELESS)
def test_invalid_model_names_are_refused(name, error, words):
    with refused(error, *words):
        create_model(name, **SIZES)


def test_a_missing_size_and_an_unknown_loss_are_named():
    with refused(ConfigError, "'video_dim'"):
        create_model("ms_sl", query_dim=3)
    with refused(UnknownNameError, "'optimal_matching'"):
        create_model("ms_sl", **SIZES, losses={"optimal_matchin": {}})
