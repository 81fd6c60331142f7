"""GMMFormer v2 implemented as the paper's text suggests: one module per block, loops over videos in the losses.

The baseline of `training_step.py` and `validation_pass.py`. Modules have the released parameter names, so that both
implementations can start from equal weights.
"""

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn

from untrimmed.nn.window import constraint_windows

WIDTHS = (None, 0.5, 1.0, 5.0, 10.0, 3.0, 0.1, 8.0)


class InputProjection(nn.Module):
    def __init__(self, in_dim, dim, dropout):
        super().__init__()
        self.LayerNorm = nn.LayerNorm(in_dim)
        self.net = nn.Sequential(nn.Dropout(dropout), nn.Linear(in_dim, dim))

    def forward(self, x):
        return F.relu(self.net(self.LayerNorm(x)))


class PositionEmbedding(nn.Module):
    def __init__(self, length, dim, dropout):
        super().__init__()
        self.position_embeddings = nn.Embedding(length, dim)
        self.LayerNorm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        positions = self.position_embeddings(torch.arange(x.shape[1], device=x.device))
        return self.dropout(self.LayerNorm(x + positions))


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, target, x, mask, window):
        query, key, value = self.split(self.query(target)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if window is not None:
            scores = scores * window
        if mask is not None:
            scores = scores + (1 - mask[:, None, None, :]) * -10000.0
        weights = self.dropout(scores.softmax(dim=-1))
        return (weights @ value).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden, dropout):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.layer2(self.dropout(F.relu(self.layer1(x))))


class Layer(nn.Module):
    def __init__(self, dim, heads, hidden, dropout, width=None, length=None):
        super().__init__()
        self.self = Attention(dim, heads, dropout)
        self.output = FeedForward(dim, hidden, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        window = None if width is None else constraint_windows(length, [width])[0]
        self.register_buffer("window", window, persistent=False)

    def forward(self, target, x, mask):
        y = self.norm1(target + self.dropout(self.self(target, x, mask, self.window)))
        return self.norm2(y + self.dropout(self.output(y)))


class ConsolidationBlock(nn.Module):
    def __init__(self, dim, heads, dropout, length, temperature):
        super().__init__()
        for k, width in enumerate(WIDTHS):
            setattr(self, f"attn{k}", Layer(dim, heads, 4 * dim, dropout, width, length))
        self.ca = Layer(dim, heads, dim, dropout)
        self.layer1, self.layer2 = nn.Linear(dim, dim), nn.Linear(dim, length)
        self.dropout = nn.Dropout(dropout)
        self.temperature = temperature

    def forward(self, x, mask, token):
        outputs = [getattr(self, f"attn{k}")(x, x, mask) for k in range(len(WIDTHS))]
        token = token.expand(len(x), -1, -1)
        read = [self.ca(token, output, mask) for output in outputs]
        weights = [self.layer2(self.dropout(F.relu(self.layer1(r)))).transpose(1, 2) for r in read]
        weights = (torch.cat(weights, dim=2) / self.temperature).softmax(dim=2)
        return (torch.stack(outputs, dim=2) * weights[..., None]).sum(dim=2)


class StraightforwardGMMFormerV2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.weight_token = nn.Parameter(torch.zeros(1, 1, c.dim))
        for name, in_dim, length in (
            ("query", c.query_dim, c.max_words),
            ("clip", c.video_dim, c.max_frames),
            ("frame", c.video_dim, c.max_frames),
        ):
            setattr(self, f"{name}_pos_embed", PositionEmbedding(length, c.dim, c.input_dropout))
            setattr(self, f"{name}_input_proj", InputProjection(in_dim, c.dim, c.input_dropout))
        self.query_encoder = Layer(c.dim, c.num_heads, 4 * c.dim, c.dropout)
        self.clip_encoder = ConsolidationBlock(c.dim, c.num_heads, c.dropout, c.num_clips, c.temperature)
        self.frame_encoder_1 = ConsolidationBlock(c.dim, c.num_heads, c.dropout, c.max_frames, c.temperature)
        self.modular_vector_mapping = nn.Linear(c.dim, 1, bias=False)

    def encode_queries(self, words, mask):
        x = self.query_pos_embed(self.query_input_proj(words))
        x = self.query_encoder(x, x, mask)
        logits = self.modular_vector_mapping(x) + (1 - mask[..., None]) * -1e10
        return (logits.softmax(dim=1) * x).sum(dim=1)

    def encode_videos(self, clips, frames, mask):
        clips = self.clip_encoder(self.clip_pos_embed(self.clip_input_proj(clips)), None, self.weight_token)
        missing = self.config.max_frames - frames.shape[1]  # as released: always padded to the maximum
        frames, mask = F.pad(frames, (0, 0, 0, missing)), F.pad(mask, (0, missing))
        frames = self.frame_encoder_1(self.frame_pos_embed(self.frame_input_proj(frames)), mask, self.weight_token)
        return clips, frames * mask[..., None]

    def scores(self, query, rows, normalise):
        if normalise:
            query, rows = F.normalize(query, dim=-1), F.normalize(rows, dim=-1)
        return torch.einsum("qd,vld->qvl", query, rows).amax(dim=2)

    def forward(self, batch, weights):
        words, word_mask = batch.queries.words, batch.queries.mask.float()
        videos = batch.videos
        query = self.encode_queries(words, word_mask)
        clips, frames = self.encode_videos(videos.clips, videos.frames, videos.frame_mask.float())
        again = self.encode_queries(words, word_mask)
        index = batch.video_index.tolist()
        total = 0.0
        for name, rows in (("clip", clips), ("frame", frames)):
            total = total + weights[f"{name}_nce"] * nce(self.scores(query, rows, normalise=False), index)
            cosine = self.scores(query, rows, normalise=True)
            total = total + weights[f"{name}_triplet"] * triplet(cosine, index, self.config.margin)
        settings = self.config.losses["query_diversity"]
        total = total + weights["query_diversity"] * diversity(again, index, settings)
        return total + weights["optimal_matching"] * matching(again, clips, index)


def queries_of(index, video):
    return [q for q, own in enumerate(index) if own == video]


def nce(scores, index):
    to_video = [scores[q].logsumexp(0) - scores[q, video] for q, video in enumerate(index)]
    to_text = []
    for video in range(scores.shape[1]):
        own = queries_of(index, video)
        to_text.append(scores[:, video].logsumexp(0) - scores[own, video].logsumexp(0))
    return torch.stack(to_video).mean() + torch.stack(to_text).mean()


def triplet(scores, index, margin):
    """With the hardest negatives, which need no random draw."""
    of_videos, of_queries = [], []
    for video in range(scores.shape[1]):
        own = queries_of(index, video)
        others = [q for q in range(len(index)) if q not in own]
        of_videos.append((margin + scores[others, video].max() - scores[own, video].mean()).relu())
    for q, video in enumerate(index):
        others = [v for v in range(scores.shape[1]) if v != video]
        of_queries.append((margin + scores[q, others].max() - scores[q, video]).relu())
    return torch.stack(of_videos).mean() + torch.stack(of_queries).mean()


def diversity(query, index, settings):
    total = 0.0
    for video in set(index):
        own = F.normalize(query[queries_of(index, video)], dim=-1)
        cosine = own @ own.T
        push = (1 + cosine) ** settings.focus * F.softplus(settings.scale * (cosine + settings.margin))
        total = total + push.sum() - push.diagonal().sum()
    return total / len(query)


def matching(query, clips, index):
    distances = []
    for video in set(index):
        own = queries_of(index, video)
        if len(own) < 2:
            continue
        cosine = F.normalize(query[own], dim=-1) @ F.normalize(clips[video], dim=-1).T
        for row, clip in zip(*linear_sum_assignment(cosine.detach().cpu().numpy(), maximize=True), strict=True):
            distances.append(1 - cosine[row, clip])
    return torch.stack(distances).mean()
