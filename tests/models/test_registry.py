import subprocess
import sys

import pytest

from tests.refusals import refused
from tests.retrieval_world import SIZES
from untrimmed.errors import ConfigError
from untrimmed.models.attached_losses import QueryDiversity
from untrimmed.models.attachment import Attachment
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import create_model, list_models, paper_of, register


def test_methods_are_listed_by_name():
    assert {"gmmformer", "gmmformer_v2", "ms_sl"} <= set(list_models())
    assert list_models() == sorted(list_models())


def test_every_method_names_its_paper():
    for name in ("gmmformer", "gmmformer_v2", "ms_sl"):
        assert any(venue in paper_of(name) for venue in ("arXiv", "ACM MM"))


def test_a_taken_name_is_refused():
    with refused(ConfigError, "'ms_sl'"):

        @register("ms_sl")
        class Other(RetrievalModel):
            pass


@pytest.mark.parametrize("name", ["", "my+loss", "my loss", "2d", "losses", "dim"])
@pytest.mark.parametrize("kind", [Attachment, RetrievalModel])
def test_an_unusable_name_is_refused(kind, name):
    with refused(ConfigError, kind.__name__, repr(name)):
        register(name)(kind)


def test_dotted_keys_reach_inside_a_section():
    model = create_model("gmmformer_v2", **SIZES, **{"losses.query_diversity.margin": 0.4})
    assert model.config.losses["query_diversity"] == QueryDiversity.Config(margin=0.4, scale=32.0, focus=1.0)
    assert model.attachments["query_diversity"].config.margin == 0.4


def test_the_package_and_its_settings_import_without_torch():
    code = (
        "import sys, untrimmed, untrimmed.config, untrimmed.presets, untrimmed.evaluation.recall; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
