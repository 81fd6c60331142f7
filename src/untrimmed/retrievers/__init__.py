"""Retrievers that return moments as documents to other libraries. Each module needs the extra of its name."""
