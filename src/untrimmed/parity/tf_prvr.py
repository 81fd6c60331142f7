"""Compare TF-PRVR with its golden cases. The method has no weights."""

import numpy as np

from untrimmed.moments.propagation import normalised_graph
from untrimmed.moments.tf_prvr import TFPRVRSettings, moment_scores, video_moments
from untrimmed.moments.wavelet_segments import wavelet_segments
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.registry import MethodParity, parity_of


@parity_of("tf-prvr")
class TFPRVRParity(MethodParity):
    """The golden cases of TF-PRVR: all intermediate results for one video and several queries."""

    def produce(self, case: Case) -> Arrays:
        """Return segments, the graph of similar segments, the propagation kernel of the graph, moments, and scores."""
        case.require(("frames", "queries"))
        frames = case.batch["frames"]
        settings = TFPRVRSettings(wavelet=case.setting("wavelet"), beta=case.setting("beta"))
        levels = wavelet_segments(frames, settings.wavelet)
        graph = normalised_graph(levels)
        moments = video_moments(frames, settings)
        scores = moment_scores(case.batch["queries"], moments.vectors)
        arrays = {
            "level_offsets": np.cumsum([0, *(len(level.vectors) for level in levels)]),
            "segment_spans": np.concatenate([level.spans for level in levels]),
            "segment_features": np.concatenate([level.vectors for level in levels]),
            "graph": graph,
            "kernel": (1 - settings.beta) * np.linalg.inv(np.eye(len(graph)) - settings.beta * graph),
            "moments": moments.vectors,
            "moment_spans": moments.spans,
            "video_score": scores.max(axis=1),
            "best_moment": scores.argmax(axis=1),
        }
        return {f"expected/{name}": values for name, values in arrays.items()}

    def rules(self, case: Case) -> Rules:
        """Return the tolerance from the golden data's README. All results are float64."""
        return ((r"expected/", Tolerance(1e-6)),)
