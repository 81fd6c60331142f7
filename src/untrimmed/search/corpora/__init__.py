"""Corpora: the videos of a library in memory, in the form that a search model needs.

Start with `engine`, then `corpus`.
"""
