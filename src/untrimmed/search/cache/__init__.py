"""Blocks of encoded videos, in memory and memory-mapped on disk."""
