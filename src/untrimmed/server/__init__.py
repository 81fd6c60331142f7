"""The service: a library over HTTP, for its page, the command line and other programs; no scoring happens here."""
