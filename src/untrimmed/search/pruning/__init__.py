"""Compute upper bounds of scores from quantized codes, so that few videos need exact scores. Start with `ranking`."""
