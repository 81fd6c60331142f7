"""The HTTP service of a library, for its web page, the command line and other programs."""
