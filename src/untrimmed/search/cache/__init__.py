"""Blocks of videos in memory (`blocks`) and on disk (`block_cache`, in memory-mapped files of `mapped`)."""
