"""Shards, local all in this process, answer like one corpus."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

import untrimmed
from tests.refusals import refused, require_named
from tests.search.corpora.test_trained import save_run
from tests.search.same_hits import check_same_hits, hits_of
from untrimmed.errors import UntrimmedError
from untrimmed.models.registry import list_models
from untrimmed.search.cache.block_cache import FOLDER
from untrimmed.search.cluster.sharded import Shard, ShardedEngine, shard_of
from untrimmed.search.corpora.engine import TRAINING_FREE
from untrimmed.search.query.query import Query
from untrimmed.search.store.table import VideoIndex


def methods(calls):
    """Return the names of the methods of `PreparedQuery` that are called."""
    return {repr(call).split("'")[1] for args in calls.values() for call in (args[3] if len(args) > 1 else ())}


class LocalShards:
    """Shards in this process; those in `dead` do not answer."""

    def __init__(self, folder, number):
        self.number = number
        self.shards = [Shard(folder, n, number) for n in range(number)]
        self.dead = set()
        self.calls = []

    def call(self, method, calls, *, wait_for_load=False):
        self.calls += [(name, number) for number in calls for name in methods({number: calls[number]})]
        alive = {number: args for number, args in calls.items() if number not in self.dead}
        return {number: getattr(self.shards[number], method)(*args) for number, args in alive.items()}


def sharded(lib, number):
    opened = untrimmed.open(lib.folder)
    opened.engine = ShardedEngine(lib.folder, LocalShards(lib.folder, number))
    return opened


def shards_that_separate(hits):
    """Return a number of shards with which these videos are in more than one; ids are random."""
    return next(n for n in range(2, 99) if len({shard_of(hit.video_id, n) for hit in hits}) > 1)


@pytest.mark.check
@pytest.mark.parametrize("number", [1, 2, 7])
def test_shards_answer_like_one_process_after_each_commit(lib, videos, tmp_path, number):
    check_same_hits(sharded(lib, number), lib, videos, tmp_path)


def test_searches_continue_while_a_shard_loads_another_version(lib):
    shards = sharded(lib, 1)
    previous = hits_of(shards)
    with shards.engine._shards.shards[0]._lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(hits_of, shards).result(timeout=60) == previous


@pytest.mark.check
@pytest.mark.parametrize("method", [*list_models(), *TRAINING_FREE])
def test_shards_answer_like_one_process_for_every_model(lib, tmp_path, method):
    lib.use(method if method in TRAINING_FREE else save_run(tmp_path / "run", method))
    assert hits_of(sharded(lib, 3)) == hits_of(lib)


@pytest.mark.parametrize("query", [Query("A red, red sun"), Query("A red, red sun", without=("blue",))])
def test_shards_return_word_weights_and_uncertainty(lib, tmp_path, query):
    run = save_run(tmp_path / "run", "gmmformer_v2+ral")
    (run / "metrics.jsonl").write_text(json.dumps({"val": {"SumR": 10.0, "query_uncertainty_p90": 1e-6}}) + "\n")
    lib.use(run)
    expected, shards = lib.search(query), sharded(lib, 3)
    assert expected.words
    assert any("ambiguous" in line for line in expected.warnings)
    actual = shards.search(query)
    assert (actual.words, actual.warnings) == (expected.words, expected.warnings)
    local = shards.engine._shards
    real = local.call
    local.call = lambda method, calls, **kw: {} if "uncertainty" in methods(calls) else real(method, calls, **kw)
    actual = shards.search(query)
    assert (actual.words, actual.warnings, actual.partial) == ((), (), False), "all hits are returned"
    assert list(actual) == list(expected)


@pytest.mark.parametrize("method", ["frames", "tf_prvr", "gmmformer_v2"])
def test_shards_read_the_cache_and_for_damaged_blocks_the_table(lib, tmp_path, monkeypatch, method):
    lib.use(save_run(tmp_path / "run", method) if method == "gmmformer_v2" else method)
    expected, read, real = hits_of(lib), [], VideoIndex.read
    monkeypatch.setattr(VideoIndex, "read", lambda index, ids: read.extend(ids) or real(index, ids))
    assert hits_of(sharded(lib, 3)) == expected
    assert read == []
    folder = {"gmmformer_v2": "trained"}.get(method, method)
    (block,) = (lib.folder / FOLDER / folder).glob("*.block")
    content = bytearray(block.read_bytes())
    content[-1000] ^= 1
    block.unlink()
    block.write_bytes(content)
    assert hits_of(sharded(lib, 3)) == expected
    assert set(read) == {record.video_id for record in lib.videos()}


def test_a_search_in_a_folder_calls_only_the_shards_of_its_videos(lib, videos):
    shards = sharded(lib, 7)
    shards.search("red")
    shards.engine._shards.calls.clear()
    shards.search("red", within=videos / "sun.mp4")
    (record,) = [record for record in lib.videos() if record.path.endswith("sun.mp4")]
    assert set(shards.engine._shards.calls) == {
        (method, shard_of(record.video_id, 7)) for method in ("rank", "moments")
    }


def test_a_missing_shard_makes_the_result_partial_and_no_shard_is_an_error(lib):
    shards = sharded(lib, 2)
    complete = shards.search("red", limit=9)
    assert (complete.partial, complete.warnings) == (False, ())
    local = shards.engine._shards
    number = shard_of(complete[0].video_id, 2)
    local.dead = {number}
    actual = shards.search("red", limit=9)
    assert actual.partial
    require_named(*actual.warnings, "1", "2")
    assert list(actual) == [hit for hit in complete if shard_of(hit.video_id, 2) != number], "moments are unchanged"
    local.dead = {0, 1}
    with refused(UntrimmedError, "2"):
        shards.search("red")


@pytest.mark.parametrize(
    ("query", "died_before"),
    [
        (Query("red"), "moments"),
        (Query("red", group_by="moment"), "moments"),
        (Query("red", group_by="moment"), "relevance"),
        (Query("red", then="green"), "relevance"),
        (Query("red", without=("white",)), "relevance"),
        (Query("red", without=("white",), group_by="moment"), "relevance"),
        (Query("red", then="green"), "second rank"),
        (Query("red", then="green", without=("white",)), "third rank"),
    ],
)
@pytest.mark.parametrize("among", ["one", "all"])
def test_a_shard_that_dies_after_ranking_makes_the_result_partial(lib, monkeypatch, query, died_before, among):
    complete = lib.search(query, limit=99, moments=9)
    count = shards_that_separate(complete)
    number = shard_of(complete[0].video_id, count)
    limit = 1 if among == "one" else 99
    shards = sharded(lib, count)
    local = shards.engine._shards
    real, ranks = local.call, []

    def call(method, calls, **kw):
        names = methods(calls)
        ranks.append("rank" in names and calls[next(iter(calls))][2].text)
        nth = len(set(filter(None, ranks)))
        if died_before in (*names, {2: "second rank", 3: "third rank"}.get(nth)):
            local.dead = {number}
        return real(method, calls, **kw)

    monkeypatch.setattr(local, "call", call)
    actual = shards.search(query, limit=limit, moments=9)
    assert actual.partial
    require_named(*actual.warnings, "1", str(count))
    rest = {hit.video_id for hit in complete if shard_of(hit.video_id, count) != number}
    assert {hit.video_id for hit in actual} <= rest
    if among == "all":
        assert actual


SAID = {"flag": "the tax rules of May", "sea # 1": "a blue whale", "sun": "no more tax", "wood": "new tax rules"}
SPOKEN = [
    Query("tax rules"),
    Query("blue"),
    Query("tax", without=("green",)),
    Query("red", said="tax"),
    Query('"tax rules"', group_by="moment"),
    Query("tax", modes=("said",)),
]


@pytest.fixture
def spoken(encoder, videos, tmp_path):
    """A library of the four clips with subtitles."""
    films = shutil.copytree(videos, tmp_path / "films")
    for name, text in SAID.items():
        (films / f"{name}.srt").write_text(f"1\n00:00:00,200 --> 00:00:01,500\n{text}\n")
    library = untrimmed.open(tmp_path / "spoken")
    library.index(films)
    return library


@pytest.mark.parametrize("query", SPOKEN)
def test_shards_find_passages_like_one_process(spoken, query):
    expected = spoken.search(query, limit=9)
    assert expected
    actual = sharded(spoken, 3).search(query, limit=9)
    assert (list(actual), actual.warnings, actual.partial) == (list(expected), expected.warnings, False)


@pytest.mark.parametrize("query", SPOKEN[:-1])
@pytest.mark.parametrize("died_before", ["rank", "relevance", "moments", "shot_starts_s"])
def test_a_missing_shard_leaves_the_passages_of_the_other_videos(spoken, monkeypatch, query, died_before):
    complete = spoken.search(query, limit=9)
    count = shards_that_separate(complete)
    number = shard_of(complete[0].video_id, count)
    shards = sharded(spoken, count)
    local = shards.engine._shards
    real = local.call

    def call(method, calls, **kw):
        if died_before in methods(calls) and number in calls:
            local.dead = {number}
        return real(method, calls, **kw)

    monkeypatch.setattr(local, "call", call)
    actual = shards.search(query, limit=9)
    if not local.dead:  # this query does not call this method
        assert list(actual) == list(complete)
        return
    assert actual.partial
    require_named(*actual.warnings, "1", str(count))
    assert {hit.video_id for hit in actual} == {
        hit.video_id for hit in complete if shard_of(hit.video_id, count) != number
    }
