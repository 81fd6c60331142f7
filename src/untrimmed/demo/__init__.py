"""A small corpus with known truth, made from what installed packages carry, and what a library makes of it."""
