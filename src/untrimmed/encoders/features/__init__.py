"""Encoders made of the networks of published benchmarks (ResNet-152, I3D, SlowFast, CLIP, RoBERTa); see `kinds`."""
