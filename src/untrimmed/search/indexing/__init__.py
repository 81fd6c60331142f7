"""Index video files: hash, decode and encode them, and commit them to the table. Start with `run`.

`export` writes a library as a data set for training.
"""
