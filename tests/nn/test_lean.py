"""The memory-saving functions give the same results and gradients as the plain operations, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F

from untrimmed.nn import lean
from untrimmed.nn.blocks import ParallelLayers
from untrimmed.nn.init import initialise
from untrimmed.nn.packing import packing_of
from untrimmed.nn.tower import InputLayer, Tower

K, M, D, HIDDEN = 3, 11, 6, 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(lean, "PIECE", 8)


@pytest.fixture
def masks(monkeypatch):
    """The masks that are drawn, in order."""
    drawn = []
    draw = lean.keep_mask
    monkeypatch.setattr(lean, "keep_mask", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    return drawn


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def gradients(out, inputs):
    weights = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((out * weights).sum(), inputs)


def assert_same(ours, theirs, inputs, atol=1e-12):
    assert torch.allclose(ours, theirs, atol=atol)
    for a, b in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        assert torch.allclose(a, b, atol=atol)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_feed_forward_equals_the_plain_layers(p, masks):
    inputs = normal(K, M, D), normal(K, HIDDEN, D), normal(K, HIDDEN), normal(K, D, HIDDEN), normal(K, D)
    x, weight1, bias1, weight2, bias2 = inputs
    ours = lean.feed_forward(*inputs, p)
    hidden = torch.baddbmm(bias1[:, None], x, weight1.transpose(1, 2)).relu()
    if p:
        hidden = hidden * torch.cat(masks).view(K, M, HIDDEN) / (1 - p)
    assert_same(ours, torch.baddbmm(bias2[:, None], hidden, weight2.transpose(1, 2)), inputs)


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("shared", [True, False])
def test_residual_and_norm_equal_the_plain_layers(p, shared, masks):
    x = normal(M, D) if shared else normal(K, M, D)
    y, gain, bias = normal(K, M, D), normal(K, D), normal(K, D)
    ours = lean.add_norm(x, y, gain, bias, p)
    kept = y * masks[0] / (1 - p) if p else y
    theirs = F.layer_norm(x + kept, (D,)) * gain[:, None] + bias[:, None]
    assert_same(ours, theirs, (x, y, gain, bias))


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("rows", [None, [0, 3, 4, 9]])
def test_input_projection_equals_the_plain_layers(p, rows, masks):
    x = torch.randn(M, D, dtype=torch.float64)
    layer = InputLayer(D, 4, p).double()
    torch.nn.init.normal_(layer.norm.weight)
    torch.nn.init.normal_(layer.norm.bias)
    index = None if rows is None else torch.tensor(rows)
    ours = lean.input_projection(x, index, layer.norm, layer.linear, p)
    kept = layer.norm(x if rows is None else x[rows])
    if p:
        kept = kept * masks[0] / (1 - p)
    assert_same(ours, layer.linear(kept).relu(), tuple(layer.parameters()))


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("windowed", [True, False])
def test_self_attention_of_sequences_of_different_length(p, windowed, masks, monkeypatch):
    monkeypatch.setattr(lean, "PIECE", 2 * 4 * 16 if windowed else 1)
    lengths, heads, width = [4, 2, 4, 1], 2, 3
    packing = packing_of(4, 4, torch.arange(4) < torch.tensor(lengths)[:, None], torch.device("cpu"))
    joint = normal(sum(lengths), 3, K, heads, width)
    windows = torch.rand(K, 4, 4, dtype=torch.float64) if windowed else None
    ours = lean.self_attention(joint, windows, packing.groups, p)
    pieces = lean._attention_batches(packing.groups, K * heads)
    kept = {}
    for place, rows in enumerate(pieces):
        for n, sequence in enumerate(rows):
            kept[int(sequence[0])] = masks[place][n] if p else 1
    parts, start = [], 0
    for length in lengths:
        query, key, value = (joint[start : start + length, i].permute(1, 2, 0, 3) for i in range(3))
        logits = query @ key.transpose(-1, -2) / math.sqrt(width)
        if windows is not None:
            logits = logits * windows[:, None, :length, :length]
        weights = logits.softmax(dim=-1) * kept[start] / (1 - p)
        parts.append((weights @ value).transpose(1, 2).flatten(2))
        start += length
    assert_same(ours, torch.cat(parts, dim=1), (joint,))


def test_relu_of_bfloat16_is_that_of_torch_for_every_number_and_keeps_nan():
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    ours, theirs = lean._relu_(every.clone()), every.relu()
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    x = torch.zeros(1, 2, D)
    x[0, 0, :2] = torch.tensor([math.inf, -math.inf])  # their difference is a NaN with the bit of a sign: 0xFFC0
    weights = torch.ones(1, HIDDEN, D), torch.zeros(1, HIDDEN), torch.ones(1, D, HIDDEN), torch.zeros(1, D)
    with torch.autocast("cpu", torch.bfloat16):
        out = lean.feed_forward(x, *weights, 0.0)
    assert out.isnan().tolist() == [[[True] * D, [False] * D]]


def test_under_autocast_gradients_of_biases_are_sums_in_float32(monkeypatch):
    """Of 1, and of 2^-12 that bfloat16 would lose beside it."""
    monkeypatch.setattr(lean, "PIECE", 2**20)
    x = torch.ones(1, 2, D)
    weights = torch.ones(1, HIDDEN, D), torch.zeros(1, HIDDEN), torch.ones(1, D, HIDDEN) / D, torch.zeros(1, D)
    inputs = [weight.requires_grad_() for weight in weights]
    layer = InputLayer(D, 4, 0.0)
    torch.nn.init.ones_(layer.norm.bias)
    torch.nn.init.ones_(layer.linear.weight)
    with torch.autocast("cpu", torch.bfloat16):
        out = lean.feed_forward(x, *inputs, 0.0)
        projected = lean.input_projection(torch.randn(2, D), None, layer.norm, layer.linear, 0.0)
    incoming = torch.tensor([1.0, 2**-12])[:, None]
    bias1, bias2 = torch.autograd.grad(out, inputs[1::2], incoming.bfloat16().expand(1, 2, D))
    (bias,) = torch.autograd.grad(projected, [layer.linear.bias], incoming.expand(2, 4))
    for gradient in (bias2, bias):
        assert torch.equal(gradient, torch.full_like(gradient, 1 + 2**-12))
    assert not torch.equal(bias1, bias1.bfloat16().float())


def layers_of(skip_padding, **settings):
    torch.manual_seed(3)
    layers = ParallelLayers(8, 2, 0.0, widths=(math.inf, 0.5), skip_padding=skip_padding, **settings).double()
    initialise(layers, 0.5)
    return layers


@pytest.mark.parametrize("settings", [{"output_map": True}, {"output_map": False, "ffn_ratio": 2}])
def test_layers_that_skip_padding_give_the_same_rows_and_gradients(settings):
    x = normal(3, 5, 8)
    mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    skipping, plain = layers_of(True, **settings), layers_of(False, **settings)
    ours, theirs = skipping(x, mask), plain(x, mask) * mask[..., None]
    assert torch.allclose(ours, theirs)
    for ours_parameter, theirs_parameter in zip(skipping.parameters(), plain.parameters(), strict=True):
        a, b = (
            torch.autograd.grad(out.square().sum(), parameter, retain_graph=True)[0]
            for out, parameter in ((ours, ours_parameter), (theirs, theirs_parameter))
        )
        assert torch.allclose(a, b)


def test_masks_with_holes_and_empty_sequences_use_plain_attention():
    x = normal(2, 4, 8)
    for mask in ([[1, 0, 1, 1], [1, 1, 0, 0]], [[1, 1, 1, 1], [0, 0, 0, 0]]):
        mask = torch.tensor(mask, dtype=torch.bool)
        assert packing_of(2, 4, mask, x.device) is None
        ours = layers_of(True, output_map=True)(x, mask)
        assert torch.allclose(ours, layers_of(False, output_map=True)(x, mask))


def test_a_tower_that_skips_padding_gives_the_same_rows():
    features, mask = torch.randn(3, 5, 7), torch.arange(5) < torch.tensor([2, 5, 4])[:, None]
    towers = []
    for skip_padding in (True, False):
        torch.manual_seed(0)
        tower = Tower(7, 8, 5, 0.0, skip_padding=skip_padding)
        initialise(tower, 0.5)
        towers.append(tower(features, mask) * mask[..., None])
    assert torch.allclose(*towers, atol=1e-6)


def test_padding_skipped_in_training_is_computed_in_evaluation():
    features, mask = torch.randn(2, 4, 7), torch.arange(4) < torch.tensor([2, 4])[:, None]
    tower = Tower(7, 8, 4, 0.0, skip_padding="training")
    initialise(tower, 0.5)
    trained, evaluated = tower(features, mask), tower.eval()(features, mask)
    assert torch.allclose(trained[mask], evaluated[mask], atol=1e-6)
    assert not torch.allclose(trained[~mask], evaluated[~mask], atol=1e-2)


def test_outputs_are_equal_without_gradients():
    layers, x = layers_of(True, output_map=False, ffn_ratio=2), normal(2, 4, 8)
    with torch.no_grad():
        silent = layers(x)
    with torch.inference_mode():
        assert torch.equal(layers(x), silent)
    assert torch.equal(layers(x), silent)


@pytest.mark.parametrize("settings", [{"output_map": True}, {"output_map": False, "ffn_ratio": 2}])
def test_under_autocast_layers_and_gradients_stay_near_those_in_float32(settings):
    layers = layers_of(True, **settings).float()
    tower = Tower(7, 8, 5, 0.0, skip_padding=True)
    features, mask = torch.randn(3, 5, 7), torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    outcomes = []
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = layers(tower(features, mask), mask).float() * mask[..., None]
        parameters = (*tower.parameters(), *layers.parameters())
        outcomes.append([out.detach(), *torch.autograd.grad(out.sin().sum(), parameters)])
    for exact, rough in zip(*outcomes, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - exact).norm() <= 0.05 * exact.norm() + 1e-3
    assert not torch.equal(outcomes[0][0], outcomes[1][0])
