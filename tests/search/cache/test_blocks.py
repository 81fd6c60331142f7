"""Videos in blocks: right after any updates, in few blocks, and rarely copied."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untrimmed.search.cache.blocks import Block, Blocks
from untrimmed.search.pruning.ranking import ranked_by_bounds, ranked_by_rough_scores, run_ranking

MOST = 40


class Numbers(Block):
    """Videos of which each is a number, its score."""

    def __init__(self, ids, sizes, values):
        super().__init__({"ids": np.array(ids, dtype=str)})
        self.row_sizes, self.values = sizes, values

    @property
    def sizes(self):
        return self.row_sizes


class World:
    """Blocks, and a dictionary with the same videos."""

    def __init__(self):
        self.copied = 0
        self.blocks = Blocks(self.join, MOST)
        self.known = {}

    def join(self, parts):
        rows = [(part.block, row) for part in parts for row in np.flatnonzero(part.present)]
        self.copied += len(rows)
        return Numbers(
            tuple(block.ids[row] for block, row in rows),
            np.array([block.sizes[row] for block, row in rows]),
            np.array([block.values[row] for block, row in rows]),
        )

    def update(self, added, removed=(), size=1):
        new = Numbers(tuple(added), np.full(len(added), size), np.array(list(added.values()), dtype=float))
        self.blocks = self.blocks.update([new] if added else [], removed)
        self.known = {key: value for key, value in self.known.items() if key not in removed} | added

    def rank(self, limit, among=None, bounds=()):
        self.exact = []

        def values(selection):
            return np.concatenate([block.values[rows] for block, rows in selection])

        def rough(selection):
            return values(selection) + np.concatenate([np.where(rows % 2, 0.01, -0.01) for _, rows in selection])

        videos = self.blocks.select(among)
        if bounds:
            requests = ranked_by_bounds(videos, bounds, limit)
        else:
            requests = ranked_by_rough_scores(videos, rough, limit, rounding=0.02)
        ranked = run_ranking(requests, lambda selection: self.exact.extend(values(selection)) or values(selection))
        return [(video.video_id, video.score) for video in ranked]

    def ranked(self, limit, among=None):
        """Return the ranking by looking at every video."""
        scores = {key: value for key, value in self.known.items() if among is None or key in among}
        worst = sorted(scores.values(), reverse=True)[: max(limit, 0)][-1:]
        return {(key, value) for key, value in scores.items() if worst and value >= worst[0]}


def within(slack, guess=0.0):
    """Return a stage whose upper bounds are `slack` above scores, with estimates that are off by up to `guess`."""

    def stage(videos, indices, needed):
        assert len(indices)
        values = np.concatenate([np.empty(0), *(block.values[rows] for block, rows in videos)])
        assert len(values) == len(indices)
        return np.stack([values + guess * np.sin(17.0 * indices), values + slack])

    return stage


BOUNDS = [
    (),
    (within(0.0),),
    (within(5.0, guess=9.0), within(1.0), within(0.3)),
    (within(np.inf), within(0.5, guess=3.0)),
]
IDS = st.sampled_from([f"v{number}" for number in range(30)])
STEPS = st.lists(
    st.tuples(st.dictionaries(IDS, st.integers(0, 9).map(float), max_size=12), st.sets(IDS, max_size=8)), max_size=12
)


@settings(deadline=None, derandomize=True, database=None, max_examples=50)
@given(steps=STEPS, limit=st.integers(0, 6), among=st.none() | st.sets(IDS), bounds=st.sampled_from(BOUNDS))
def test_after_any_updates_videos_rank_as_in_a_dictionary(steps, limit, among, bounds):
    world = World()
    for added, removed in steps:
        previous, seen = world.blocks, world.rank(limit, among)
        world.update(added, removed - added.keys())
        actual = world.rank(limit, among, bounds)
        assert set(actual) == world.ranked(limit, among)
        assert [score for _, score in actual] == sorted((score for _, score in actual), reverse=True)
        assert len(world.blocks) == len(world.known)
        assert all(world.blocks.find(key) for key in world.known)
        world.blocks, updated = previous, world.blocks
        assert world.rank(limit, among) == seen, "an update changed the blocks of a running search"
        world.blocks = updated


def test_only_videos_that_no_bound_rules_out_get_exact_scores():
    world = World()
    world.update({f"v{number}": float(number) for number in range(30)})
    assert [score for _, score in world.rank(2)] == [29.0, 28.0]
    assert sorted(world.exact) == [27, 28, 29], "those that rounding does not rule out"
    assert [score for _, score in world.rank(2, None, (within(9.0), within(1.5)))] == [29.0, 28.0]
    assert sorted(world.exact) == [27, 28, 29], "the two best estimates, and a video that may be better than the second"


@pytest.mark.parametrize("bounds", BOUNDS)
def test_videos_without_a_finite_score_are_not_ranked(bounds):
    world = World()
    world.update({"a": 2.0, "none": np.nan, "b": 1.0})
    assert world.rank(9, None, bounds) == [("a", 2.0), ("b", 1.0)]
    world.update({"none": np.nan}, removed=("a", "b"))
    assert world.rank(1, None, bounds) == []


@pytest.mark.parametrize("number", [100, 500])
def test_videos_added_one_by_one_are_in_few_blocks_and_rarely_copied(number):
    world = World()
    for video in range(number):
        world.update({f"v{video}": float(video)})
    assert len(world.blocks.parts) < 2 * number / MOST + np.log2(MOST)
    assert world.copied < number * np.log2(MOST)


def test_adding_one_video_copies_at_most_one_block():
    world = World()
    for start in range(0, 400, MOST):
        world.update({f"v{start + i}": float(i) for i in range(MOST)})
    copied = world.copied
    world.update({"new": 1.0})
    assert world.copied - copied <= MOST


def test_a_block_has_at_most_a_quarter_of_holes():
    world = World()
    for start in range(0, 400, MOST):
        world.update({f"v{start + i}": float(i) for i in range(MOST)})
    remaining = sorted(world.known)
    for video in np.random.default_rng(0).permutation(remaining)[:300].tolist():
        world.update({}, {video})
        total_size = sum(part.size for part in world.blocks.parts)
        assert total_size == len(world.known)
        assert sum(int(part.block.sizes.sum()) for part in world.blocks.parts) <= total_size / (1 - 0.25) + 1
    assert len(world.blocks.parts) < 2 * 100 / MOST + np.log2(MOST)


def test_a_video_larger_than_a_block_has_its_own_block():
    world = World()
    for video in range(5):
        world.update({f"v{video}": 1.0}, size=3 * MOST)
    assert len(world.blocks.parts) == 5
    assert world.copied == 0
