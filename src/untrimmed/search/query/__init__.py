"""Queries and their answers: encoding, filters, combinations of parts, hits, confidence. Start with `answer`."""
