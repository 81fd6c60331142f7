import pytest
import torch

from tests.retrieval_world import SIZES
from untrimmed.errors import CheckpointError
from untrimmed.models.registry import create_model, list_models
from untrimmed.models.released import export_released, import_released

METHODS = (
    "dl_dkd",
    "dreamprvr",
    "gmmformer",
    "gmmformer_v2",
    "gmmformer_v2+ral",
    "hlformer",
    "holmes",
    "holmes+ral",
    "jsg",
    "ms_sl",
)


def ending(names, end):
    """The first name with that end; DL-DKD's have its branch in front."""
    return next(name for name in names if name.endswith(end))


@pytest.fixture(params=METHODS)
def model(request):
    torch.manual_seed(0)
    return create_model(request.param, **SIZES)


def test_export_and_import_are_inverse(model):
    torch.manual_seed(1)
    other = create_model(model.name, **SIZES)
    released = export_released(model.released_names(), model.state_dict())
    import_released(other, other.released_names(), {f"module.{name}": tensor for name, tensor in released.items()})
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in other.state_dict().items())


def test_released_names_cover_every_number_once(model):
    released = export_released(model.released_names(), model.state_dict())
    assert sum(t.numel() for t in released.values()) == sum(t.numel() for t in model.state_dict().values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda names: names.pop(ending(names, "modular_vector_mapping.weight")), r"lacks \w*modular_vector_mapping"),
        (lambda names: names.update(novelty=torch.zeros(1)), "unknown tensors novelty"),
        (
            lambda names: names.update({ending(names, "pos_embed.LayerNorm.weight"): torch.zeros(9)}),
            r"has shape \(9,\)",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(model, change, message):
    released = {n: t + 1 for n, t in export_released(model.released_names(), model.state_dict()).items()}
    change(released)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=message):
        import_released(model, model.released_names(), released)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("method", sorted(set(list_models()) - set(METHODS)))
def test_a_method_without_a_release_has_nothing_to_import(method):
    with pytest.raises(CheckpointError, match=f"{method}: no released checkpoint is known"):
        create_model(method, **SIZES).released_names()


def test_options_that_the_release_lacks_cannot_be_filled():
    released_form = create_model("gmmformer", **SIZES)
    released = export_released(released_form.released_names(), released_form.state_dict())
    paper_form = create_model("gmmformer", **SIZES, ffn_ratio=4)
    with pytest.raises(CheckpointError, match="the release has no"):
        import_released(paper_form, paper_form.released_names(), released)
