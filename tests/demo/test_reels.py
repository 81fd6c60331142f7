import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from untrimmed.demo.camera import HEIGHT, WIDTH
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.reels import FRAME_RATE, Reel, Shot, plan_reels, render_corpus, render_reel, truth_of
from untrimmed.demo.sources import FILLERS, SUBJECTS
from untrimmed.types import Moment

av = pytest.importorskip("av")

SEEDS = (0, 1, 2, 3)


def _footage(name: str):
    return next(footage for footage in SUBJECTS + FILLERS if footage.name == name)


def _short_reel() -> Reel:
    """Grass for 1 s, a fade of 10 frames into the horse up to 3 s, then a cut to the chessboard."""
    shots = (
        Shot(_footage("grass"), 0, 25, 0, None),
        Shot(_footage("horse"), 15, 60, 10, QUERIES["horse"]),
        Shot(_footage("chessboard"), 75, 20, 0, None),
    )
    return Reel("short", shots, (0, 0))


def _luma_means(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.array([frame.to_ndarray(format="gray").mean() for frame in container.decode(video=0)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_corpus_is_12_reels_of_30_to_60_seconds_and_5_to_9_shots(seed: int):
    reels = plan_reels(seed)
    assert len(reels) == 12
    for reel in reels:
        assert 30 <= reel.num_frames / FRAME_RATE <= 60
        assert 5 <= len(reel.shots) <= 9


@pytest.mark.parametrize("seed", SEEDS)
def test_each_query_has_exactly_one_correct_moment(seed: int):
    reels = plan_reels(seed)
    footage = [shot.footage.name for reel in reels for shot in reel.shots]
    assert all(footage.count(name) == 1 for name in QUERIES)
    truth = [moment for reel in reels for moment in truth_of(reel)]
    assert sorted(t.query for t in truth) == sorted(QUERIES.values())
    for reel in reels:
        names = [shot.footage.name for shot in reel.shots]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_consecutive_shots_overlap_by_their_fade(seed: int):
    for reel in plan_reels(seed):
        assert reel.shots[0].first_frame == reel.shots[0].fade_frames == 0
        for before, after in pairwise(reel.shots):
            assert before.first_frame + before.num_frames - after.first_frame == after.fade_frames
            assert before.num_frames > before.fade_frames + after.fade_frames


def test_the_seed_determines_the_plan():
    assert plan_reels(5) == plan_reels(5) != plan_reels(6)


def test_moments_begin_and_end_in_the_middle_of_a_fade():
    # The fade covers frames 15 to 25: its middle is frame 20, at 0.8 s. The cut is at frame 75, at 3 s.
    (truth,) = truth_of(_short_reel())
    assert (truth.video, truth.query, truth.moment) == ("short.mp4", QUERIES["horse"], Moment(0.8, 3.0))


def test_a_rendered_reel_shows_its_shots_at_the_planned_times(tmp_path: Path):
    reel = _short_reel()
    path = render_reel(reel, tmp_path)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (WIDTH, HEIGHT, FRAME_RATE)
    luma = _luma_means(path)
    assert len(luma) == reel.num_frames == 95
    grass, horse, board = luma[:15].mean(), luma[25:75].mean(), luma[75:].mean()
    assert horse > grass + 30, "the horse is on white"
    assert abs(luma[20] - (grass + horse) / 2) < 0.25 * abs(horse - grass), "half way through the fade"
    assert (np.abs(luma[25:75] - horse) < np.abs(luma[25:75] - board)).all(), "the cut is at frame 75"
    assert (np.abs(luma[75:] - board) < np.abs(luma[75:] - horse)).all()


def test_the_same_reel_renders_to_the_same_bytes(tmp_path: Path):
    (tmp_path / "again").mkdir()
    first, second = render_reel(_short_reel(), tmp_path), render_reel(_short_reel(), tmp_path / "again")
    assert first.read_bytes() == second.read_bytes()


def test_a_corpus_is_written_with_its_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("untrimmed.demo.reels.plan_reels", lambda seed, num_reels: [_short_reel()])
    names: list[str] = []
    truth = render_corpus(tmp_path / "corpus", progress=names.append)
    assert names == ["short"]
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == ["short.mp4", "truth.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "corpus" / "truth.jsonl").read_text().splitlines()]
    assert lines == [{"video": "short.mp4", "query": QUERIES["horse"], "start_s": 0.8, "end_s": 3.0}]
    assert [t.moment for t in truth] == [Moment(0.8, 3.0)]
