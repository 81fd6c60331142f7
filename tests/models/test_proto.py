"""ProtoPRVR has no released program.

It must do what its paper states, and what our interpretation of the paper implies.
"""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from tests.retrieval_world import SIZES, fused, make_batch, one_of_each, with_noisy_padding, without_padding
from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch, clips_of
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.attached_losses import OptimalMatching, QueryDiversity
from untrimmed.models.proto_decoders import FrameDecoder, WordDecoder
from untrimmed.models.proto_mixing import first_part, joined_videos, pairing, played_faster
from untrimmed.models.registry import build_model, create_model
from untrimmed.moments.proposals import unit_shares
from untrimmed.nn.init import initialise
from untrimmed.presets import load_preset
from untrimmed.training.optim import BertAdam, parameter_groups

FORMS = {
    "paper": {},
    "CLIP": {"iterations": 1},
    "perceiver": {"builder": "perceiver"},
    "slots": {"builder": "slot_attention", "shared_pooling": True},
    "cheap": {"frame_decoder": "mixture", "num_prototypes": 10, "ffn_ratio": 4},
}
OWN = ("word_reconstruction", "frame_reconstruction", "attention_guidance", "orthogonal")


@pytest.fixture(params=FORMS.values(), ids=list(FORMS))
def model(request):
    torch.manual_seed(0)
    return create_model("proto", **SIZES, init_std=0.3, **request.param).eval()


@pytest.fixture
def plain():
    torch.manual_seed(0)
    return create_model("proto", **SIZES, init_std=0.3).eval()


def test_prototypes_of_a_video_do_not_change_with_its_batch_mates(model, batch):
    whole = model.encode_videos(batch.videos)
    for v in range(3):
        alone = model.encode_videos(without_padding(batch, v).videos)
        # Logits of deviation 4 multiply rounding errors.
        assert torch.allclose(alone.clips, whole.clips[v : v + 1], atol=1e-5)
        assert torch.allclose(alone.frame_prototypes, whole.frame_prototypes[v : v + 1], atol=1e-5)


def test_what_padding_holds_changes_no_loss(model, batch):
    noisy = with_noisy_padding(batch)
    ours, theirs = (model(b, draws=Draws(2, torch.Generator().manual_seed(1))) for b in (noisy, batch))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)


def test_without_a_second_video_attention_needs_no_guidance(model):
    for draws in (Draws(), Draws(hard_pool=20)):
        assert model.train()(one_of_each(), draws=draws)["attention_guidance"] == 0


def test_it_carries_the_attached_losses(model, batch):
    losses = {"query_diversity": QueryDiversity.Config(), "optimal_matching": OptimalMatching.Config()}
    config = dataclasses.replace(model.config, losses=losses)
    terms = build_model(type(model), config)(batch, draws=Draws(hard_pool=2))
    branches = {f"{branch}_{term}" for branch in ("clip", "frame") for term in ("nce", "triplet")}
    assert terms.keys() == {*branches, *OWN, "query_diversity", "optimal_matching"}


def test_a_video_is_sixty_vectors_as_the_paper_counts_its_memory(batch):
    model = create_model("proto", query_dim=6, video_dim=5, keep_attention=False).eval()
    encoded = model.encode_videos(batch.videos)
    stored = sum(tensor[0].numel() * tensor.element_size() for tensor in encoded.tensors().values())
    assert stored == 2 * 30 * 384 * 4 == 92160  # 0.09 MB in Table 1
    kept = create_model("proto", query_dim=6, video_dim=5).eval().encode_videos(batch.videos)
    assert kept.unit_attention[0].numel() * 4 == 3840


def test_scoring_reads_no_decoder(plain, batch):
    before = fused(plain, batch)
    for branch in (plain.clip_branch, plain.frame_branch):
        for decoder in (branch.word_decoder, branch.frame_decoder):
            for parameter in decoder.parameters():
                parameter.data.fill_(float("nan"))
    assert torch.equal(fused(plain, batch), before)


def test_attention_on_clips_is_dealt_out_to_their_units():
    # Four units, ten clips; all attention on clip (2, 3) and a half each on (1, 2) and (0..3).
    shares = torch.zeros(1, 2, 10)
    shares[0, 0, 6] = 1.0
    shares[0, 1, 5], shares[0, 1, 9] = 0.5, 0.5
    units = unit_shares(shares, 4)
    assert units.tolist() == [[[0.0, 0.0, 0.5, 0.5], [0.125, 0.375, 0.375, 0.125]]]


def test_both_halves_of_a_joined_video_share_all_attention(model, batch):
    joined = joined_videos(batch.videos, 1, max_frames=SIZES["max_frames"])
    read = model.read(joined)
    for attention, length in ((read.on_units, 32), (read.on_frames, SIZES["max_frames"])):
        assert attention.shape[-1] == length
        assert torch.allclose(attention.sum(-1), torch.ones(()), atol=1e-6)


def test_a_query_counts_in_the_two_joined_videos_that_hold_its_own():
    num_videos, index = 5, torch.tensor([0, 0, 3, 4])
    for shift in range(1, num_videos):
        pairs = pairing(index, shift, num_videos)
        for row, (mixed, is_first) in enumerate(zip(pairs.mixed.tolist(), pairs.is_first.tolist(), strict=True)):
            held = mixed if is_first else (mixed + shift) % num_videos
            assert held == index[row % 4]


def test_joined_videos_hold_the_two_videos_in_order():
    rows = torch.eye(6)[:, None].expand(6, 8, 6)[:3]  # three videos of eight equal rows
    mask = torch.ones(3, 8, dtype=torch.bool)
    joined = joined_videos(VideoBatch(clips=rows[:, :4], frames=rows, frame_mask=mask), 2, max_frames=5)
    shown = joined.frames.argmax(-1)
    assert shown.tolist() == [[0, 0, 0, 2, 2], [1, 1, 1, 0, 0], [2, 2, 2, 1, 1]]
    assert joined.clips.argmax(-1).tolist() == [[0, 0, 2, 2], [1, 1, 0, 0], [2, 2, 1, 1]]
    assert joined.frame_mask.all()
    assert [first_part(length) for length in (4, 5, 128)] == [2, 3, 64]


def test_faster_play_averages_neighbours_loses_no_row_and_repeats_in_short_videos():
    rows = torch.zeros(2, 5, 5)
    rows[0] = torch.eye(5)
    rows[1, 0, 0] = 1.0
    fast = played_faster(rows, torch.tensor([5, 1]), 3)
    # Bounds round(0, 5/3, 10/3, 5) = 0, 2, 3, 5; a mean of two unit vectors has entries 1 / sqrt(2) at unit length.
    half = 1 / math.sqrt(2)
    expected = torch.tensor([[half, half, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, half, half]])
    assert torch.allclose(fast[0], expected, atol=1e-4)
    assert torch.allclose(fast[1], torch.eye(5)[:1].expand(3, 5), atol=1e-4)


@pytest.mark.parametrize(("margin", "is_satisfied"), [(0.2, False), (0.99, True)])
def test_guidance_pulls_the_attention_of_the_right_video_only_below_the_margin(batch, margin, is_satisfied):
    torch.manual_seed(0)
    # With flat attention, each half of a joined video gets more than a hundredth of it.
    options = {"guidance_margin": margin, "prototype_sharpness": 0.1}
    model = create_model("proto", **SIZES, init_std=0.3, **options).eval()
    loss = model(batch, draws=Draws(2, torch.Generator().manual_seed(0)))["attention_guidance"]
    assert (loss == 0) == is_satisfied


def test_words_of_a_query_depend_on_its_video_through_the_found_prototype_alone():
    torch.manual_seed(0)
    decoder = WordDecoder(6, 8, 2, 4, 0.3)
    initialise(decoder, 0.3)
    batch = make_batch()
    hidden = torch.tensor([[True, False, False], [True, False, False], [False, True, False], [True, True, False]])
    found = torch.randn(4, 8)
    decoded = decoder(batch.queries.words, batch.queries.mask, hidden, found)
    assert decoded.shape == (5, 6)
    found[3] += 1
    changed = (decoder(batch.queries.words, batch.queries.mask, hidden, found) - decoded).abs().sum(-1) > 1e-4
    assert changed.tolist() == [False, False, False, True, True]


def test_a_hidden_word_is_not_seen():
    torch.manual_seed(0)
    decoder = WordDecoder(6, 8, 2, 4, 0.3)
    initialise(decoder, 0.3)
    words, mask = torch.randn(1, 3, 6), torch.ones(1, 3, dtype=torch.bool)
    hidden, found = torch.tensor([[False, True, False]]), torch.randn(1, 8)
    decoded = decoder(words, mask, hidden, found)
    words[0, 1] += 5
    assert torch.equal(decoder(words, mask, hidden, found), decoded)
    words[0, 0] += 5
    assert not torch.allclose(decoder(words, mask, hidden, found), decoded, atol=1e-4)


def test_the_frame_decoder_equals_its_plain_form():
    torch.manual_seed(0)
    decoder = FrameDecoder(8, 5, 9, "broadcast")
    prototypes = torch.randn(2, 3, 8)
    rows = prototypes[:, None] + decoder.positions.weight[:7][:, None]
    hidden = decoder.layer2(decoder.layer1(rows).relu()).relu()
    plain = (decoder.logit(hidden).softmax(2) * decoder.output(hidden)).sum(2)
    assert torch.allclose(decoder(prototypes, 7), plain, atol=1e-6)


def test_moments_come_from_the_units_that_the_prototypes_read(plain, batch):
    videos = plain.encode_videos(batch.videos)
    units, mask = plain.timeline(videos)
    assert units.shape == (3, 32, 8)
    assert mask is None
    only = dataclasses.replace(videos, unit_attention=torch.zeros(3, 32, 30).index_fill(2, torch.tensor([4]), 1.0))
    assert torch.allclose(plain.timeline(only)[0], videos.clips[:, 4:5].expand(3, 32, 8))
    with pytest.raises(ConfigError, match="keep_attention=true"):
        plain.timeline(dataclasses.replace(videos, unit_attention=None))


@pytest.fixture(params=[128, 384])
def sizes(request):
    return {"query_dim": 10, "video_dim": 12, "dim": request.param, "max_frames": 16, "max_words": 3}


@pytest.mark.parametrize("iterations", [1, 6])
def test_prototypes_start_with_the_scale_of_the_clips_of_other_methods(sizes, iterations):
    batch = videos_of_two_events(num_clips=32)
    starts = {}
    for name, options in (("ms_sl", {}), ("gmmformer", {}), ("proto", {"iterations": iterations})):
        torch.manual_seed(0)
        model = create_model(name, **sizes, **options).eval()
        with torch.no_grad():
            length = clips_of(model.encode_videos(batch.videos)).norm(dim=-1).mean().item()
            starts[name] = (length, model(batch, draws=Draws())["clip_nce"].item())
    for mine, *others in zip(starts["proto"], starts["ms_sl"], starts["gmmformer"], strict=True):
        assert 0.5 * min(others) < mine < 2 * max(others)


def test_parameters_at_the_sizes_of_tvr():
    model = create_model("proto", query_dim=768, video_dim=3072)
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    decoders = sum(count(b.word_decoder) + count(b.frame_decoder) for b in (model.clip_branch, model.frame_branch))
    assert count(model) - decoders == 5_139_072  # the parameters that a search needs; the paper gives no number
    assert count(create_model("proto", query_dim=768, video_dim=3072, iterations=1)) == count(model)


def videos_of_two_events(num_videos=6, seed=0, num_clips=8):
    """Each video shows one event and then another; its two queries are words for them in another space."""
    generator = torch.Generator().manual_seed(seed)
    events = F.normalize(torch.randn(2 * num_videos, 12, generator=generator), dim=-1)
    words = F.normalize(events @ torch.randn(12, 10, generator=generator), dim=-1)
    frames = events.view(num_videos, 2, 1, 12).expand(-1, -1, 8, -1).reshape(num_videos, 16, 12)
    clips = frames.unflatten(1, (8, 2)).mean(2).repeat_interleave(num_clips // 8, dim=1)
    return TrainingBatch(
        queries=QueryBatch(words=words[:, None].expand(-1, 3, -1), mask=torch.ones(len(words), 3).bool()),
        videos=VideoBatch(clips=clips, frames=frames, frame_mask=torch.ones(frames.shape[:2]).bool()),
        video_index=torch.arange(num_videos).repeat_interleave(2),
    )


def train_on_two_events(weights):
    """Train a small model for 50 steps; return it and the terms of each step."""
    torch.manual_seed(0)
    sizes = {"query_dim": 10, "video_dim": 12, "dim": 32, "num_clips": 8, "max_frames": 16, "max_words": 3}
    options = {"num_prototypes": 4, "iterations": 2, "dropout": 0.0, "input_dropout": 0.0, "init_std": 0.1}
    model = create_model("proto", **sizes, **options)
    optimizer = BertAdam(parameter_groups(model), lr=2e-3)
    course = []
    for step in range(50):
        terms = model(videos_of_two_events(), draws=Draws(generator=torch.Generator().manual_seed(step)))
        optimizer.zero_grad()
        total_loss(terms, dict.fromkeys(terms, 0.0) | weights).backward()
        optimizer.step()
        course.append({name: term.item() for name, term in terms.items()})
    return model, course


def test_it_learns_to_find_videos_of_two_events():
    model, _ = train_on_two_events(load_preset("proto", "tvr").weights)
    batch = videos_of_two_events()
    assert (fused(model, batch).argmax(1) == batch.video_index).all()


@pytest.mark.parametrize("name", OWN)
def test_each_auxiliary_loss_falls_when_it_is_trained_alone(name):
    _, course = train_on_two_events({name: 1.0})
    assert sum(terms[name] for terms in course[-10:]) / 10 < 0.7 * course[0][name]
