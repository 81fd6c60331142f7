"""The networks and losses of HLFormer, DreamPRVR and Holmes written down in NumPy from their descriptions.

Formula by formula, in double precision, with the authors' names of weights, and nothing shared with the package: what
it gives can be compared with the package on any sizes. `kept` holds what has no gradient: what a first pass puts there,
a later one with other weights takes.
"""

import math
from functools import cached_property

import numpy as np
from scipy.special import digamma

INFINITE = None  # the width of a layer without a window


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swish(x):
    return x * sigmoid(x)


def lse(x, axis):
    top = x.max(axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.exp(x - top).sum(axis=axis))


def softmax(x, axis=-1):
    made = np.exp(x - x.max(axis=axis, keepdims=True))
    return made / made.sum(axis=axis, keepdims=True)


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def window(n, width):
    grid = np.arange(n) / (n - 1)
    distance = (grid[None] - np.arange(n)[:, None] / n) ** 2
    return np.exp((distance.min(axis=1, keepdims=True) - distance) / (2 * (max(width, 0.01) / 9) ** 2))


class Network:
    """GMMFormer v2's towers, as all three have them; a method says what its layers are."""

    frame_block = "frame_encoder_1"

    def __init__(self, weights, config, batch, kept=None):
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.config, self.kept = config, {} if kept is None else kept
        self.batch = {name: array.astype(np.float64) for name, array in batch.items()}
        self.index = batch["text_labels"]
        self.num_videos = len(batch["clip_video_features"])

    def without_gradient(self, name, value):
        return self.kept.setdefault(name, value)

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed(self, kind, x):
        made = relu(self.linear(f"{kind}_input_proj.net.1", self.norm(f"{kind}_input_proj.LayerNorm", x)))
        table = self.weights[f"{kind}_pos_embed.position_embeddings.weight"]
        return self.norm(f"{kind}_pos_embed.LayerNorm", made + table[: x.shape[1]])

    def heads(self, x):
        return np.stack(np.split(x, self.config["n_heads"], axis=-1), axis=1)

    def layer(self, name, query, x, mask=None, width=INFINITE, beside=None):
        """`beside`: rows that are keys and values too, without a window and never masked."""
        rows = x if beside is None else np.concatenate([x, beside], axis=1)
        q, k, v = (
            self.heads(self.linear(f"{name}.self.{of}", rows if of != "query" else query))
            for of in ("query", "key", "value")
        )
        logits = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        n = x.shape[1]
        if width is not INFINITE:
            logits[..., :n] *= window(n, width)
        if mask is not None:
            logits[..., :n] += (1 - mask[:, None, None]) * -10000
        read = np.concatenate(list((softmax(logits) @ v).swapaxes(0, 1)), axis=-1)
        return self.fed_forward(name, self.norm(f"{name}.norm1", query + read))

    def fed_forward(self, name, y):
        inner = relu(self.linear(f"{name}.output.layer1", y))
        return self.norm(f"{name}.norm2", y + self.linear(f"{name}.output.layer2", inner))

    def consolidated(self, name, outputs, mask):
        """The outputs of all layers, K V n D, weighed at each position."""
        token = outputs.mean(axis=(0, 2))[:, None]
        read = np.stack([self.layer(f"{name}.ca", token, each, mask)[:, 0] for each in outputs])
        weight = self.linear(f"{name}.layer2", relu(self.linear(f"{name}.layer1", read)))
        return (softmax(weight / self.config["sft_factor"], axis=0)[..., None] * outputs).sum(axis=0)

    def layers(self, name, x, mask):
        raise NotImplementedError

    @cached_property
    def queries(self):
        mask = self.batch["text_mask"]
        words = self.embed("query", self.batch["text_feat"])
        read = self.layer("query_encoder", words, words, mask)
        logits = (read @ self.weights["modular_vector_mapping.weight"].T)[..., 0]
        return (softmax(mask * logits + (1 - mask) * -1e10)[..., None] * read).sum(axis=1)

    @cached_property
    def embedded_clips(self):
        return self.embed("clip", self.batch["clip_video_features"])

    @cached_property
    def clips(self):
        return self.consolidated("clip_encoder", self.layers("clip_encoder", self.embedded_clips, None), None)

    @cached_property
    def frames(self):
        missing = self.config["max_ctx_l"] - self.batch["videos_mask"].shape[1]
        mask = np.pad(self.batch["videos_mask"], ((0, 0), (0, missing)))
        x = self.embed("frame", np.pad(self.batch["frame_video_features"], ((0, 0), (0, missing), (0, 0))))
        return self.consolidated(self.frame_block, self.layers(self.frame_block, x, mask), mask) * mask[..., None]

    @cached_property
    def scores(self):
        made = {}
        for branch, rows in (("clip", self.clips), ("frame", self.frames)):
            made[f"{branch}_scores"] = np.einsum("qd,vnd->qvn", unit(self.queries), unit(rows)).max(axis=-1)
            made[f"{branch}_scores_raw"] = np.einsum("qd,vnd->qvn", self.queries, rows).max(axis=-1)
        return made

    def expected(self):
        """What a forward case records."""
        config, scores = self.config, self.scores
        fused = config["clip_scale_w"] * scores["clip_scores"] + config["frame_scale_w"] * scores["frame_scores"]
        rows = {"encoded_clips": self.clips, "encoded_frames": self.frames, "query_vectors": self.queries}
        return scores | rows | {"fused_scores": fused}

    def nce(self, raw):
        own = self.index[:, None] == np.arange(self.num_videos)
        of_queries = lse(raw, 1) - raw[own]
        of_videos = lse(raw, 0) - lse(np.where(own, raw, -1e300), 0)
        return of_queries.mean() + of_videos.mean()

    def triplet(self, cosine):
        """With the hardest negatives."""
        margin, own = self.config["margin"], self.index[:, None] == np.arange(self.num_videos)
        foreign = np.where(own, -np.inf, cosine)
        of_own = np.where(own, cosine, 0).sum(axis=0) / own.sum(axis=0)
        return (
            relu(margin + foreign.max(axis=0) - of_own).mean() + relu(margin + foreign.max(axis=1) - cosine[own]).mean()
        )

    def pairs(self):
        return (self.index[:, None] == self.index) & ~np.eye(len(self.index), dtype=bool)

    def query_diverse(self):
        delta, alpha, gamma = self.config["neg_factor"]
        cosine = unit(self.queries) @ unit(self.queries).T
        pushed = (1 + cosine) ** gamma * np.log1p(np.exp(alpha * (cosine + delta)))
        return pushed[self.pairs()].sum() / len(cosine)

    def own_terms(self):
        """The terms of the third factor and later, in the order of `loss_factor`."""
        raise NotImplementedError

    def losses(self):
        """What a loss case records of its terms."""
        made, factors = {}, self.config["loss_factor"]
        for branch in ("clip", "frame"):
            made[f"nce_{branch}"] = self.nce(self.scores[f"{branch}_scores_raw"])
            made[f"triplet_{branch}"] = self.triplet(self.scores[f"{branch}_scores"])
        made["query_diverse"] = self.query_diverse()
        own, recorded = self.own_terms()
        terms = [made["nce_clip"], made["nce_frame"], made["query_diverse"], *own]
        total = made["triplet_clip"] + made["triplet_frame"] + sum(f * t for f, t in zip(factors, terms, strict=True))
        return made | recorded | {"total": total}


class HLFormer(Network):
    """Half of the layers in Lorentz space, and the partial order loss."""

    def layers(self, name, x, mask):
        widths = [INFINITE, *(2**k for k in range(1, self.config["attention_num"] // 2))]
        flat = [self.layer(f"{name}.e_attns.{k}", x, x, mask, width) for k, width in enumerate(widths)]
        return np.stack(flat + [self.lorentz(f"{name}.h_attns.{k}", x, mask, w) for k, w in enumerate(widths)])

    def lorentz(self, name, x, mask, width):
        inside = f"{name}.self.lorentz_multiattention"
        scale = np.exp(min(self.weights[f"{name}.self.scale_alpha"], 0))
        project = f"{name}.self.input_proj"
        tangent = scale * relu(self.linear(f"{project}.net.1", self.norm(f"{project}.LayerNorm", x)))
        radius = np.sqrt(np.maximum((tangent**2).sum(-1, keepdims=True), 1e-9))
        space = np.sinh(np.minimum(radius, 10)) * tangent / radius
        point = np.concatenate([np.sqrt(1 + (space**2).sum(-1, keepdims=True)), space], axis=-1)
        q, k, v = (self.mapped(f"{inside}.linear_{of}", point) for of in ("query", "keys", "values"))
        q[..., 0] *= -1  # the time counts negative in products
        logits = (2 + 2 * q @ k.swapaxes(-1, -2)) / self.weights[f"{inside}.scale"] + self.weights[f"{inside}.bias"]
        if width is not INFINITE:
            logits *= window(x.shape[1], width)
        if mask is not None:
            logits = np.where(mask[:, None, None] > 0, logits, -1e18)
        mean = softmax(logits) @ v
        inner = (mean[..., 1:] ** 2).sum(-1, keepdims=True) - mean[..., :1] ** 2
        mean /= np.sqrt(np.maximum(np.abs(inner), 1e-8))
        joined = np.concatenate(list(mean.swapaxes(0, 1)), axis=-1)
        time = joined[..., :1]
        back = np.arccosh(time) / np.sqrt(time**2 - 1) * joined[..., 1:] / scale
        project = f"{name}.self.output_proj"
        read = relu(self.linear(f"{project}.net.1", self.norm(f"{project}.LayerNorm", back)))
        return self.fed_forward(name, self.norm(f"{name}.norm1", x + read))

    def mapped(self, name, point):
        y = self.heads(point @ self.weights[f"{name}.weight.weight"].T)
        time = 1.1 + np.exp(self.weights[f"{name}.scale"]) * sigmoid(y[..., :1])
        space = y[..., 1:] * np.sqrt((time**2 - 1) / (y[..., 1:] ** 2).sum(-1, keepdims=True))
        return np.concatenate([time, space], axis=-1)

    @cached_property
    def curvature(self):
        start = math.log(self.config["curv_init"])
        return np.exp(np.clip(self.weights["curv"], start - math.log(10), start + math.log(10)))

    def lifted(self, x):
        length = np.sqrt(self.curvature) * np.linalg.norm(x, axis=-1, keepdims=True)
        return np.sinh(np.clip(length, 1e-8, math.asinh(2**15))) * x / np.maximum(length, 1e-8)

    @cached_property
    def hierarchy(self):
        pooled = []
        for name, rows in (("_2", self.frames), ("_3", self.clips)):
            logits = rows @ self.weights[f"modular_vector_mapping{name}.weight"].T
            pooled.append((softmax(logits, axis=1) * rows).sum(axis=1))
        text, video = (np.exp(min(self.weights[f"{of}_alpha"], 0)) for of in ("textual", "video"))
        return self.lifted(text * self.queries), self.lifted(video * sum(pooled) / 2)

    def expected(self):
        text, video = self.hierarchy
        return super().expected() | {"query_hyperbolic": text, "video_hyperbolic": video, "curvature": self.curvature}

    def own_terms(self):
        text, video = self.hierarchy
        c, v = self.curvature, video[self.index]
        time_t, time_v = (np.sqrt(1 / c + (x**2).sum(-1)) for x in (text, v))
        length = np.linalg.norm(v, axis=-1)
        inner = c * ((v * text).sum(-1) - time_v * time_t)
        cosine = (time_t + inner * time_v) / (length * np.sqrt(np.maximum(inner**2 - 1, 1e-8)) + 1e-8)
        angle = np.arccos(np.clip(cosine, -1, 1))
        aperture = np.arcsin(np.clip(0.2 / (length * np.sqrt(c) + 1e-8), -1, 1))
        loss = relu(angle - aperture).mean()
        return [loss], {"pop": loss, "pop_angle": angle, "pop_aperture": aperture}


class DreamPRVR(Network):
    """Registers beside the keys of all layers, and the terms that shape them."""

    frame_block = "frame_encoder"

    def layers(self, name, x, mask):
        widths = [INFINITE, *(2.0 ** (k - 2) for k in range(self.config["attention_num"] - 1))]
        side = f"{name}.noise_input_layer"
        beside = relu(self.linear(f"{side}.net.1", self.norm(f"{side}.LayerNorm", self.trajectory[-1])))
        return np.stack([self.layer(f"{name}.e_attns.{k}", x, x, mask, w, beside) for k, w in enumerate(widths)])

    @cached_property
    def context(self):
        return self.layer("mean_clip_encoder", self.embedded_clips, self.embedded_clips)

    @cached_property
    def condition(self):
        tokens = np.repeat(self.weights["video_qformer.query_tokens"], self.num_videos, axis=0)
        return self.layer("video_qformer.cross_attention", tokens, self.context)

    @cached_property
    def pooled(self):
        sampler, place = "video_probabilistic_variational_sampler.gpo", np.arange(32)
        angle = place[:, None] * 10000 ** (-2 * np.arange(16) / 32)
        steps = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(32, 32)
        forth = self.recurrent(f"{sampler}.gru", "l0", steps)
        back = self.recurrent(f"{sampler}.gru", "l0_reverse", steps[::-1])[::-1]
        weight = softmax(self.linear(f"{sampler}.linear", (forth + back) / 2)[:, 0] / 0.1)
        return np.einsum("p,vpd->vd", weight, -np.sort(-self.context, axis=1))

    def recurrent(self, name, side, steps):
        state, states = np.zeros(32), []
        for x in steps:
            of_x, of_h = (
                np.split(self.weights[f"{name}.weight_{of}_{side}"] @ y + self.weights[f"{name}.bias_{of}_{side}"], 3)
                for of, y in (("ih", x), ("hh", state))
            )
            reset, update = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
            state = (1 - update) * np.tanh(of_x[2] + reset * of_h[2]) + update * state
            states.append(state)
        return np.stack(states)

    def attended(self, name):
        logits = self.linear(f"{name}.w_2", np.tanh(self.linear(f"{name}.w_1", self.context)))
        return (softmax(logits, axis=1) * self.context).sum(axis=1)

    @cached_property
    def mean(self):
        net = "video_probabilistic_variational_sampler.pie_net_video"
        gate = sigmoid(self.linear(f"{net}.fc", self.attended(f"{net}.attention")))
        return unit(self.norm(f"{net}.layer_norm", self.pooled + gate))

    @cached_property
    def log_variance(self):
        net = "video_probabilistic_variational_sampler.uncertain_net_video"
        return self.linear(f"{net}.fc", self.attended(f"{net}.attention")) + self.linear(f"{net}.fc2", self.pooled)

    def denoised(self, x, t):
        net = "diffusion_mlp"
        time = f"{net}.time_embedding.timembedding"
        tau = self.linear(f"{time}.3", swish(self.linear(f"{time}.1", self.weights[f"{time}.0.weight"][t])))
        guide = self.linear(f"{net}.cond_embedding.2", relu(self.norm(f"{net}.cond_embedding.0", self.condition)))
        h = x
        for j in range(self.config["num_diffusion_layers"]):
            at = f"{net}.layers.{j}"
            y = self.linear(f"{at}.blcok_in.2", swish(self.norm(f"{at}.blcok_in.0", h)))
            y = y + self.linear(f"{at}.temb_proj.1", swish(tau)) + self.linear(f"{at}.cond_proj.1", swish(guide))
            h = self.linear(f"{at}.blcok_out.3", swish(self.norm(f"{at}.blcok_out.0", y))) + self.linear(
                f"{at}.short_cut", h
            )
        return self.linear(f"{net}.short_cut", h + x)

    @cached_property
    def schedule(self):
        T = self.config["timesteps"]
        level = np.cos((np.arange(T + 1) / T + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = np.clip(1 - level[1:] / level[:-1], 0, 0.999)
        kept = np.cumprod(1 - beta)
        before = np.append(1.0, kept[:-1])
        of_clean = beta * np.sqrt(before) / (1 - kept)
        return kept, of_clean, (1 - before) * np.sqrt(1 - beta) / (1 - kept), np.sqrt(beta * (1 - before) / (1 - kept))

    @cached_property
    def trajectory(self):
        start = np.repeat(self.mean[:, None], self.config["num_registers"], axis=1)
        kept, of_clean, of_present, spread = self.schedule
        x, states = start, []
        for t in reversed(range(self.config["timesteps"])):
            clean = x / math.sqrt(kept[t]) - math.sqrt(1 / kept[t] - 1) * self.denoised(x, t)
            x = of_clean[t] * np.clip(clean, -1, 1) + of_present[t] * x + (spread[t] * start if t else 0)
            states.append(x)
        return np.stack(states)

    def expected(self):
        return super().expected() | {
            "video_mean": self.mean,
            "video_logvar": self.log_variance,
            "register_condition": self.condition,
            "registers": self.trajectory[-1],
        }

    def own_terms(self):
        similarity, captions = self.query_similarity(), self.captions()
        kl = -(1 + self.log_variance - self.mean**2 - np.exp(self.log_variance)).sum() / (2 * self.num_videos)
        target = self.mean[:, None]
        missed = [
            ((target - self.denoised(math.sqrt(kept) * captions + math.sqrt(1 - kept) * target, t)) ** 2).mean()
            for t, kept in enumerate(self.schedule[0])
        ]
        diffusion = np.mean(missed)
        recorded = {"query_similarity": similarity, "video_kl": kl, "register_diffusion": diffusion}
        return [similarity, kl, diffusion], recorded | {"perturbed_queries": captions}

    def query_similarity(self):
        cosine = unit(self.queries) @ unit(self.queries).T / self.config["deterministic_tau"]
        others, pairs = ~np.eye(len(cosine), dtype=bool), self.pairs()
        log = cosine - lse(np.where(others, cosine, -1e300), 1)[:, None]
        has = pairs.any(axis=1)
        return -((log * pairs).sum(axis=1)[has] / pairs.sum(axis=1)[has]).mean() if has.any() else 0.0

    def captions(self):
        mean = np.stack([self.queries[self.index == v].mean(axis=0) for v in range(self.num_videos)])
        centre = self.without_gradient("centre", mean.mean(axis=1))[:, None, None]
        spread = self.without_gradient("spread", mean.std(axis=1, ddof=1))[:, None, None]
        centred = mean - mean.mean(axis=1, keepdims=True)
        white = (centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5))[:, None]
        scale, shift = (0.1 * spread * self.batch[f"noise_{of}"] for of in ("alpha", "beta"))
        return (1 + scale) * white + centre + shift


class Holmes(Network):
    """Other windows, and the two evidential losses."""

    def layers(self, name, x, mask):
        widths = [INFINITE, 0.5, 1, 2, 4, 8, 16, 32]
        return np.stack([self.layer(f"{name}.e_attns.{k}", x, x, mask, width) for k, width in enumerate(widths)])

    @staticmethod
    def error(label, alpha):
        total = alpha.sum(axis=-1, keepdims=True)
        share = alpha / total
        return ((label - share) ** 2).sum(axis=-1) + (share * (1 - share) / (total + 1)).sum(axis=-1)

    def own_terms(self):
        cosine = {branch: self.scores[f"{branch}_scores"] for branch in ("frame", "clip")}
        evidence = {branch: np.exp(np.tanh(s) / self.config["edl_tau"]) for branch, s in cosine.items()}
        joined = evidence["frame"] * evidence["clip"] / self.num_videos
        evidence["combined"] = evidence["frame"] + evidence["clip"] + joined
        label = self.without_gradient("labels", self.labels(cosine, evidence))
        made = {f"edl_{name}": self.error(label, e + 1).mean() for name, e in evidence.items()}
        inside = self.inside() if self.config["warmup_end"] else 0.0
        recorded = made | {"final_labels": label} | ({"intra_video": inside} if self.config["warmup_end"] else {})
        return [inside, sum(made.values())], recorded

    def labels(self, cosine, evidence):
        """Hard ones, softened for queries that no branch finds under-determined and one finds polysemous."""
        hard = (self.index[:, None] == np.arange(self.num_videos)).astype(float)
        if not self.config["warmup_end"]:
            return hard
        groups = np.stack([self.division(cosine[branch], evidence[branch] + 1) for branch in cosine])
        ambiguous = (groups != 2).all(axis=0) & (groups == 1).any(axis=0)
        soft = sum(softmax(s) for s in cosine.values()) / 2
        share = self.config["smooth_beta"]
        return np.where(ambiguous[:, None], (1 - share) * hard + share * soft, hard)

    def division(self, cosine, alpha):
        bound, rows = self.config["division_beta"], np.arange(len(cosine))
        total = alpha.sum(axis=1)
        uncertainty, own = self.num_videos / total, cosine[rows, self.index]
        right = cosine.argmax(axis=1) == self.index
        limit = min(uncertainty[right].max(initial=-np.inf), 1 - bound) if right.any() else 1 - bound
        consensus = max(own[right].min(initial=np.inf), bound) if right.any() else bound
        entropy = (alpha / total[:, None] * (digamma(total + 1)[:, None] - digamma(alpha + 1))).sum(axis=1)
        median = np.sort(entropy)[math.ceil(len(entropy) / 2) - 1]
        return np.where(uncertainty > limit, 2, np.where((own < consensus) | (entropy > median), 1, 0))

    def inside(self):
        counts = np.bincount(self.index, minlength=self.num_videos)
        terms = []
        for v in range(self.num_videos):
            cosine = unit(self.queries[self.index == v]) @ unit(self.clips[v]).T
            seen = cosine if counts[v] == counts.max() else np.append(cosine, 0.0)
            x = (cosine - seen.min()) / (seen.max() - seen.min() + 1e-8)
            plan = self.without_gradient(f"plan {v}", self.plan(x))
            terms.append(self.error(plan, np.exp(np.tanh(x) / self.config["edl_intra_video_tau"]) + 1).mean())
        return np.mean(terms)

    def plan(self, x):
        m, n = x.shape
        kth = max(1, int(self.config["pot_prompt_ratio"] * x.size))
        logits = np.vstack([x, np.full(n, np.sort(x, axis=None)[kth - 1])]) / self.config["pot_scale"]
        rows = np.log(np.append(np.full(m, 1 / (n + m)), n / (n + m)))
        g = np.zeros(n)
        for _ in range(50):
            f = rows - lse(logits + g, 1)
            g = -math.log(n) - lse(logits + f[:, None], 0)
        moved = n * np.exp(logits + f[:, None] + g)[:-1]
        return moved / (moved.sum(axis=1, keepdims=True) + 1e-8)
