"""The library on disk: table, records, merge, object storage."""
