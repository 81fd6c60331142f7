"""The library in its folder or on object storage: `records` (and settings), `table` (with the vectors), and `merge`."""
