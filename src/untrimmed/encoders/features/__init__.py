"""The networks of the published benchmarks as an encoder (ResNet-152, I3D, SlowFast, CLIP, RoBERTa); see `kinds`."""
