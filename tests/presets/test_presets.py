import re

import pytest

from tests.refusals import refused
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import configure, create_model
from untrimmed.presets import choose_preset, list_presets, load_preset, naming_own_data_preset, read_preset

SMALL = {"model.dim": 8, "model.query_dim": 6, "model.video_dim": 5}


@pytest.mark.parametrize(("method", "dataset"), list_presets())
def test_every_preset_builds_its_model_and_weighs_its_terms(method, dataset, batch):
    preset = load_preset(method, dataset, SMALL)
    assert (preset.method, preset.dataset) == (method, dataset)
    model = create_model(preset.method, **preset.settings)
    weights = {name: weight for name, weight in preset.weights.items() if name not in model.config.absent_terms}
    loss = total_loss(model(batch, draws=Draws(preset.train.hard_pool)), weights)
    assert loss.isfinite()


@pytest.mark.parametrize("method", ["ms_sl", "gmmformer", "gmmformer_v2", "hlformer", "dreamprvr", "holmes"])
def test_three_data_sets_have_presets_with_the_papers_sum(method):
    for dataset in ("tvr", "activitynet", "charades"):
        reported = load_preset(method, dataset).reported
        recalls = [value for name, value in reported.items() if name != "SumR"]
        assert reported["SumR"] == pytest.approx(sum(recalls), abs=0.21)  # each of the five is rounded to 0.1


SIDES = {  # options in which the paper and the released program differ
    "ms_sl": {"norm"},
    "gmmformer": {"norm", "window", "window_length", "output_map", "ffn_ratio", "triplet"},
    "gmmformer_v2": {"norm", "window", "padding_scores", "triplet", "weight_generator"},
    "hlformer": {"norm", "window", "padding_scores", "triplet", "weight_generator", "fusion_token", "lorentz_widths"},
}


@pytest.mark.parametrize(("method", "options"), SIDES.items())
def test_presets_state_every_option_in_which_paper_and_release_differ(method, options):
    for dataset in ("tvr", "activitynet", "charades"):
        preset = load_preset(method, dataset)
        assert options <= preset.model.keys()
        rest = {key: value for key, value in preset.settings.items() if key not in options}
        assert configure(preset.name, rest) == preset.sizes()  # the defaults have the same values


def test_overrides_attach_and_detach_losses():
    attached = load_preset(
        "ms_sl", "tvr", SMALL | {"losses.query_diversity": {"margin": 0.2}, "weights.query_diversity": 0.003}
    )
    assert list(create_model("ms_sl", **attached.settings).attachments) == ["query_diversity"]
    detached = load_preset("gmmformer_v2", "tvr", SMALL | {"losses.optimal_matching": None})
    assert list(create_model("gmmformer_v2", **detached.settings).attachments) == ["query_diversity"]


def test_an_attached_loss_needs_a_weight():
    with pytest.raises(ConfigError, match=r"weights\.query_diversity"):
        load_preset("ms_sl", "tvr", {"losses.query_diversity": {}})


def test_an_unknown_loss_is_refused_before_its_missing_weight():
    with refused(UnknownNameError, "'transprt'", "'transport'"):
        load_preset("ms_sl", "tvr", {"losses.transprt.iterations": 1})


@pytest.mark.parametrize(
    ("method", "term", "carried"),
    [
        ("gmmformer_v2", "transport", "gmmformer_v2+transport"),
        ("gmmformer_v2+ral", "register_kl", "gmmformer_v2+ral+registers"),
    ],
)
def test_a_weight_of_a_missing_attachment_is_refused_with_the_model_that_has_it(method, term, carried):
    with pytest.raises(ConfigError, match=re.escape(carried)):
        load_preset(method, "tvr", {f"weights.{term}": 0.5})


@pytest.mark.parametrize(
    ("override", "message"),
    [({"trian.epochs": 3}, "'trian'.*'train'"), ({"train.epoch": 3}, "'epochs'")],
)
def test_unknown_keys_are_refused_with_a_suggestion(override, message):
    with pytest.raises(ConfigError, match=message):
        load_preset("ms_sl", "tvr", override)


def test_an_unknown_preset_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="'tvr'"):
        load_preset("ms_sl", "tv")


def test_a_preset_can_be_any_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("method: ms_sl\ndataset: mine\nmodel: {query_dim: 4}\nweights: {}\ntrain: {}\n")
    assert read_preset(path).train.batch_size == 128


def test_only_jsgs_event_variant_iterates_over_captions_and_selects_by_moments():
    for dataset in (data for method, data in list_presets() if method == "jsg"):
        preset = load_preset("jsg", dataset)
        is_event = preset.model["variant"] == "event"
        assert is_event == dataset.endswith("_event")
        assert (preset.train.batch_of, preset.train.select_by) == (
            ("captions", "event SumR") if is_event else ("videos", "SumR")
        )


def test_a_weight_of_an_attachment_that_does_not_fit_is_kept():
    weights = load_preset("ms_sl", "tvr", {"weights.register_kl": 0.5}).weights
    assert weights["register_kl"] == 0.5, "the model refuses it later, as an unknown term"


def test_an_error_in_the_preset_of_own_data_names_the_preset():
    message = r"^ms_sl/tvr: .*toy has no preset.*tvr"
    with pytest.raises(ConfigError, match=message), naming_own_data_preset("ms_sl", "toy", None):
        choose_preset("ms_sl", "toy", None, {"model.dmi": 3}).sizes()
