"""Encoders made of the networks behind published benchmark features (ResNet-152, I3D, SlowFast, CLIP, RoBERTa)."""
