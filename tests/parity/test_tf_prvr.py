"""TF-PRVR compared with a direct implementation, at sizes and with settings that no case recorded."""

import math
from itertools import pairwise

import numpy as np
import pytest
import pywt
from scipy.signal import find_peaks

from untrimmed.moments.tf_prvr import TFPRVRSettings, moment_scores, video_moments


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def plain_levels(frames, wavelet):
    """The edges of each level's segments, the finest first."""
    steps = [frames[t + 1] - frames[t] for t in range(len(frames) - 1)]
    speeds = [np.linalg.norm(step) for step in steps]
    ways = [step / (speed + 1e-8) for step, speed in zip(steps, speeds, strict=True)]
    signal = []
    for t in range(len(frames) - 2):
        still = speeds[t] <= 1e-8 and speeds[t + 1] <= 1e-8
        signal.append(0.0 if still else 1 - min(1.0, max(-1.0, float(ways[t] @ ways[t + 1]))))
    signal = np.array(signal)
    depth = max(0, math.floor(math.log2(len(signal) / (pywt.Wavelet(wavelet).dec_len - 1))))
    levels = []
    for level in range(1, depth + 1):
        kept = pywt.wavedec(signal, wavelet, mode="symmetric", level=depth)
        kept = [own * (place == depth + 1 - level) for place, own in enumerate(kept)]
        response = np.abs(pywt.waverec(kept, wavelet, mode="symmetric")[: len(signal)])
        least = max(response.mean() + response.std(), 64 * np.finfo(float).eps * max(1, np.abs(signal).max()))
        peaks = [peak for peak in find_peaks(response)[0] if response[peak] > least]
        levels.append(sorted({0, len(frames), *(int(peak) + 2 for peak in peaks)}))
    return levels or [[0, len(frames)]]


def plain_moments(frames, wavelet, beta):
    """Spans of moments and their vectors."""
    frames = unit(frames.astype(np.float64))
    levels = plain_levels(frames, wavelet)
    nodes = [(level, *span) for level, edges in enumerate(levels) for span in pairwise(edges)]
    vectors = np.array([unit(frames[first:stop].mean(axis=0)) for _, first, stop in nodes])
    graph = np.zeros((len(nodes), len(nodes)))
    for i, (level, first, stop) in enumerate(nodes):
        for j, (other_level, other_first, other_stop) in enumerate(nodes):
            alike = max(0.0, float(vectors[i] @ vectors[j]))
            if level == other_level:
                mean_length = len(frames) / sum(node[0] == level for node in nodes)
                apart = abs((first + stop) / 2 - (other_first + other_stop) / 2)
                graph[i, j] = alike + math.exp(-apart / mean_length)
            elif abs(level - other_level) == 1:
                shared = max(0, min(stop, other_stop) - max(first, other_first))
                graph[i, j] = shared / (stop - first + other_stop - other_first - shared) * alike
        graph[i, i] = 1.0
    degree = graph.sum(axis=1)
    graph /= np.sqrt(np.outer(degree, degree))
    propagated = (1 - beta) * np.linalg.inv(np.eye(len(nodes)) - beta * graph) @ vectors
    edges = sorted({edge for level in levels for edge in level})
    spans = list(pairwise(edges))
    holding = [[i for i, (_, a, b) in enumerate(nodes) if a <= first and stop <= b] for first, stop in spans]
    return spans, np.array([propagated[rows].mean(axis=0) for rows in holding])


@pytest.mark.parametrize(
    ("num_frames", "dim", "wavelet", "beta", "lean"),
    [
        (137, 7, "db4", 0.7, 0.0),
        (230, 5, "haar", 0.3, 0.0),
        (64, 9, "db2", 0.9, 2.0),
        (41, 3, "sym5", 0.0, 1.0),
        (3, 4, "db4", 0.7, 0.0),
    ],
)
def test_moments_and_scores_are_those_of_the_page_written_down(num_frames, dim, wavelet, beta, lean):
    rng = np.random.default_rng(num_frames)
    shots = np.repeat(rng.standard_normal((num_frames, dim)), rng.integers(1, 15, num_frames), axis=0)[:num_frames]
    frames = (shots + lean + 0.1 * rng.standard_normal(shots.shape)).astype(np.float32)
    frames[: num_frames // 4] = frames[0]  # a still picture
    spans, vectors = plain_moments(frames, wavelet, beta)
    made = video_moments(frames, TFPRVRSettings(wavelet=wavelet, beta=beta))
    assert [tuple(span) for span in made.spans.tolist()] == spans
    np.testing.assert_allclose(made.vectors, vectors, atol=1e-10)
    queries = rng.standard_normal((4, dim))
    np.testing.assert_allclose(moment_scores(queries, made.vectors), unit(queries) @ vectors.T, atol=1e-10)
    assert num_frames == 3 or len(spans) > 2
