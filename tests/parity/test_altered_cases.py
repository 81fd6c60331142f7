"""Changed copies of recorded cases. The expected results follow from the recorded ones."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from untrimmed.errors import FeatureError
from untrimmed.parity import data_cases
from untrimmed.parity.registry import run_case
from untrimmed.running.batches import query_batches

CASES = Path(__file__).parent / "cases"
FORWARD = [
    "ms-sl/forward-masked",
    "gmmformer-v2/loss-random-negatives",
    "gmmformer/forward-masked",
    "ral/forward-masked",
    "hlformer/loss",
    "dreamprvr/loss",
    "holmes/loss",
]
SCORES = ("clip_scores", "clip_scores_raw", "frame_scores", "frame_scores_raw", "fused_scores")


def failures(folder):
    results = run_case(folder)
    assert results
    return [str(result) for result in results if not result.passed]


def arrays_of(path):
    with np.load(path) as stored:
        return dict(stored)


def copy_of(name, tmp_path, kind, **settings):
    """Copy a case with another kind and other settings. Return the folder and the settings."""
    folder = tmp_path / Path(name).parent / kind
    shutil.copytree(CASES / name, folder)
    config = json.loads((folder / "config.json").read_text()) | settings | {"case": kind}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, config


@pytest.mark.parametrize("name", FORWARD)
def test_some_videos_and_queries_in_another_order_with_more_padding_and_a_longer_table(name, tmp_path):
    folder, config = copy_of(name, tmp_path, "forward-masked")
    batch, weights, expected = (arrays_of(folder / f"{file}.npz") for file in ("batch", "weights", "expected"))
    videos = np.array([2, 0, 4, 1])  # the longest video stays, because GMMFormer's window depends on it
    labels = batch["text_labels"]
    queries = np.concatenate([np.flatnonzero(labels == video)[::-1] for video in videos])
    for array in ("text_feat", "text_mask"):
        batch[array] = padded(batch[array][queries], 5)
    for array in ("frame_video_features", "videos_mask"):
        longer = 0 if name.startswith("gmmformer/") else min(7, config["max_ctx_l"] - batch["videos_mask"].shape[1])
        batch[array] = padded(batch[array][videos], longer)
    batch["clip_video_features"] = batch["clip_video_features"][videos]
    batch["text_labels"] = np.array([videos.tolist().index(label) for label in labels[queries]])
    table = "query_pos_embed.position_embeddings.weight"
    weights[table] = np.pad(weights[table], ((0, 9), (0, 0)), constant_values=3.0)  # positions that only padding uses
    wanted = {score: expected[score][np.ix_(queries, videos)] for score in SCORES if score in expected}
    np.savez(folder / "weights.npz", **weights)
    np.savez(folder / "batch.npz", **batch)
    np.savez(folder / "expected.npz", query_vectors=expected["query_vectors"][queries], **wanted)
    (folder / "grads.npz").unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"max_desc_l": config["max_desc_l"] + 9}))
    assert failures(folder) == []


def padded(array, rows):
    """An array with this many zeros appended along its second axis."""
    return np.pad(array, [(0, 0), (0, rows)] + [(0, 0)] * (array.ndim - 2))


FACTORS = (0.3, 0.9, 0.02, 0.5, 0.25, 2.0)  # factors of the terms, in the order in which a release lists them
TRIPLETS = {"triplet_clip": 1.0, "triplet_frame": 1.0}
IN_ORDER = {
    "gmmformer/loss": ["nce_clip", "nce_frame", "query_diverse"],
    "hlformer/loss": ["nce_clip", "nce_frame", "query_diverse", "pop"],
    "dreamprvr/loss": ["nce_clip", "nce_frame", "query_diverse", "query_similarity", "video_kl", "register_diffusion"],
    "holmes/loss": ["nce_clip", "nce_frame", "query_diverse", "intra_video", "edl"],
    "ral/loss": ["nce_clip", "nce_frame", "query_diverse", "optimal_matching"],
}
MS_SL = {"nce_clip": 0.7, "triplet_clip": 0.2, "nce_frame": 1.5, "triplet_frame": 3.0}
JSG = {"nce_glance": 0.7, "nce_attention": 0.3, "triplet_attention": 2.0}
RAL = {"proxy_matching": 0.5, "distribution_alignment": 0.125}
DL_DKD = {"nce_weight_inheritance": 0.3, "nce_weight_exploration": 0.6, "kl_weight": 0.1, "kl_decay_factor": 0.5}


def weighed(name):
    """The weight of each recorded term, and the settings of the case that set these weights."""
    if name == "ms-sl/loss":
        return MS_SL, {"loss_weights": MS_SL}
    if name == "jsg/video-loss":
        weights = {"triplet_glance": 1.0, "triplet_gaze": 1.0} | JSG
        return weights, {f"{term}_weight": weight for term, weight in JSG.items()}
    if name == "dl-dkd/pp-loss-soft":
        weights = {"nce_inheritance": 0.3, "nce_exploration": 0.6, "kl": 0.05}
        return weights | {"triplet_inheritance": 1.0, "triplet_exploration": 1.0}, DL_DKD
    factors = dict(zip(IN_ORDER[name], FACTORS, strict=False))
    settings = {"loss_factor": list(factors.values())}
    if name == "holmes/loss":
        factors |= dict.fromkeys(("edl_frame", "edl_clip", "edl_combined"), factors.pop("edl"))
    if name == "ral/loss":
        factors |= RAL
        settings |= {f"{term}_weight": weight for term, weight in RAL.items()}
    return factors | TRIPLETS, settings


@pytest.mark.parametrize("name", ["ms-sl/loss", *IN_ORDER, "jsg/video-loss", "dl-dkd/pp-loss-soft"])
def test_the_total_follows_the_loss_weights_of_the_case(name, tmp_path):
    terms, settings = weighed(name)
    folder, _ = copy_of(name, tmp_path, Path(name).name, **settings)
    expected = arrays_of(folder / "expected.npz")
    expected["total"] = sum(weight * expected[term].astype(np.float64) for term, weight in terms.items())
    np.savez(folder / "expected.npz", **expected)
    (folder / "grads.npz").unlink()
    assert failures(folder) == []


@pytest.mark.parametrize("name", ["gmmformer/eval-pipeline", "gmmformer-v2/eval-pipeline"])
@pytest.mark.parametrize("array", ["frames", "words"])
def test_one_altered_number_of_a_data_set_is_noticed_in_the_scores(name, array, tmp_path):
    folder, _ = copy_of(name, tmp_path, "eval-pipeline")
    assert failures(folder) == []
    batch = arrays_of(folder / "batch.npz")
    batch[array][0, 0] += 0.5
    np.savez(folder / "batch.npz", **batch)
    assert any("fused_scores" in failure for failure in failures(folder))


def test_videos_validated_in_other_batches_are_noticed(tmp_path):
    """The window of GMMFormer's second branch depends on the longest video of a batch."""
    folder, _ = copy_of("gmmformer/eval-pipeline", tmp_path, "eval-pipeline", eval_context_bsz=10)
    assert any("video_vectors" in failure for failure in failures(folder))


def test_captions_taken_in_another_order_than_released_are_noticed(tmp_path, monkeypatch):
    folder, _ = copy_of("gmmformer/collate", tmp_path, "collate")
    assert failures(folder) == []
    monkeypatch.setattr(data_cases, "query_batches", lambda dataset, size, order: query_batches(dataset, size))
    assert any("text_batch0_caption_ids" in failure for failure in failures(folder))


@pytest.mark.parametrize(
    ("name", "constant"), [("jsg/video-loss", {"sigma": 7.0}), ("dl-dkd/schedules", {"sigmoid_k": 300.0})]
)
def test_another_constant_of_the_release_is_refused_by_name(name, constant, tmp_path):
    folder, _ = copy_of(name, tmp_path, Path(name).name, **constant)
    with pytest.raises(FeatureError, match=next(iter(constant))):
        run_case(folder)
