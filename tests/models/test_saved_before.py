"""What earlier versions wrote is read: a model with attachments, encodings in a library.

`saved_before/` was written when attachments were classes made at run time: weights under `extensions.`, the shares of
prototypes under the field alone. `expected.json` holds what that program computed with it.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.restored import restored
from tests.retrieval_world import make_batch
from untrimmed.errors import CheckpointError
from untrimmed.models.storage import load_model, save_model
from untrimmed.search.corpora.trained import TrainedModel

FOLDER = Path(__file__).parent / "saved_before"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def test_a_saved_model_scores_as_it_did():
    model, batch = load_model(FOLDER), make_batch()
    assert model.name == "gmmformer_v2+ral+prototypes"
    assert (model.config.parts["ral"].num_proxies, model.config.parts["prototypes"].num_prototypes) == (2, 3)
    assert model.config.losses["optimal_matching"] is None
    assert model.config.absent_terms == {"optimal_matching"}
    with torch.no_grad():
        fused = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused
    assert torch.allclose(fused, torch.tensor(EXPECTED["scores"]), atol=1e-6)


def test_settings_are_written_as_they_were_but_spelled_out(tmp_path):
    save_model(load_model(FOLDER), tmp_path)
    now, before = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, FOLDER))
    assert len(now.pop("weights_sha256")) == 1  # has come since, too
    model = now["model"]
    for section, later in (  # settings that have come since
        (model["losses"]["query_diversity"], ("reduction",)),
        (model, ("nce",)),
        (model["ral"], ("distribution_form", "confidences")),
    ):
        assert [section.pop(name) for name in later] == ["released"] * len(later)
    assert model["prototypes"].pop("prototype_scale") == 2.0  # of weights that were read, not drawn
    assert model["prototypes"].pop("prototype_norm") == "before"
    assert model.pop("fusion_token") == "learned"
    assert now == before


@torch.inference_mode()
def test_encodings_in_a_library_are_read():
    stored = TrainedModel(FOLDER)
    videos = restored(stored, [(FOLDER / "video.safetensors").read_bytes()])
    scores = stored.model.score(stored.model.encode_queries(make_batch().queries), videos).fused[:, 0]
    assert torch.allclose(scores, torch.tensor(EXPECTED["stored_scores"]), atol=1e-6)
    units, _ = stored.model.timeline(videos)
    assert torch.allclose(units[0], torch.tensor(EXPECTED["timeline"]), atol=1e-6)


def test_a_tensor_that_belongs_nowhere_is_still_refused(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "run")
    tensors = load_file(FOLDER / "model.safetensors") | {"extensions.other.weight": torch.zeros(1)}
    save_file(tensors, tmp_path / "run" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor attachments\.other\.weight"):
        load_model(tmp_path / "run")
