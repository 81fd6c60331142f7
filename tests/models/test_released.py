import json
from pathlib import Path

import pytest
import torch

from tests.refusals import refused
from tests.retrieval_world import SIZES
from untrimmed.errors import CheckpointError
from untrimmed.models.registry import create_model, list_models
from untrimmed.models.released import UNUSED, export_released, import_released
from untrimmed.training.optim import parameter_groups

CASES = Path(__file__).parents[1] / "parity" / "cases"
RECORDED = [  # records of the released programs' parameters: file, data set, our model and its settings
    ("ms-sl/released-parameters.json", "tvr", "ms_sl", {}),
    ("gmmformer/released-parameters.json", "tvr", "gmmformer", {}),
    ("gmmformer-v2/released-parameters.json", "tvr", "gmmformer_v2", {}),
    ("hlformer/released-parameters.json", "tvr", "hlformer", {}),
    ("dreamprvr/released-parameters.json", "tvr", "dreamprvr", {}),
    ("holmes/released-parameters.json", "tvr", "holmes", {}),
    ("holmes/dual-released-parameters.json", "tvr", "holmes+ral", {"ral": {"msra": False}}),
    ("ral/released-parameters.json", "tvr", "gmmformer_v2+ral", {}),
    ("dl-dkd/released-parameters.json", "tvr", "dl_dkd", {}),
    ("dl-dkd/released-parameters.json", "activitynet", "dl_dkd", {}),
    ("dl-dkd/pp-released-parameters.json", "tvr", "dl_dkd", {"version": "later"}),
    ("dl-dkd/pp-released-parameters.json", "activitynet", "dl_dkd", {"version": "later"}),
]
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


@pytest.mark.parametrize(("file", "dataset", "name", "settings"), RECORDED)
def test_sizes_initial_values_and_decay_are_the_released_ones(file, dataset, name, settings):
    recorded = json.loads((CASES / file).read_text())
    entry = recorded["datasets"][dataset] if "datasets" in recorded else recorded
    dims, parameters = entry["dims"], entry["parameters"]
    torch.manual_seed(0)
    model = create_model(name, query_dim=dims["text_dim"], video_dim=dims["visual_dim"], **settings)
    ours, names, trained = model.state_dict(), model.released_names(), dict(model.named_parameters())
    decay_of = {id(p): group["weight_decay"] for group in parameter_groups(model) for p in group["params"]}
    assert len(decay_of) == len(trained)
    assert names.keys() == parameters.keys() | set(recorded.get("state_dict_aliases_of_manifold_k", []))
    for released, tensor in parameters.items():
        slot = names[released]
        if slot is UNUSED:
            continue
        values = slot.export(ours)
        assert list(values.shape) == tensor["shape"], released
        if "frozen" in tensor:
            assert slot.parameter not in trained, released
        else:
            assert decay_of[id(trained[slot.parameter])] == tensor["weight_decay"], released
        require_drawn(values, tensor["init"], released)


def require_drawn(values, init, name):
    """Check that values are distributed as the record describes in words."""
    if init.startswith("constant"):
        constant = float(init.removeprefix("constant ").partition(" (")[0])
        assert values.flatten().tolist() == pytest.approx([constant] * values.numel(), rel=1e-6), name
    elif init.startswith("orthogonal"):
        assert torch.allclose(values.T @ values, torch.eye(values.shape[1]), atol=1e-5), name
    elif init.startswith("xavier_uniform"):
        bound = (6 / sum(values.shape)) ** 0.5
        assert bound * 0.99 < values.abs().max() <= bound, name
    else:
        std = float(init.removeprefix("normal(0, ").rstrip(")"))
        assert values.std().item() == pytest.approx(std, rel=4 / (2 * values.numel()) ** 0.5), name


def ending(names, end):
    """The first name with that end. DL-DKD's names begin with the branch."""
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


def take_away(released):
    name = ending(released, "modular_vector_mapping.weight")
    del released[name]
    return name


def add(released):
    released["novelty"] = torch.zeros(1)
    return "novelty"


def reshape(released):
    released[ending(released, "pos_embed.LayerNorm.weight")] = torch.zeros(9)
    return "(9,)"


@pytest.mark.parametrize("change", [take_away, add, reshape])
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(model, change):
    released = {n: t + 1 for n, t in export_released(model.released_names(), model.state_dict()).items()}
    named = change(released)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with refused(CheckpointError, named):
        import_released(model, model.released_names(), released)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("method", sorted(set(list_models()) - set(METHODS)))
def test_a_method_without_a_release_has_nothing_to_import(method):
    with refused(CheckpointError, method):
        create_model(method, **SIZES).released_names()


def test_options_that_the_release_lacks_cannot_be_filled():
    released_form = create_model("gmmformer", **SIZES)
    released = export_released(released_form.released_names(), released_form.state_dict())
    paper_form = create_model("gmmformer", **SIZES, ffn_ratio=4)
    with pytest.raises(CheckpointError):
        import_released(paper_form, paper_form.released_names(), released)
