"""Timed text of videos: what is said and what is written on the screen."""
