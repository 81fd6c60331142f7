"""Corpora: the ways of ranking videos, training-free or with a trained model."""
