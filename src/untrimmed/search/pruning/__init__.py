"""Quantized codes and upper bounds that leave few videos for exact scores."""
