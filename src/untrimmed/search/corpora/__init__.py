"""Corpora: the videos of a library in memory, as a model searches them. Start at `engine`, then `corpus`."""
