"""Timed text of videos: subtitles, recognised speech and text on the screen."""
