"""Blocks of videos: in memory (`blocks`) and on disk (`block_cache`). `mapped` reads memory-mapped files."""
