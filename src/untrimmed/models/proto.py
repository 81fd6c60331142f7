"""ProtoPRVR (arXiv 2504.13035): 30 vectors (prototypes) summarise a video's clips, and 30 summarise its frames.

No program was released, and the paper leaves the following points open. For each point, we give our choice, the reason,
and the setting that changes the choice:

- The final score 0.7 clip + 0.3 frame (`clip_weight`, `frame_weight`), margin, hard negatives, learning rate and
  dropout are as in MS-SL and GMMFormer, the paper's reference models.
- Encoders ("a stack of encoding layers") are one attention layer with an output map, as in both reference models.
  `ffn_ratio` adds a feed-forward part. There is one text tower with a pooling vector for each branch, because Fig. 2
  marks the query token with the branch (`shared_pooling`: one vector for both, as in the reference models).
- Prototypes (Eq. 1): P(k) = softmax(query(LN(P(k-1))) key(LN(V))^T / sqrt(D)) V. As in the printed equation, the values
  are the features V without a linear map, and there is no output map. Prototypes are therefore "mixtures of multiple
  video segments" (section 4.1) and have the scale of clips, which InfoNCE of dot products needs. There is no residual,
  because the generator is "only the cross-attention" (section 3.2). Softmax is over the sequence, because Eq. 7 needs
  shares that sum to 1. There is one head, because each of several heads would attend to a different moment.
- All iterations share their weights, because the paper counts iterations, not layers. From the second iteration on, the
  query is query(LN(P(k-1)) + P). With P(k-1) alone, as in Eq. 1, the prototypes of a video become similar, because all
  of them are mixtures of the same frames. With K = 1, our formula is exactly Eq. 1.
- `prototype_sharpness` is the initial standard deviation of the attention logits. With the standard deviation 0.02 of
  all other maps, attention would be flat and all prototypes of a video equal.
- Words (Eq. 2-4): a third of each query's words is masked (`masked_share`), which is the usual share. The temperature
  is 1, as in the printed equation (`word_temperature`). The candidates for a masked word are the masked words of all
  queries, including the correct word.
- Frames (Eq. 5): in both branches, the targets are the stored frame features, because learned targets could collapse.
  The loss is the sum over features, because the mean over 3072 features would be too small. We interpret "MLP-based,
  broadcast" as the decoder of Slot Attention over time (`frame_decoder: mixture` is a much cheaper interpretation).
- Mixing (3.4): we interpret "at a higher frame rate" as double speed for both videos, so that the joined video has the
  usual length. Each video is the first part of one joined video and the second part of another, and the video's queries
  count for both joined videos. If a clip crosses the border, its attention is divided between the two videos in
  proportion to the clip's units in each video. Logarithms are limited at the margin (`guidance_clamp: false` is exactly
  Eq. 7).
- Orthogonality (Eq. 8): we use the sum of absolute values, which the printed divisor turns into a mean
  (`orthogonal_norm`).
- Auxiliary losses are summed over branches, which share no modules. A weight of 0 turns a term off (Table 4).

The table shows mean cosines of prototypes in the clip branch: the same prototype after iterations 1 and K ("1 and K"),
two prototypes of a video ("in a video"), and one prototype in two videos ("across"). The values were measured by
`benchmarks/prototype_readings.py` (width 128, seed 0, simulated videos with TVR's captions). SumR is on 400 test videos
after 750 steps of 16 videos with the retrieval losses alone, learning rate 3e-4 and dropout 0.1; chance is 29.0.

              at the start                          trained
              1 and K   in a video   across         1 and K   in a video   across   SumR
    K = 1               0.73         0.22                     0.76         0.55     211.9
    K = 3     0.87      0.69         0.19           0.97      0.91         0.74     174.7
    K = 6     0.83      0.68         0.18           0.97      0.92         0.75     172.2

Models with one iteration learn best. (Another run with K = 1 has 212.1.) The values are also in
`benchmarks/studies/prototypes/readings.md`. docs/decisions.md lists the forms that we tried and dropped.

With `keep_attention`, an encoded video also stores the attention of each prototype to each unit (4 % more data). We
added this attention to find moments.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, Record, VideoBatch
from untrimmed.errors import ConfigError, NoTimelineError
from untrimmed.losses.attention_guidance import attention_guidance
from untrimmed.losses.branch import branch_terms
from untrimmed.losses.orthogonal import orthogonal
from untrimmed.losses.reconstruction import frame_reconstruction, masked_word_nce, masked_words
from untrimmed.models.attachment import TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.proto_decoders import FrameDecoder, FrameReading, WordDecoder
from untrimmed.models.proto_mixing import first_part, joined_videos, pairing
from untrimmed.models.prototype_clips import PrototypeSettings
from untrimmed.models.registry import register
from untrimmed.moments.proposals import proposals, unit_shares
from untrimmed.nn.attention import AttentionPooling
from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.prototypes import prototype_timeline
from untrimmed.nn.tower import QueryTower, Tower
from untrimmed.scores.max_sim import Branches, Similarity, max_sim, units
from untrimmed.scores.score import Score, Scores, required_best


@dataclass(frozen=True, kw_only=True)
class ProtoQueries(EncodedQueries):
    """Query vectors. `sentence` is compared with clip prototypes, and `frame_sentence` with frame prototypes."""

    frame_sentence: Float[Tensor, "Q D"]


@dataclass(frozen=True, kw_only=True)
class ProtoVideos(EncodedVideos):
    """Video vectors. `clips` are the clip prototypes.

    `unit_attention` is the attention of each clip prototype to the units. Each prototype's attention sums to 1.
    """

    clips: Float[Tensor, "V K D"]
    frame_prototypes: Float[Tensor, "V K D"]
    unit_attention: Float[Tensor, "V M K"] | None = None


@dataclass(frozen=True, kw_only=True)
class Read(Record):
    """Clip prototypes with their attention to units, and frame prototypes with their attention to frames."""

    clips: Float[Tensor, "V K D"]
    on_units: Float[Tensor, "V K M"]
    frames: Float[Tensor, "V K D"]
    on_frames: Float[Tensor, "V K T"]


class ProtoBranch(nn.Module):
    """The modules of one branch after its tower."""

    def __init__(self, config: "Proto.Config"):
        super().__init__()
        c = config
        self.builder = c.new_builder(c.dim, c.num_heads)
        self.word_decoder = WordDecoder(c.query_dim, c.dim, c.num_heads, c.max_words, c.init_std)
        self.frame_decoder = FrameDecoder(c.dim, c.video_dim, c.max_frames, c.frame_decoder)


@register("proto")
class Proto(RetrievalModel):
    """Three towers, for queries, clips and frames. Each branch scores a video by its best prototype."""

    @dataclass(frozen=True, kw_only=True)
    class Config(PrototypeSettings, ModelConfig):
        """Settings of the method.

        `masked_share` and the settings after it affect only training. `iterations` is the paper's K.
        """

        input_dropout: float = 0.2
        dropout: float = 0.2
        ffn_ratio: int = 0
        shared_pooling: bool = False
        iterations: int = 6  # the paper uses 1 with CLIP features (Table 8, appendix 8)
        keep_attention: bool = True
        margin: float = 0.1
        clip_weight: float = 0.7
        frame_weight: float = 0.3
        masked_share: float = 1 / 3
        word_temperature: float = 1.0
        frame_decoder: FrameReading = "broadcast"
        guidance_margin: float = 0.2  # beta in Eq. 7
        guidance_clamp: bool = True

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require_range()
            for name in ("num_clips", "max_frames"):
                if getattr(self, name) < 2:
                    raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 2: two videos share it")
            if not 0 < self.masked_share <= 1 or self.word_temperature <= 0 or not 0 <= self.guidance_margin < 1:
                raise ConfigError(
                    f"masked_share {self.masked_share}, word_temperature {self.word_temperature}, guidance_margin "
                    f"{self.guidance_margin}: expected a share in (0, 1], a positive number, a number in [0, 1)"
                )

    keeps_frames: ClassVar[bool] = False

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        c = config
        self.query_tower = QueryTower(self._tower(c.query_dim, c.max_words), c.dim)
        self.frame_pooling = None if c.shared_pooling else AttentionPooling(c.dim)
        self.clip_tower = self._tower(c.video_dim, c.num_clips)
        self.frame_tower = self._tower(c.video_dim, c.max_frames)
        self.clip_branch = ProtoBranch(c)
        self.frame_branch = ProtoBranch(c)

    def _tower(self, in_dim: int, max_length: int) -> Tower:
        c = self.config
        layer = TransformerLayer(
            c.dim, c.num_heads, c.dropout, output_map=True, ffn_ratio=c.ffn_ratio, skip_padding="training"
        )
        return Tower(in_dim, c.dim, max_length, c.input_dropout, layer, skip_padding="training")

    def compute_query_vectors(self, queries: QueryBatch) -> ProtoQueries:
        """Return one sentence vector per branch, pooled from the words of one text tower."""
        words = self.query_tower.tower(queries.words, queries.mask)
        sentence = self.query_tower.pooling(words, queries.mask)
        of_frames = sentence if self.frame_pooling is None else self.frame_pooling(words, queries.mask)
        return ProtoQueries(sentence=sentence, frame_sentence=of_frames)

    def compute_video_vectors(self, videos: VideoBatch) -> ProtoVideos:
        """Return the prototypes of the clips (runs of 1 to `num_clips` consecutive units) and of the frames."""
        read = self.read(videos)
        return ProtoVideos(
            clips=read.clips,
            frame_prototypes=read.frames,
            unit_attention=read.on_units.transpose(1, 2) if self.config.keep_attention else None,
        )

    def read(self, videos: VideoBatch) -> Read:
        """Return the prototypes of both branches and their attention."""
        units = self.clip_tower(videos.clips)
        clip = self.clip_branch.builder(proposals(units))
        frame = self.frame_branch.builder(self.frame_tower(videos.frames, videos.frame_mask), videos.frame_mask)
        shares = unit_shares(clip.attention, units.shape[1])
        return Read(clips=clip.vectors, on_units=shares, frames=frame.vectors, on_frames=frame.attention)

    def compute_timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V M D"], None]:
        """Return one vector per unit: a weighted mean of the clip prototypes that attend to the unit.

        Raises: NoTimelineError if the model does not store attention.
        """
        videos = ProtoVideos.of(videos)
        if videos.unit_attention is None:
            raise NoTimelineError("proto finds moments only with stored attention; set model.keep_attention=true")
        return prototype_timeline(videos.clips, videos.unit_attention), None

    def compute_scores(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of the best prototype of each branch (section 3.1)."""
        weights = {"clip": self.config.clip_weight, "frame": self.config.frame_weight}
        return Scores(self.branch_sims(queries, videos), weights)

    def branch_sims(
        self, queries: EncodedQueries, videos: EncodedVideos, similarity: Similarity = "cosine"
    ) -> dict[str, Score]:
        """Return the scores of both branches by cosine, or by dot product for InfoNCE."""
        queries = ProtoQueries.of(queries)
        videos = ProtoVideos.of(videos)
        clip = max_sim(queries.sentence, videos.clips, similarity=similarity)
        frame = max_sim(queries.frame_sentence, videos.frame_prototypes, similarity=similarity)
        return {"clip": clip, "frame": frame}

    def compute_sketch(self, videos: EncodedVideos) -> Branches:
        """Return the prototypes of clips and of frames."""
        videos = ProtoVideos.of(videos)
        return {"clip": units(videos.clips), "frame": units(videos.frame_prototypes)}

    def compute_probe(self, queries: EncodedQueries) -> Branches:
        """Return the sentence of each branch."""
        c = self.config
        queries = ProtoQueries.of(queries)
        clip, frame = (F.normalize(x, dim=-1)[:, None] for x in (queries.sentence, queries.frame_sentence))
        return {"clip": c.clip_weight * clip, "frame": c.frame_weight * frame}

    def compute_losses(self, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return InfoNCE and triplet loss of each branch, and four auxiliary losses, summed over branches (Eq. 9)."""
        queries = ProtoQueries.of(step.queries)
        videos = ProtoVideos.of(step.videos)
        c = self.config
        batch = step.batch
        draws = step.draws
        index = batch.video_index
        cosine = self.branch_sims(queries, videos)
        dot = self.branch_sims(queries, videos, "dot")
        prototypes = {"clip": videos.clips, "frame": videos.frame_prototypes}
        noise = draws.uniform("masked_words", *batch.queries.mask.shape).to(index.device)
        hidden = masked_words(batch.queries.mask, noise, share=c.masked_share)
        terms: dict[str, Tensor] = {}
        words = []
        frames = []
        overlaps = []
        for name, part in (("clip", self.clip_branch), ("frame", self.frame_branch)):
            terms |= branch_terms(name, cosine[name].value, dot[name].value, index, margin=c.margin, draws=draws)
            best = required_best(cosine[name]).gather(1, index[:, None])[:, 0]
            words.append(self._word_loss(part, prototypes[name][index, best], batch.queries, hidden))
            decoded = part.frame_decoder(prototypes[name], batch.videos.frames.shape[1])
            frames.append(frame_reconstruction(decoded, batch.videos.frames, batch.videos.frame_mask))
            overlaps.append(orthogonal(prototypes[name], norm=c.orthogonal_norm))
        return terms | {
            "word_reconstruction": words[0] + words[1],
            "frame_reconstruction": frames[0] + frames[1],
            "attention_guidance": self._guidance_loss(queries, step),
            "orthogonal": overlaps[0] + overlaps[1],
        }

    def _word_loss(
        self, part: ProtoBranch, prototype: Float[Tensor, "Q D"], queries: QueryBatch, hidden: Bool[Tensor, "Q W"]
    ) -> Float[Tensor, ""]:
        decoded = part.word_decoder(queries.words, queries.mask, hidden, prototype)
        query_index = hidden.nonzero()[:, 0]
        return masked_word_nce(decoded, queries.words[hidden], query_index, temperature=self.config.word_temperature)

    def _guidance_loss(self, queries: ProtoQueries, step: TrainingStep) -> Float[Tensor, ""]:
        """Return the attention guidance loss of queries and joined videos (Eq. 7). The loss is 0 for a single video."""
        c = self.config
        batch = step.batch
        num_videos = len(step.batch.videos)
        if num_videos == 1:
            return 0 * queries.sentence.sum()
        shift = 1 + int(step.draws.uniform("mixing", 1).item() * (num_videos - 1))
        pairs = pairing(batch.video_index, shift, num_videos)
        read = step.encode(self.read, joined_videos(batch.videos, shift, max_frames=c.max_frames))
        losses = []
        for query, prototypes, attention in (
            (queries.sentence, read.clips, read.on_units),
            (queries.frame_sentence, read.frames, read.on_frames),
        ):
            best = required_best(max_sim(query, prototypes)).repeat(2, 1)
            retrieved = best.gather(1, pairs.mixed[:, None])[:, 0]
            shares = attention[pairs.mixed, retrieved]
            on_first = shares[:, : first_part(shares.shape[1])].sum(dim=1)
            losses.append(
                attention_guidance(on_first, pairs.is_first, margin=c.guidance_margin, clamp=c.guidance_clamp)
            )
        return losses[0] + losses[1]
