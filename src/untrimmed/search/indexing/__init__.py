"""From video files to rows of the table."""
