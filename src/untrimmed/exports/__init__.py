"""Export moments to files for other programs: timelines for editors, tables, subtitles and chapters."""
