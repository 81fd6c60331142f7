import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from untrimmed.demo import run
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.reels import Reel, Shot, Truth
from untrimmed.demo.sources import FILLERS, SUBJECTS
from untrimmed.encoders.builtin import encoder as builtin
from untrimmed.errors import EncoderError
from untrimmed.search.query.hits import Hit
from untrimmed.types import Moment


def _footage(name: str):
    return next(footage for footage in SUBJECTS + FILLERS if footage.name == name)


def _reel(name: str, filler: str, subject: str) -> Reel:
    """2 s of a filler, then 3 s of a subject."""
    shots = (Shot(_footage(filler), 0, 50, 0, None), Shot(_footage(subject), 50, 75, 0, QUERIES[subject]))
    return Reel(name, shots, (0, 0))


@pytest.fixture
def two_reels(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        builtin.BuiltinEncoder()
    except EncoderError as error:
        pytest.skip(str(error))
    reels = [_reel("reel_01", "gravel", "coffee"), _reel("reel_02", "handwriting", "flower")]
    monkeypatch.setattr("untrimmed.demo.reels.plan_reels", lambda seed, num_reels: reels)


def _answer(rank: int, hit: tuple[float, float], truth: tuple[float, float]) -> run.DemoAnswer:
    moment = Moment(*hit)
    return run.DemoAnswer(
        Truth("right.mp4", f"query of rank {rank}", Moment(*truth)),
        Hit(Path("right.mp4" if rank == 1 else "wrong.mp4"), "id", *hit, 0.5, 40.0, (moment,)),
        rank,
        0.01,
    )


def test_a_first_hit_in_another_video_counts_as_iou_0():
    answers = [
        _answer(1, (0.0, 4.0), (2.0, 6.0)),  # IoU 2 / 6
        _answer(1, (3.0, 5.0), (3.0, 5.0)),  # IoU 1
        _answer(2, (3.0, 5.0), (3.0, 5.0)),  # equal span in another video: 0
        _answer(6, (0.0, 9.0), (1.0, 8.0)),
    ]
    result = run._measure(answers, Path("hit.png"), 0.0)
    # R@1 2/4, R@5 3/4, mean IoU (1/3 + 1 + 0 + 0) / 4 = 1/3
    assert (result.recall_at_1, result.recall_at_5) == (50.0, 75.0)
    assert result.mean_iou == pytest.approx(100 / 3)
    assert [answer.iou for answer in answers] == pytest.approx([1 / 3, 1.0, 0.0, 0.0])


@pytest.mark.usefixtures("two_reels")
def test_the_demo_renders_indexes_searches_and_prints_its_results(tmp_path: Path):
    output = io.StringIO()
    result = run.run_demo(tmp_path, Console(file=output, width=200))
    lines = [line.strip() for line in output.getvalue().strip().splitlines()]
    assert str(tmp_path) in lines[0]
    assert "2" in lines[1].split()
    assert "10" in lines[2].split()
    assert sum(query in line for line in lines for query in QUERIES.values()) == 2
    assert any(line.startswith(f"R@1 {result.recall_at_1:.0f}   R@5 {result.recall_at_5:.0f}") for line in lines)
    assert "untrimmed index " in lines[-2]
    assert "untrimmed search " in lines[-1]
    assert {answer.truth.query for answer in result.answers} == {QUERIES["coffee"], QUERIES["flower"]}
    for answer in result.answers:
        assert 0 <= answer.hit.start_s < answer.hit.end_s <= 5.1
    with Image.open(result.picture) as picture:
        assert np.asarray(picture).std() > 10

    again = io.StringIO()
    run.run_demo(tmp_path, Console(file=again, width=200))
    assert "2" in again.getvalue().split()
