"""Stored encodings of videos as one record."""

import torch


def restored(model, encoded):
    videos = model.restore(encoded)
    return videos[0].cat(videos).to("cpu", torch.float32)
