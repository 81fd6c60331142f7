"""How well `--not` excludes a known unwanted scene: is it gone from the first five hits?

    python benchmarks/exclusions.py FOLDER [--encoder builtin]

FOLDER is that of benchmarks/reels.py. Each sentence is searched for in reels made of the clips' vectors. An unwanted
scene is a scene of another clip among the first five hits, with the sentence of that clip that fits its time best; at
most two for each sentence. In the rows for videos, it is in another reel than the clip of the sentence. Cases count
only if a search for the unwanted sentence alone finds its clip first, because an encoder that does not recognise a
scene cannot exclude it. `gone` is the share of cases in which no hit of the first five shows a second or more of the
unwanted scene, in the rows for videos the share in which its reel is not among them. `kept` is the share in which the
clip of the sentence is among them. Settings were chosen on unwanted clips at even positions by name.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from reels import in_other_orders, joined, read_plans

import untrimmed
from untrimmed import Query
from untrimmed.search.query.hits import Hit
from untrimmed.search.store.table import VideoIndex

FIRST = 5
UNWANTED_EACH = 2
CLIPS_OF_A_PAIR = 2


@dataclass(frozen=True)
class Scene:
    """A clip, or the span of one of its sentences, in a reel."""

    reel: str
    start_s: float
    end_s: float
    clip: str
    text: str = ""

    def shared_s(self, hit: Hit) -> float:
        """The time of the hit's moment that is in this scene."""
        if hit.video.name != self.reel:
            return 0.0
        return max(0.0, min(self.end_s, hit.end_s) - max(self.start_s, hit.start_s))


@dataclass(frozen=True)
class Case:
    """A sentence about a clip, and a scene that its hits must not show."""

    text: str
    wanted: Scene
    unwanted: Scene


class Reels:
    """A library of reels that are made of the vectors of single clips."""

    def __init__(self, folder: Path, clips: untrimmed.Library, reels: Sequence[Sequence[dict[str, Any]]]) -> None:
        self.clips: list[Scene] = []
        self.scenes: list[Scene] = []
        self.library = untrimmed.open(folder)
        self.library.merge([clips.folder])
        with VideoIndex(folder) as index:
            ids = [record.video_id for record in index.scan()]
            stored = {Path(video.record.path).name: video for video in index.read(ids)}
            for number, reel in enumerate(reels):
                name = f"reel_{number:02d}.mp4"
                video, queries = joined(list(reel), stored, name)
                index.put(video)
                ends = np.cumsum([stored[clip["file"]].features.duration_s for clip in reel])
                owners = [clip["file"] for clip in reel for _ in clip["queries"]]
                for clip, start_s, end_s in zip(reel, [0.0, *ends], ends, strict=False):
                    self.clips.append(Scene(name, float(start_s), float(end_s), clip["file"]))
                for query, owner in zip(queries, owners, strict=True):
                    span = query.moments[0]
                    self.scenes.append(Scene(name, span.start_s, span.end_s, owner, query.text))
            index.remove(ids)

    def find(self, text: str, **options: Any) -> list[Hit]:
        """The first five moments."""
        query = Query(text, group_by=options.pop("group_by", "moment"), **options)
        return self.library.search(query, limit=FIRST, moments=FIRST)

    def clip_of(self, hit: Hit) -> Scene:
        """The clip that most of a hit shows."""
        return max(self.clips, key=lambda clip: clip.shared_s(hit))

    def cases(self) -> list[Case]:
        """The cases whose unwanted scene is recognised."""
        cases = []
        for scene in self.scenes:
            wanted = next(clip for clip in self.clips if clip.clip == scene.clip)
            seen = {scene.clip}
            for hit in self.find(scene.text):
                other = self.clip_of(hit).clip
                if other not in seen and len(seen) <= UNWANTED_EACH:
                    seen.add(other)
                    own = [candidate for candidate in self.scenes if candidate.clip == other]
                    unwanted = max(own, key=lambda candidate: candidate.shared_s(hit))
                    if self.clip_of(self.find(unwanted.text)[0]).clip == other:
                        cases.append(Case(scene.text, wanted, unwanted))
        return cases


def shares(reels: Reels, cases: Sequence[Case], **options: Any) -> tuple[float, float]:
    """The percentages of cases whose unwanted scene is gone, and whose wanted clip is kept."""
    gone = []
    kept = []
    for case in cases:
        hits = reels.find(case.text, without=(case.unwanted.text,) if "without_in" in options else (), **options)
        if options.get("group_by") == "video":
            gone.append(case.unwanted.reel not in [hit.video.name for hit in hits])
        else:
            gone.append(all(case.unwanted.shared_s(hit) < 1 for hit in hits))
        kept.append(any(case.wanted.shared_s(hit) >= 1 for hit in hits))
    return 100 * float(np.mean(gone)), 100 * float(np.mean(kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="builtin")
    options = parser.parse_args()

    clips, planned = read_plans(options.folder)
    mixed = [clip for reel in in_other_orders(clips) for clip in reel]
    pairs = [mixed[start : start + CLIPS_OF_A_PAIR] for start in range(0, len(mixed), CLIPS_OF_A_PAIR)]
    chosen = {clip["file"] for clip in clips[::2]}
    print("| hits | unwanted clips of | cases | gone | kept |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        library = untrimmed.open(Path(place) / "clips")
        library.index([options.folder / clip["file"] for clip in clips], encoder=options.encoder)
        shots = Reels(Path(place) / "planned", library, planned)
        videos = Reels(Path(place) / "pairs", library, pairs)
        rows: list[tuple[str, Reels, dict[str, Any]]] = [
            ("moments of 6 reels, without `not`", shots, {}),
            ("moments of 6 reels, with `not`", shots, {"without_in": "shot"}),
            ("videos of 2 clips, without `not`", videos, {"group_by": "video"}),
            ("videos of 2 clips, with `not`", videos, {"without_in": "shot", "group_by": "video"}),
            ("videos of 2 clips, nowhere in the video", videos, {"without_in": "video", "group_by": "video"}),
        ]
        for name, reels, parts in rows:
            cases = reels.cases()
            for is_chosen, half in ((True, "the half used for choosing"), (False, "the other half")):
                part = [case for case in cases if (case.unwanted.clip in chosen) == is_chosen]
                if parts.get("group_by") == "video":
                    part = [case for case in part if case.wanted.reel != case.unwanted.reel]
                gone, kept = shares(reels, part, **parts)
                print(f"| {name} | {half} | {len(part)} | {gone:.0f} | {kept:.0f} |", flush=True)


if __name__ == "__main__":
    main()
