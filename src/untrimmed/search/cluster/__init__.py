"""Searching and indexing on many machines with Ray."""
