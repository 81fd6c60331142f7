import math

import pytest
import torch
import torch.nn.functional as F

from untrimmed.nn.attention import AttentionPooling, KeyValueCache, StackedSelfAttention, TokenAttention, stacked_dims
from untrimmed.nn.init import initialise
from untrimmed.nn.window import constraint_windows

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def one_by_one(attention: StackedSelfAttention, x: torch.Tensor, windows: torch.Tensor | None) -> torch.Tensor:
    """The textbook form: block by block, head by head."""
    heads, width = attention.num_heads, x.shape[-1] // attention.num_heads
    outputs = []
    for k in range(attention.weight.shape[1]):
        q, key, v = (F.linear(x, attention.weight[i, k], attention.bias[i, k]) for i in range(3))
        joined = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            logits = q[..., part] @ key[..., part].transpose(1, 2) / math.sqrt(width)
            logits = logits if windows is None else logits * windows[k]
            logits = logits + (~MASK)[:, None, :] * -10000.0
            joined.append(logits.softmax(-1) @ v[..., part])
        outputs.append(torch.cat(joined, dim=-1))
    return torch.stack(outputs)


def test_stacked_attention_equals_its_blocks_one_by_one():
    torch.manual_seed(0)
    attention = StackedSelfAttention(3, 8, 2, dropout=0.0)
    initialise(attention, std=0.5)
    torch.nn.init.normal_(attention.bias)
    windows = constraint_windows(5, [math.inf, 1.0, 0.1])
    for w in (None, windows):
        assert torch.allclose(attention(X, w, MASK), one_by_one(attention, X, w), atol=1e-6)


def test_the_same_input_for_each_block_may_be_given_one_by_one():
    attention = StackedSelfAttention(3, 8, 2, dropout=0.0)
    initialise(attention, std=0.5)
    assert torch.allclose(attention(X.expand(3, *X.shape), None, MASK), attention(X, None, MASK), atol=1e-6)


def test_masked_keys_change_nothing():
    attention = StackedSelfAttention(1, 8, 2, dropout=0.0)
    initialise(attention, std=0.5)
    altered = X.clone()
    altered[1, 3:] = 50.0
    assert torch.equal(attention(altered, None, MASK)[:, 1, :3], attention(X, None, MASK)[:, 1, :3])


def test_dropout_on_token_attention_scales_the_value_bias_too():
    attention = TokenAttention(8, 2, dropout=0.0)
    initialise(attention)
    torch.nn.init.ones_(attention.value.bias)
    torch.nn.init.zeros_(attention.value.weight)
    attention.dropout = torch.nn.Threshold(1e9, 0.25)  # every weight becomes 1/4: five of them add up to 1.25
    assert torch.allclose(attention(torch.zeros(8), X), torch.full((2, 8), 1.25))


def test_pooling_reads_real_rows_only_and_one_row_is_itself():
    pooling = AttentionPooling(8)
    altered = X.clone()
    altered[1, 3:] = 50.0
    assert torch.equal(pooling(altered, MASK)[1], pooling(X, MASK)[1])
    assert torch.allclose(pooling(X[:, :1], MASK[:, :1]), X[:, 0])


def test_stacked_dims_counts_the_leading_axes_of_parameters():
    attention = StackedSelfAttention(3, 8, 2, dropout=0.0)
    assert stacked_dims(attention, "weight") == 2
    assert stacked_dims(torch.nn.Linear(2, 2), "weight") == 0


def test_cached_attention_equals_plain_attention_with_gradients():
    query, key, value = (torch.randn(2, 3, rows, 4, dtype=torch.float64, requires_grad=True) for rows in (5, 7, 7))
    mask = torch.arange(7) < torch.tensor([7, 3])[:, None]
    plain = (query @ key.transpose(-1, -2)).masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1)
    outcomes = []
    for read, weights in (KeyValueCache.of(key, value, mask).attend(query), (plain @ value, plain)):
        loss = read.sin().sum() + weights.square().sum()
        outcomes.append((read, weights, *torch.autograd.grad(loss, (query, key, value))))
    for ours, theirs in zip(*outcomes, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("windowed", [True, False])
def test_the_fused_kernel_gives_the_same_output_and_gradients(count, windowed, monkeypatch):
    torch.manual_seed(0)
    attention = StackedSelfAttention(count, 8, 2, dropout=0.1).eval().double()
    initialise(attention, std=0.5)
    windows = constraint_windows(5, [1.0] * count).double() if windowed else None
    calls, kernel = [], F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *given: calls.append(1) or kernel(*given))
    for mask in (None, MASK):
        outcomes = []
        for on_cpu in (True, False):
            monkeypatch.setattr("untrimmed.nn.attention.is_eager_cpu", lambda x, on_cpu=on_cpu: on_cpu)
            x = X.double().requires_grad_()
            read = attention(x, windows, mask)
            outcomes.append((read, *torch.autograd.grad(read.sin().sum(), (x, *attention.parameters()))))
        for plain, fused in zip(*outcomes, strict=True):
            assert torch.allclose(plain, fused, atol=1e-12)
    assert len(calls) == (0 if windowed else 2)


def test_the_fused_kernel_applies_dropout_and_is_finite_for_empty_sequences(monkeypatch):
    monkeypatch.setattr("untrimmed.nn.attention.is_eager_cpu", lambda x: False)
    attention = StackedSelfAttention(1, 8, 2, dropout=0.5)
    initialise(attention, std=0.5)
    assert not torch.equal(attention(X), attention(X))
    assert attention(X, None, torch.zeros_like(MASK)).isfinite().all()
    assert torch.equal(attention.eval()(X), attention(X))


def test_extra_rows_are_attended_like_rows_of_the_sequence_without_window():
    torch.manual_seed(0)
    attention = StackedSelfAttention(3, 8, 2, dropout=0.0)
    initialise(attention, std=0.5)
    torch.nn.init.normal_(attention.bias)
    beside = torch.randn(2, 4, 8)
    windows = constraint_windows(5, [math.inf, 1.0, 0.1])
    wide = torch.ones(3, 9, 9)
    wide[:, :5, :5] = windows
    joined, mask = torch.cat([X, beside], dim=1), F.pad(MASK, (0, 4), value=True)
    for own, of_all in ((None, None), (windows, wide)):
        expected = attention(joined, of_all, mask)[:, :, :5]
        assert torch.allclose(attention(X, own, MASK, beside), expected, atol=1e-6)
        one_by_one_of_blocks = attention(X.expand(3, *X.shape), own, MASK, beside.expand(3, *beside.shape))
        assert torch.allclose(one_by_one_of_blocks, expected, atol=1e-6)
    assert torch.allclose(attention(X, None, None, beside), attention(joined, None, None)[:, :, :5], atol=1e-6)
