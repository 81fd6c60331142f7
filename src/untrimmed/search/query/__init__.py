"""The query and its answer: encoding, filters, combinations of parts, hits, and confidence. Start with `answer`."""
