"""The query and its answer: filters, hits, combinations, confidence."""
