import math

import pytest
import torch

from untrimmed.nn.aggregation import DynamicAggregation, TemporalConsolidation, aggregation, reads_token
from untrimmed.nn.attention import TokenAttention
from untrimmed.nn.blocks import GaussianBlock, ParallelLayers, TransformerLayer
from untrimmed.nn.init import initialise

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
KINDS = ("mean", "weighted", "dynamic", "consolidation")


def layers(widths=(math.inf, 1.0, 0.5), **settings) -> ParallelLayers:
    torch.manual_seed(0)
    made = ParallelLayers(8, 2, 0.0, widths=widths, **({"output_map": False, "ffn_ratio": 4} | settings))
    initialise(made, std=0.3)
    return made.eval()


def block(kind: str, widths=(math.inf, 1.0, 0.5)) -> GaussianBlock:
    join = aggregation(kind, num_layers=len(widths), length=6, dim=8, num_heads=2, dropout=0.0, temperature=0.5)
    initialise(join, std=0.3)
    return GaussianBlock(layers(widths, window_length=6), join).eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("output_map", "ffn_ratio"), [(True, 0), (False, 4), (True, 4)])
def test_layers_side_by_side_equal_each_alone(norm, output_map, ffn_ratio):
    together = layers(output_map=output_map, ffn_ratio=ffn_ratio, norm=norm)
    outputs = together(X, MASK)
    for k, width in enumerate((math.inf, 1.0, 0.5)):
        alone = layers((width,), output_map=output_map, ffn_ratio=ffn_ratio, norm=norm)
        state = {}
        for name, tensor in together.state_dict().items():
            axis = 1 if name.startswith("attention.") else 0
            state[name] = tensor.narrow(axis, k, 1)
        alone.load_state_dict(state)
        assert torch.allclose(alone(X, MASK)[0], outputs[k], atol=1e-5)


def test_post_norm_leaves_normalised_rows_and_pre_norm_does_not():
    post, pre = layers(norm="post")(X), layers(norm="pre")(X)
    assert post.mean(-1).abs().max() < 1e-6
    assert pre.mean(-1).abs().max() > 1e-2


def test_a_fixed_window_length_makes_a_sequence_independent_of_padding():
    fixed, free = layers(window_length=7), layers()
    padded = torch.cat([X, torch.randn(2, 2, 8)], dim=1)
    mask = torch.tensor([[True] * 5 + [False] * 2] * 2)
    assert torch.allclose(fixed(padded, mask)[:, :, :5], fixed(X), atol=1e-6)
    assert not torch.allclose(free(padded, mask)[:, :, :5], free(X), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_aggregation_is_a_convex_mix_of_the_layers(kind):
    made = block(kind)
    token = torch.randn(8) if reads_token(kind) else None
    outputs, mixed = made.layers(X, MASK), made(X, MASK, token)
    assert mixed.shape == X.shape
    assert (mixed <= outputs.max(dim=0).values + 1e-6).all()
    assert (mixed >= outputs.min(dim=0).values - 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_aggregation_of_one_layer_returns_it_unchanged(kind):
    made = block(kind, widths=(1.0,))
    token = torch.randn(8) if reads_token(kind) else None
    assert torch.allclose(made(X, MASK, token), made.layers(X, MASK)[0], atol=1e-6)


def test_consolidation_weighs_time_points_differently_and_dynamic_does_not():
    for kind, varies in (("consolidation", True), ("dynamic", False)):
        made = block(kind, widths=(math.inf, 1.0))
        token, outputs = torch.randn(8), made.layers(X)
        mixed = made(X, None, token)
        share = ((mixed - outputs[1]) / (outputs[0] - outputs[1])).median(dim=-1).values
        assert (share.std(dim=1).max() > 1e-3) == varies


def test_the_papers_weights_are_attention_and_one_map_by_hand():
    torch.manual_seed(0)
    join = TemporalConsolidation(6, 8, 2, 0.0, 0.5, generator="paper").eval()
    token, outputs = torch.randn(8), torch.randn(3, 2, 5, 8)
    read = torch.stack([join.reader(token, output, MASK) for output in outputs])
    shares = (read @ join.weights.weight.T + join.weights.bias)[..., :5].div(0.5).softmax(dim=0)
    expected = (shares[..., None] * outputs).sum(dim=0)
    assert torch.allclose(join(outputs, X, MASK, token), expected, atol=1e-6)


def test_the_papers_weight_of_a_video_is_attention_and_one_map_by_hand():
    torch.manual_seed(0)
    join = DynamicAggregation(3, 8, 2, 0.0, 0.5, generator="paper").eval()
    token, outputs = torch.randn(8), torch.randn(3, 2, 5, 8)
    shares = join.weights(join.reader(token, X, MASK)).div(0.5).softmax(dim=-1)
    expected = sum(shares[:, k, None, None] * outputs[k] for k in range(3))
    assert type(join.reader) is TokenAttention
    assert torch.allclose(join(outputs, X, MASK, token), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["dynamic", "consolidation"])
def test_without_a_token_the_mean_of_outputs_with_padding_is_the_token_and_has_a_gradient(kind):
    made = block(kind)
    outputs = made.layers(X, MASK)
    tokens = outputs.mean(dim=(0, 2))
    each = [made(X[n : n + 1], MASK[n : n + 1], token) for n, token in enumerate(tokens)]
    assert torch.allclose(made(X, MASK), torch.cat(each), atol=1e-6)
    padding = outputs.detach().clone()
    padding[:, 1, 3:] += 1.0  # masked rows can change others only through the mean
    padding.requires_grad_()
    joined = made.aggregation(padding, X, MASK)
    assert not torch.allclose(joined[1, :3], made(X, MASK)[1, :3], atol=1e-4)
    joined[1, :3].square().sum().backward()
    assert (padding.grad[:, 1, 3:].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_parameter_of_a_block(kind):
    made = block(kind)
    token = torch.randn(8, requires_grad=True) if reads_token(kind) else None
    made(X, MASK, token).square().sum().backward()
    assert [name for name, p in made.named_parameters() if p.grad is None] == []


def test_a_sequence_of_one_row_works():
    layer = TransformerLayer(8, 2, 0.0, output_map=True)
    initialise(layer)
    assert layer(X[:1, :1], MASK[:1, :1]).shape == (1, 1, 8)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("skip_padding", [False, True])
def test_layers_attend_to_extra_rows_but_do_not_return_them(norm, skip_padding):
    made = layers((math.inf, math.inf), norm=norm, skip_padding=skip_padding)
    beside = torch.randn(2, 3, 8)
    joined, mask = torch.cat([X, beside], dim=1), torch.cat([MASK, torch.ones(2, 3, dtype=torch.bool)], dim=1)
    whole = layers((math.inf, math.inf), norm=norm)(joined, mask)[:, :, :5]
    assert torch.allclose(made(X, MASK, beside)[:, MASK], whole[:, MASK], atol=1e-5)
    assert not torch.allclose(made(X, MASK, beside)[:, MASK], made(X, MASK)[:, MASK], atol=1e-3)


def test_every_layer_of_a_block_attends_to_extra_rows():
    made, beside = block("mean"), torch.randn(2, 3, 8)
    expected = made.layers(X, MASK, beside).mean(dim=0)
    assert torch.allclose(made(X, MASK, extra_rows=beside), expected, atol=1e-6)
