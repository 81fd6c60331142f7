"""From video files to rows of the table: hash, decode, encode, commit.

The package also exports a library as a data set for training. Start with `run`.
"""
