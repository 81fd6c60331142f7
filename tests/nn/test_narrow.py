import pytest
import torch

from untrimmed.nn import narrow
from untrimmed.nn.attention import TokenAttention
from untrimmed.nn.blocks import ParallelLayers


@pytest.fixture(params=[True, False], ids=["as available", "without a fused linear map"])
def fused(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(narrow, "_has_fused_linear", lambda: False)


def layers_of(**settings):
    torch.manual_seed(0)
    layers = ParallelLayers(8, 2, 0.1, widths=(0.5, 3.0), output_map=False, ffn_ratio=4, skip_padding=True, **settings)
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layers.eval()


@torch.no_grad()
def test_layers_in_bfloat16_are_those_of_float32_but_for_rounding(fused, monkeypatch):
    monkeypatch.setattr(narrow, "ROWS", 4)
    layers, x = layers_of(), torch.randn(3, 5, 8)
    mask = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    wide = layers(x, mask)
    with torch.autocast("cpu", torch.bfloat16):
        found = layers(x, mask)
    assert found.dtype == torch.float32
    assert 0 < (found - wide)[:, mask].abs().max() < 0.1


def test_training_and_float32_do_not_use_narrow_layers(monkeypatch):
    monkeypatch.setattr(narrow, "after_attention", None)
    layers, x = layers_of(), torch.randn(3, 5, 8)
    layers.train()(x).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        layers.train()(x).sum().backward()
    with torch.no_grad():
        layers.eval()(x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError):
        layers(x)


@pytest.mark.parametrize("relu", [True, False])
def test_a_linear_map_in_bfloat16_is_close_to_float32(fused, relu):
    x, weight, bias = torch.randn(3, 8), torch.randn(4, 8), torch.randn(4)
    wide = torch.nn.functional.linear(x, weight, bias)
    found = narrow.linear(x, weight, bias, relu=relu)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide.relu() if relu else wide, rtol=0.02, atol=0.1)


@torch.no_grad()
def test_token_attention_in_bfloat16_is_close_to_float32():
    torch.manual_seed(0)
    attention, x, token = TokenAttention(8, 2, 0.0).eval(), torch.randn(3, 5, 8), torch.randn(8)
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(token, x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, attention(token, x), rtol=0.02, atol=0.02)
