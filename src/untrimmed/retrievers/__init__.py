"""Moments as documents, for pipelines that others' libraries build; each module needs the extra of its name."""
