"""A method's score in double precision does not depend on other videos or on threads that score meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
import torch

from untrimmed.batches import EncodedQueries
from untrimmed.models.registry import create_model
from untrimmed.models.two_branches import TwoBranchVideos
from untrimmed.search.cache.blocks import Selection
from untrimmed.search.corpora.encoded_block import EncodedBlock
from untrimmed.search.corpora.exact_scores import exact_scores

CLIPS, FRAMES, WIDTH = 5, 9, 16


def block(number, seed):
    rng = np.random.default_rng(seed)
    clips, frames = (
        torch.from_numpy(rng.standard_normal((number, rows, WIDTH)).astype(np.float16)) for rows in (CLIPS, FRAMES)
    )
    mask = torch.arange(FRAMES) < torch.from_numpy(rng.integers(1, FRAMES + 1, number))[:, None]
    return EncodedBlock.of(
        ids=[f"{seed}-{row}" for row in range(number)],
        durations_s=np.ones(number),
        videos=TwoBranchVideos(clips=clips, frames=frames, frame_mask=mask),
        lengths=np.tile([CLIPS, FRAMES, FRAMES], (number, 1)),
    )


@pytest.mark.check
def test_threads_that_score_at_once_do_not_share_buffers():
    model = create_model("gmmformer_v2", query_dim=4, video_dim=4, dim=WIDTH, num_heads=2, max_frames=FRAMES).double()
    blocks, rng = [block(700, seed=0), block(40, seed=1)], np.random.default_rng(2)
    selections = [
        Selection.of([(b, np.sort(rng.choice(len(b.ids), size, replace=False))) for b in blocks]) for size in (1, 7, 40)
    ]
    queries = [EncodedQueries(sentence=torch.from_numpy(row[None])) for row in rng.standard_normal((3, WIDTH))]
    requests = [*product(queries, selections)] * 20
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda item: exact_scores(model, *item), requests)
    for (query, selection), answer in zip(requests, answers, strict=True):
        with torch.inference_mode():
            videos = [b.padded(np.array([row])).to("cpu", torch.float64) for b, rows in selection for row in rows]
            expected = [model.score(query, video).fused.item() for video in videos]
        np.testing.assert_allclose(answer, expected, rtol=1e-6)
