"""Search in a library of videos. How a query becomes hits:

1. `library.py`: `Library.search` makes a `Query` and calls `Engine.answer` (with shards: `ShardedEngine.answer`).
2. `corpora/engine.py`: the engine provides a `View`, one version of the library, with the records from `store/`.
3. `query/answer.py`: `answer` applies the filters and encodes the query.
4. `corpora/`: `View.corpus` holds the videos in memory: blocks from `cache/`, and newer videos from the table in
   `store/`. `Corpus.prepare` returns a `PreparedQuery`, or a `CombinedQuery` if the query has several parts.
5. `query/find.py`: `find` calls `PreparedQuery.rank`. Upper bounds from `pruning/` rule out most videos; exact scores
  are computed for the rest. Then `find` calls `PreparedQuery.moments` for each ranked video and returns a `Hit` for the
  video.

`indexing/` adds videos to the table, and `cluster/` searches and indexes on several machines.
"""
