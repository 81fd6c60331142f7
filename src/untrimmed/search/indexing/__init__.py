"""From video files to rows of the table: hash, decode, encode, commit. Also exports for training. Start at `run`."""
