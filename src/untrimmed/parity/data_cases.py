"""Compute golden cases without a network: preprocessing, batches, feature files, metrics, windows, matching loss."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from untrimmed.data.annotations import Annotation
from untrimmed.data.bigfile import BigFile, read_video2frames
from untrimmed.data.dataset import RetrievalDataset, dataset_of_arrays, load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.packed import PackSettings, TeacherRule
from untrimmed.data.resampling import at_most, normalise, segment_bounds, segment_means
from untrimmed.errors import FeatureError
from untrimmed.evaluation.recall import Ties, ranks, recall, retrieval_metrics
from untrimmed.losses.matching import matched_pairs, optimal_matching
from untrimmed.nn.window import constraint_windows
from untrimmed.parity.case import Arrays, Case
from untrimmed.running.batches import in_batches, query_batch, query_batches, training_batch, video_batch


def preprocessing(case: Case) -> Arrays:
    """Return clips and frames resampled from raw sequences, and vectors scaled to unit length.

    If the case lists several clip counts or frame limits, the name of an array ends with its count or limit.
    """
    case.require(("seq_lengths", "seq_frames", "l2_input"))
    lengths = case.batch["seq_lengths"]
    rows = case.batch["seq_frames"].astype(np.float64)
    sequences = np.split(rows, np.cumsum(lengths)[:-1])
    arrays: Arrays = {
        "l2_output": normalise(case.batch["l2_input"]),
        "l2_output_from_float64": normalise(case.batch["l2_input"].astype(np.float64)).astype(np.float32),
    }
    clip_counts = case.setting("map_size")
    frame_limits = case.setting("max_ctx_l")
    for count in np.atleast_1d(clip_counts).tolist():
        suffix = f"_{count}" if isinstance(clip_counts, list) else ""
        arrays[f"clip_bounds{suffix}"] = np.stack([segment_bounds(len(s), count, np.float32) for s in sequences])
        arrays[f"clip_average{suffix}"] = np.stack([segment_means(s, count, np.float32) for s in sequences])
    for limit in np.atleast_1d(frame_limits).tolist():
        suffix = f"_{limit}" if isinstance(frame_limits, list) else ""
        sampled = [at_most(sequence, limit) for sequence in sequences]
        arrays[f"sampled_lengths{suffix}"] = np.array([len(s) for s in sampled])
        arrays[f"sampled_frames{suffix}"] = np.concatenate(sampled)
    return arrays


def store_root(case: Case) -> Path:
    """Return the folder of the toy data set that a case stores as files.

    Raises: FeatureError if the folder does not exist.
    """
    root = case.folder / case.setting("store")
    if not (root / case.setting("collection")).is_dir():
        raise FeatureError(f"{root}: no such folder; the data set of the case must be there")
    return root


def toy_dataset(case: Case, split: str, teacher: TeacherRule | None = None) -> RetrievalDataset:
    """Return a split of the toy data set of a case.

    A case that stores arrays instead of files has only one split, and `split` is ignored.
    """
    sizes = {
        "num_clips": case.config.get("map_size", 32),
        "max_frames": case.setting("max_ctx_l"),
        "max_words": case.setting("max_desc_l"),
    }
    if "store" in case.config:
        name = case.setting("collection")
        features = case.setting("visual_feature")
        # the packed files are mapped, so they stay readable after the folder is deleted
        with tempfile.TemporaryDirectory() as cache:
            return load_dataset(
                name, store_root(case), split, cache_dir=cache, video_features=features, teacher=teacher, **sizes
            )
    case.require(("video_ids", "frame_counts", "frames", "caption_ids", "word_counts", "words"))
    frames, words = (_by_id(case.batch, *names) for names in (("video", "frame"), ("caption", "word")))
    annotations = [Annotation(caption_id.partition("#")[0], caption_id, "?") for caption_id in words]
    return dataset_of_arrays(frames, words, annotations, PackSettings(**sizes))


def _by_id(arrays: Arrays, item: str, row: str) -> Arrays:
    """Return {id: array of its rows}."""
    parts = np.split(arrays[f"{row}s"], np.cumsum(arrays[f"{row}_counts"])[:-1])
    return dict(zip(map(str, arrays[f"{item}_ids"]), parts, strict=True))


def collate(case: Case) -> Arrays:
    """Return one training batch and all evaluation batches of the case's toy data set."""
    arrays = training_arrays(case)
    dataset = toy_dataset(case, case.config.get("eval_split", "val"))
    captions = np.array(dataset.caption_ids)
    videos = np.array(dataset.video_ids)
    for i, rows in enumerate(query_batches(dataset, case.setting("eval_query_bsz"), "released")):
        queries = query_batch(dataset, rows)
        arrays[f"text_batch{i}_feat"] = queries.words.numpy()
        arrays[f"text_batch{i}_mask"] = queries.mask.numpy().astype(np.float32)
        arrays[f"text_batch{i}_caption_ids"] = captions[rows]
        arrays[f"text_batch{i}_index"] = rows
    for i, rows in enumerate(in_batches(np.arange(len(videos)), case.setting("eval_context_bsz"))):
        batch = video_batch(dataset, rows)
        arrays[f"video_batch{i}_clips"] = batch.clips.numpy()
        arrays[f"video_batch{i}_frames"] = batch.frames.numpy()
        arrays[f"video_batch{i}_mask"] = batch.frame_mask.numpy().astype(np.float32)
        arrays[f"video_batch{i}_video_ids"] = videos[rows]
    return arrays


def training_arrays(
    case: Case, *, teacher: TeacherRule | None = None, sort_by: Literal["frames", "captions"] = "frames"
) -> Arrays:
    """Return the arrays of the recorded training batch. With `teacher`, they include the teacher's vectors."""
    dataset = toy_dataset(case, case.config.get("train_split", "train"), teacher)
    drawn = case.config["train_item_order"] if "train_item_order" in case.config else case.batch["train_item_order"]
    rows = dataset.training_rows(np.array(drawn), sort_by=sort_by)
    batch = training_batch(dataset, np.array(drawn), sort_by=sort_by)
    taught = {"video_features": batch.videos.teacher, "text_feat": batch.queries.teacher}
    return {
        "dataset_video_order": np.array(dataset.video_ids),
        "train_video_ids": np.array(dataset.video_ids)[rows.videos],
        "train_caption_ids": np.array(dataset.caption_ids)[rows.captions],
        "train_text_labels": batch.video_index.numpy(),
        "train_clip_video_features": batch.videos.clips.numpy(),
        "train_frame_video_features": batch.videos.frames.numpy(),
        "train_videos_mask": batch.videos.frame_mask.numpy().astype(np.float32),
        "train_text_feat": batch.queries.words.numpy(),
        "train_text_mask": batch.queries.mask.numpy().astype(np.float32),
    } | {f"train_teacher_{what}": tensor.numpy() for what, tensor in taught.items() if tensor is not None}


def bigfile(case: Case) -> Arrays:
    """Return the contents of a BigFile folder (a binary format for vectors), read with each method of `BigFile`."""
    layout = Layout.at(store_root(case), case.setting("collection"))
    features = layout.frames(case.setting("visual_feature"))
    store = BigFile(features)
    read_names, read_vectors = store.read(map(str, case.expected["request_names"]))
    index_names, index_vectors = store.read_rows(map(int, case.expected["request_indices"]))
    arrays = {name: case.expected[name] for name in ("request_names", "request_indices", "read_one_name")}
    arrays |= {
        "shape": np.array(store.shape),
        "names": np.array(store.names),
        "all_vectors": np.asarray(store.vectors),
        "read_names": np.array(read_names),
        "read_vectors": read_vectors,
        "read_index_names": np.array(index_names),
        "read_index_vectors": index_vectors,
        "read_one_vector": store.read_one(str(case.expected["read_one_name"])),
    }
    table = read_video2frames(features / "video2frames.txt")
    return arrays | {f"frames.{video}": store.read_sequence(names) for video, names in table.items()}


def metrics(case: Case) -> Arrays:
    """Return ranks and metrics for one correct video per query, for several correct videos, and for three tie rules."""
    case.require(("video_ids", "caption_ids", "scores_plain", "scores_ties", "multi_gt"))
    column = {str(video_id): i for i, video_id in enumerate(case.batch["video_ids"])}
    truth = np.array([column[str(caption_id).partition("#")[0]] for caption_id in case.batch["caption_ids"]])
    plain = case.batch["scores_plain"]
    tied = case.batch["scores_ties"]
    several = case.batch["multi_gt"]
    arrays = {
        "gt_video_index": truth,
        "plain_rank": ranks(plain, truth),
        "plain_metrics": metric_values(case, plain, truth),
        "multi_rank": ranks(plain, several),
        "multi_metrics": metric_values(case, plain, several),
        "multi_gt_metrics": metric_values(case, plain, several),
    }
    rules: dict[Ties, str] = {"index": "index_order", "best": "best_case", "worst": "worst_case"}
    for rule, name in rules.items():
        arrays[f"ties_rank_{name}"] = ranks(tied, truth, ties=rule)
        arrays[f"ties_metrics_{name}"] = metric_values(case, tied, truth, rule)
    return arrays


def metric_values(case: Case, scores: np.ndarray, truth: np.ndarray, ties: Ties = "index") -> np.ndarray:
    """Return the metrics as an array, in the order in which the case lists them."""
    at = case.config.get("recall_at", [1, 5, 10, 100])
    if "metric_order" not in case.config:
        return np.array(list(recall(ranks(scores, truth, ties=ties), at).values()))
    values = retrieval_metrics(scores, truth, at=at, ties=ties)
    return np.array([values[name] for name in case.config["metric_order"]], dtype=np.float32)


def gaussian_window(case: Case) -> Arrays:
    """Return Gaussian attention windows. The name of an array contains the length and width of the window."""
    arrays = {}
    for name in case.expected:
        length, width = name.removeprefix("window_L").split("_w")
        arrays[name] = constraint_windows(int(length), [float(width)])[0].numpy()
    return arrays


def matching(case: Case) -> dict[str, Any]:
    """Return GMMFormer v2's optimal matching loss, the matched pairs (query, clip), and the gradients of the inputs."""
    case.require(("clips", "query_vectors", "text_labels"))
    query = torch.from_numpy(case.batch["query_vectors"]).requires_grad_()
    clips = torch.from_numpy(case.batch["clips"]).requires_grad_()
    index = torch.from_numpy(case.batch["text_labels"])
    loss = optimal_matching(query, clips, index)
    loss.backward()
    pairs = matched_pairs(query, clips, index)
    return {"loss": loss, "pairs": pairs, "grad_query_vectors": query.grad, "grad_clips": clips.grad}


DATA_CASES = {
    "preprocessing": preprocessing,
    "collate": collate,
    "bigfile": bigfile,
    "metrics": metrics,
    "gaussian-window": gaussian_window,
    "optimal-matching": matching,
}
