"""Search in a library of videos. The path of a query, room by room:

1. `library.py`: `Library.search` makes a `Query` and passes it to the library's `Engine` (or `ShardedEngine`).
2. `corpora/`: the engine provides a `View`, one version of the library, and its `Corpus`, the videos in memory.
3. `store/`: the records of that version, and the table from which new videos are read.
4. `cache/`: blocks of videos on disk, from which a new process starts.
5. `query/`: `answer` encodes the query, filters videos, and prepares a `PreparedQuery` for the corpus.
6. `pruning/`: quantized codes rule out most videos before the corpus computes exact scores.
7. `query/`: `find` makes a `Hit` of each ranked video, with its best moments.

`indexing/` adds videos to the table, and `cluster/` searches and indexes on several machines.
"""
