"""The service gives access to a library over HTTP, for its web page, the command line and other programs.

It computes no scores itself; the library does.
"""
