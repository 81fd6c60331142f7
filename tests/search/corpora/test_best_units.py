"""Scores from the best units of videos are bit-equal to scores from all units."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from untrimmed.batches import QueryBatch, VideoBatch
from untrimmed.models.registry import create_model, list_models
from untrimmed.search.cache.blocks import Selection
from untrimmed.search.corpora.encoded_block import EncodedBlock, rows_by_branch, sequence_tensors
from untrimmed.search.corpora.exact_scores import BestUnits, ScoreRequest, exact_scores, exact_scores_of_best_units
from untrimmed.search.pruning.codes import Axes, CodedBlocks, CodedVideos

WIDTH = 12
SIZES = {"query_dim": WIDTH, "video_dim": WIDTH, "dim": 16, "num_heads": 2, "num_clips": 6, "max_frames": 16}
READ_WHOLE = {"ms_sl", "jsg", "clip4clip", "proto"}
OTHERS = [
    ("gmmformer", {"second_branch": "frame"}),
    ("gmmformer", {"clip_weight": 0.0}),
    ("gmmformer_v2", {"frame_weight": 0.0}),
    ("gmmformer_v2", {"clip_weight": -0.5}),
    ("gmmformer_v2", {"padding_scores": "excluded"}),
    ("gmmformer_v2+prototypes", {}),
    ("gmmformer_v2+registers", {}),
    ("dl_dkd", {"exploration_weight": 0.0}),
    ("dl_dkd", {"exploration_weight": -0.1}),
    ("ms_sl+ral", {}),
    ("clip4clip+ral", {}),
    *(("gmmformer_v2+ral", {"ral": {"confidences": confidences}}) for confidences in ("released", "even", "paper")),
]


def encoded(model, num_frames, seed):
    """Yield videos one by one, without padding, in half precision."""
    rng = torch.Generator().manual_seed(seed)
    for length in num_frames:
        middle = torch.randn(1, 1, WIDTH, generator=rng)
        batch = VideoBatch(
            clips=middle + torch.randn(1, model.config.num_clips, WIDTH, generator=rng),
            frames=middle + torch.randn(1, length, WIDTH, generator=rng),
            frame_mask=torch.ones(1, length, dtype=torch.bool),
        )
        yield model.encode_videos(batch).to("cpu", torch.float16)


def block(videos, longest):
    return EncodedBlock.of(
        ids=[str(number) for number in range(len(videos))],
        durations_s=np.ones(len(videos)),
        videos=videos[0].cat(videos),
        lengths=np.array([[tensor.shape[1] for _, tensor in sequence_tensors(video)] for video in videos]),
    ).padded_to(longest)


def coded(model, axes, encoded_block):
    """Return the codes of a block, as a corpus builds them."""
    sketch = rows_by_branch(model.sketch(encoded_block.select(np.arange(len(encoded_block.ids)))))
    finite = {branch: rows[np.isfinite(rows).all(axis=1)] for branch, (rows, _) in sketch.items()}
    return {
        branch: CodedVideos.of(axes.setdefault(branch, Axes.of(finite[branch])), rows, counts)
        for branch, (rows, counts) in sketch.items()
    }


@pytest.mark.check
@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in list_models()), *OTHERS])
@torch.inference_mode()
def test_scores_of_the_best_units_equal_scores_of_all_units(name, settings):
    torch.manual_seed(0)
    model = create_model(name, **SIZES, init_std=0.3, **settings).eval()
    videos = [[*encoded(model, lengths, seed)] for seed, lengths in enumerate(([1, 2, 3, 4] * 5, [16, 5, 9, 1] * 3))]
    for tensor in videos[1][1].tensors().values():
        if tensor.is_floating_point():
            tensor[:, -1] = np.nan
    longest = np.max([[t.shape[1] for _, t in sequence_tensors(video)] for b in videos for video in b], axis=0)
    blocks, axes = [block(b, longest) for b in videos], {}
    codes_of_blocks = [coded(model, axes, b) for b in blocks]
    codes = {branch: CodedBlocks([codes[branch] for codes in codes_of_blocks]) for branch in codes_of_blocks[0]}
    best, in_float64 = BestUnits(model, videos[0][0].to("cpu", torch.float32)), copy.deepcopy(model).double()
    selection = Selection.of([(b, np.arange(len(b.ids))) for b in blocks])
    words = torch.randn(10, 1, 5, WIDTH, generator=torch.Generator().manual_seed(9))
    for query_words in words:
        query = model.encode_queries(QueryBatch(words=query_words, mask=torch.ones(1, 5, dtype=torch.bool)))
        probes = [
            (branch, axes[branch].probe(row))
            for branch, rows in model.probe(query).items()
            for row in rows[0].numpy()
            if row.any()
        ]
        expected = exact_scores(in_float64, query, selection)
        if best.are_enough:
            # The same query three times: for all videos, for some in another order, and for no videos.
            find_units = partial(best.find, codes, probes)
            requested = selection, selection.at(slice(9, 3, -1)), selection.at(slice(0))
            actual = exact_scores_of_best_units(in_float64, [ScoreRequest(query, v, find_units) for v in requested])
            for scores, part in zip(actual, (expected, expected[9:3:-1], expected[:0]), strict=True):
                np.testing.assert_array_equal(scores, part)
    paper = settings.get("ral", {}).get("confidences") == "paper"
    clips_alone = {"clip"} if name == "gmmformer_v2+ral" and paper else None
    assert best.are_enough != (name in READ_WHOLE or settings.get("exploration_weight", 0) < 0)
    assert clips_alone is None or set(model.row_tensors) == clips_alone
