"""The library in its folder or on object storage: `records` and settings, the `table` of vectors, and `merge`."""
