import math

import torch

from untrimmed.nn.init import initialise
from untrimmed.nn.order_pooling import OrderPooling


def pooling():
    torch.manual_seed(0)
    made = OrderPooling()
    initialise(made, std=0.3)
    for name, parameter in made.gru.named_parameters():
        if name.startswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def test_features_are_sorted_independently_in_descending_order():
    made = pooling()
    x = torch.randn(2, 5, 3)
    weights = made.weights(5)
    for n in range(2):
        for d in range(3):
            ranked = sorted(x[n, :, d].tolist(), reverse=True)
            expected = sum(w * value for w, value in zip(weights.tolist(), ranked, strict=True))
            assert abs(made(x)[n, d].item() - expected) < 1e-5
    assert torch.equal(made(x[:, torch.randperm(5)]), made(x))


def test_recurrent_weights_are_drawn_as_released_and_kept_by_initialise():
    torch.manual_seed(0)
    made = OrderPooling()
    before = {name: tensor.clone() for name, tensor in made.gru.state_dict().items()}
    initialise(made)
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.gru.state_dict().items())
    for end in ("", "_reverse"):
        hidden = getattr(made.gru, f"weight_hh_l0{end}")
        assert torch.allclose(hidden.T @ hidden, torch.eye(32), atol=1e-5)
        assert getattr(made.gru, f"weight_ih_l0{end}").abs().max() <= math.sqrt(6 / 128)
        assert not getattr(made.gru, f"bias_ih_l0{end}").any()
        assert not getattr(made.gru, f"bias_hh_l0{end}").any()
