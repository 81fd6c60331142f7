"""A small video corpus from bundled photographs and clips, with queries whose correct moments are known."""
