import subprocess
import sys

import pytest

from tests.retrieval_world import SIZES
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.attached_losses import QueryDiversity
from untrimmed.models.attachment import Attachment
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import create_model, list_models, paper_of, register


def test_methods_are_listed_by_name():
    assert {"gmmformer", "gmmformer_v2", "ms_sl"} <= set(list_models())
    assert list_models() == sorted(list_models())


def test_an_unknown_method_gets_the_nearest_name():
    with pytest.raises(UnknownNameError, match=r"no model named 'gmmformer_v3'. Did you mean 'gmmformer_v2'\?"):
        create_model("gmmformer_v3")


def test_every_method_names_its_paper():
    for name in ("gmmformer", "gmmformer_v2", "ms_sl"):
        assert any(venue in paper_of(name) for venue in ("arXiv", "ACM MM"))


def test_a_taken_name_is_refused():
    with pytest.raises(ConfigError, match="two methods are named 'ms_sl'"):

        @register("ms_sl")
        class Other(RetrievalModel):
            pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'', which is no identifier; choose another name"),
        ("my+loss", "'my\\+loss', which is no identifier"),
        ("my loss", "'my loss', which is no identifier"),
        ("2d", "'2d', which is no identifier"),
        ("losses", "'losses', which is a setting of every model"),
        ("dim", "'dim', which is a setting of every model"),
    ],
)
@pytest.mark.parametrize("kind", [Attachment, RetrievalModel])
def test_a_name_that_could_not_be_asked_for_is_refused(kind, name, message):
    with pytest.raises(ConfigError, match=f"{kind.__name__} is to be named {message}"):
        register(name)(kind)


def test_dotted_keys_reach_inside_a_section():
    model = create_model("gmmformer_v2", **SIZES, **{"losses.query_diversity.margin": 0.4})
    assert model.config.losses["query_diversity"] == QueryDiversity.Config(margin=0.4, scale=32.0, focus=1.0)
    assert model.attachments["query_diversity"].config.margin == 0.4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dimm": 4}, "ms_sl: unknown key 'dimm'. Did you mean 'dim'"),
        ({"query_dim": None}, "query_dim is None"),
        ({"num_heads": 3}, "dim 8 is not divisible by num_heads 3"),
        ({"dropout": 1.0}, "dropout is 1.0, wanted a probability"),
        ({"max_frames": 0}, "max_frames is 0"),
        ({"norm": "sandwich"}, "norm is 'sandwich', wanted one of post, pre"),
        ({"losses": {"query_diversity": {"margins": 1.0}}}, "Did you mean 'margin'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        create_model("ms_sl", **(SIZES | settings))


def test_a_missing_size_is_named():
    with pytest.raises(ConfigError, match="'video_dim' is missing"):
        create_model("ms_sl", query_dim=3)


def test_an_unknown_attached_loss_gets_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'optimal_matching'"):
        create_model("ms_sl", **SIZES, losses={"optimal_matchin": {}})


def test_the_package_and_its_settings_import_without_torch():
    code = (
        "import sys, untrimmed, untrimmed.config, untrimmed.presets, untrimmed.evaluation.recall; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
