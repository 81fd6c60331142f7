"""Search in a library of videos. How a query becomes hits:

1. `library.py`: `Library.search` makes a `Query` and calls `Engine.answer` (with shards: `ShardedEngine.answer`).
2. `corpora/engine.py`: the engine provides a `View`, one version of the library, with the records from `store/`.
3. `query/answer.py`: `answer` applies the filters and encodes the query.
4. `corpora/`: `View.corpus` holds the videos in memory: blocks from `cache/`, and newer videos from the table in
   `store/`. `Corpus.prepare` returns a `PreparedQuery`. Several of them make a `CombinedQuery`.
5. `query/find.py`: `find` calls `PreparedQuery.rank`. Upper bounds from `pruning/` exclude most videos, and exact
   scores are computed for the rest. Then `find` calls `PreparedQuery.moments` for each ranked video to make a `Hit`.

`indexing/` adds videos to the table, and `cluster/` searches and indexes on several machines.
"""
