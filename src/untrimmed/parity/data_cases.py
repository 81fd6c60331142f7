"""Cases without a network: preprocessing, batches, files, metrics, windows, the matching loss."""

import numpy as np
import torch

from untrimmed.data.bigfile import BigFile, read_video2frames
from untrimmed.data.collate import collate_queries, collate_training, collate_videos
from untrimmed.data.resampling import at_most, normalise, segment_bounds, segment_means
from untrimmed.evaluation.recall import ranks, recall, retrieval_metrics
from untrimmed.losses.matching import matched_pairs, optimal_matching
from untrimmed.nn.window import constraint_windows
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.corpus import in_batches, read_corpus, store_folders, video_of


def preprocessing(case: Case) -> Arrays:
    """Segment bounds and means, frames cut to the maximum, unit length; with size suffixes when there are several."""
    case.require(("seq_lengths", "seq_frames", "l2_input"))
    lengths, rows = case.batch["seq_lengths"], case.batch["seq_frames"].astype(np.float64)
    sequences = np.split(rows, np.cumsum(lengths)[:-1])
    made: Arrays = {
        "l2_output": normalise(case.batch["l2_input"]),
        "l2_output_from_float64": normalise(case.batch["l2_input"].astype(np.float64)).astype(np.float32),
    }
    clip_counts, frame_limits = case.setting("map_size"), case.setting("max_ctx_l")
    for count in np.atleast_1d(clip_counts).tolist():
        suffix = f"_{count}" if isinstance(clip_counts, list) else ""
        made[f"clip_bounds{suffix}"] = np.stack([segment_bounds(len(s), count, np.float32) for s in sequences])
        made[f"clip_average{suffix}"] = np.stack([segment_means(s, count, np.float32) for s in sequences])
    for limit in np.atleast_1d(frame_limits).tolist():
        suffix = f"_{limit}" if isinstance(frame_limits, list) else ""
        sampled = [at_most(sequence, limit) for sequence in sequences]
        made[f"sampled_lengths{suffix}"] = np.array([len(s) for s in sampled])
        made[f"sampled_frames{suffix}"] = np.concatenate(sampled)
    return made


def collate(case: Case) -> Arrays:
    """One training batch and all evaluation batches of a toy corpus."""
    train = read_corpus(case, str(case.config.get("train_split", "")))
    made = _training_batch(case)
    made["dataset_video_order"] = np.array(train.video_ids)
    corpus = read_corpus(case, str(case.config.get("eval_split", "")))
    position = {caption_id: i for i, caption_id in enumerate(corpus.caption_ids)}
    for i, ids in enumerate(in_batches(corpus.caption_ids, case.setting("eval_query_bsz"))):
        queries = collate_queries([corpus.caption_item(case, caption_id) for caption_id in ids])
        made[f"text_batch{i}_feat"] = queries.batch.words.numpy()
        made[f"text_batch{i}_mask"] = queries.batch.mask.numpy().astype(np.float32)
        made[f"text_batch{i}_caption_ids"] = np.array(queries.caption_ids)
        made[f"text_batch{i}_index"] = np.array([position[caption_id] for caption_id in queries.caption_ids])
    for i, ids in enumerate(in_batches(corpus.video_ids, case.setting("eval_context_bsz"))):
        videos = collate_videos([corpus.video_item(case, video_id) for video_id in ids])
        made[f"video_batch{i}_clips"] = videos.batch.clips.numpy()
        made[f"video_batch{i}_frames"] = videos.batch.frames.numpy()
        made[f"video_batch{i}_mask"] = videos.batch.frame_mask.numpy().astype(np.float32)
        made[f"video_batch{i}_video_ids"] = np.array(videos.video_ids)
    return made


def _training_batch(case: Case) -> Arrays:
    corpus = read_corpus(case, str(case.config.get("train_split", "")))
    order = case.batch["train_item_order"] if "train_item_order" not in case.config else case.config["train_item_order"]
    drawn = [corpus.video_ids[item] for item in order]
    items = [
        (
            corpus.video_item(case, video_id),
            [corpus.caption_item(case, c) for c in corpus.caption_ids if video_of(c) == video_id],
        )
        for video_id in drawn
    ]
    made = collate_training(items)
    queries, videos = made.batch.queries, made.batch.videos
    return {
        "train_video_ids": np.array(made.video_ids),
        "train_caption_ids": np.array(made.caption_ids),
        "train_text_labels": made.batch.video_index.numpy(),
        "train_clip_video_features": videos.clips.numpy(),
        "train_frame_video_features": videos.frames.numpy(),
        "train_videos_mask": videos.frame_mask.numpy().astype(np.float32),
        "train_text_feat": queries.words.numpy(),
        "train_text_mask": queries.mask.numpy().astype(np.float32),
    }


def bigfile(case: Case) -> Arrays:
    """Every way to read frame features from files."""
    features, _ = store_folders(case)
    store = BigFile(features)
    read_names, read_vectors = store.read(map(str, case.expected["request_names"]))
    index_names, index_vectors = store.read_rows(map(int, case.expected["request_indices"]))
    made = {name: case.expected[name] for name in ("request_names", "request_indices", "read_one_name")}
    made |= {
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
    return made | {f"frames.{video}": store.read_sequence(names) for video, names in table.items()}


def metrics(case: Case) -> Arrays:
    """Ranks and metrics with one or several right videos, and under three rules for ties."""
    case.require(("video_ids", "caption_ids", "scores_plain", "scores_ties", "multi_gt"))
    column = {str(video_id): i for i, video_id in enumerate(case.batch["video_ids"])}
    truth = np.array([column[video_of(str(caption_id))] for caption_id in case.batch["caption_ids"]])
    plain, tied, several = case.batch["scores_plain"], case.batch["scores_ties"], case.batch["multi_gt"]
    made = {
        "gt_video_index": truth,
        "plain_rank": ranks(plain, truth),
        "plain_metrics": metric_values(case, plain, truth),
        "multi_rank": ranks(plain, several),
        "multi_metrics": metric_values(case, plain, several),
        "multi_gt_metrics": metric_values(case, plain, several),
    }
    for rule, name in (("index", "index_order"), ("best", "best_case"), ("worst", "worst_case")):
        made[f"ties_rank_{name}"] = ranks(tied, truth, ties=rule)  # type: ignore[arg-type]
        made[f"ties_metrics_{name}"] = metric_values(case, tied, truth, rule)
    return made


def metric_values(case: Case, scores: np.ndarray, truth: np.ndarray, ties: str = "index") -> np.ndarray:
    """The metrics in the order in which the case lists them."""
    at = case.config.get("recall_at", [1, 5, 10, 100])
    if "metric_order" not in case.config:
        return np.array(list(recall(ranks(scores, truth, ties=ties), at).values()))  # type: ignore[arg-type]
    values = retrieval_metrics(scores, truth, at=at, ties=ties)  # type: ignore[arg-type]
    return np.array([values[name] for name in case.config["metric_order"]], dtype=np.float32)


def gaussian_window(case: Case) -> Arrays:
    """Windows by length and width, both read from the array names."""
    made = {}
    for name in case.expected:
        length, width = name.removeprefix("window_L").split("_w")
        made[name] = constraint_windows(int(length), [float(width)])[0].numpy()
    return made


def matching(case: Case) -> Arrays:
    """The optimal matching loss alone, with its gradients."""
    case.require(("clips", "query_vectors", "text_labels"))
    query = torch.from_numpy(case.batch["query_vectors"]).requires_grad_()
    clips = torch.from_numpy(case.batch["clips"]).requires_grad_()
    index = torch.from_numpy(case.batch["text_labels"])
    loss = optimal_matching(query, clips, index)
    loss.backward()
    assert query.grad is not None
    assert clips.grad is not None
    return {
        "loss": loss.detach().numpy(),
        "pairs": matched_pairs(query, clips, index).numpy(),
        "grad_query_vectors": query.grad.numpy(),
        "grad_clips": clips.grad.numpy(),
    }


DATA_CASES = {
    "preprocessing": preprocessing,
    "collate": collate,
    "bigfile": bigfile,
    "metrics": metrics,
    "gaussian-window": gaussian_window,
    "optimal-matching": matching,
}
