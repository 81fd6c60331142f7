"""Retrievers for other libraries, which return moments as documents. Each module needs the extra with its name."""
