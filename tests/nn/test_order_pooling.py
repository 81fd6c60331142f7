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


def by_hand(gru, rows, end):
    """The recurrent equations as DreamPRVR's page writes them, in one direction."""
    w_in, w_hidden, b_in, b_hidden = (
        getattr(gru, f"{name}_l0{end}").chunk(3) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state, outputs = torch.zeros(32), []
    for x in rows:
        of_x, of_state = (
            [w @ vector + b for w, b in zip(weights, biases, strict=True)]
            for weights, biases, vector in ((w_in, b_in, x), (w_hidden, b_hidden, state))
        )
        reset, update = ((of_x[i] + of_state[i]).sigmoid() for i in (0, 1))
        state = (1 - update) * (of_x[2] + reset * of_state[2]).tanh() + update * state
        outputs.append(state)
    return torch.stack(outputs)


def test_weights_follow_the_equations():
    made, length = pooling(), 7
    positions = torch.zeros(length, 32)
    for p in range(length):
        for i in range(16):
            angle = p * 10000 ** (-2 * i / 32)
            positions[p, 2 * i], positions[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    forward = by_hand(made.gru, positions, "")
    backward = by_hand(made.gru, positions.flip(0), "_reverse").flip(0)
    expected = (((forward + backward) / 2) @ made.score.weight[0] / 0.1).softmax(dim=0)
    assert torch.allclose(made.weights(length), expected, atol=1e-6)
    assert abs(made.weights(length).sum().item() - 1) < 1e-6


def test_each_feature_is_sorted_by_itself_the_largest_first():
    made = pooling()
    x = torch.randn(2, 5, 3)
    weights = made.weights(5)
    for n in range(2):
        for d in range(3):
            ranked = sorted(x[n, :, d].tolist(), reverse=True)
            expected = sum(w * value for w, value in zip(weights.tolist(), ranked, strict=True))
            assert abs(made(x)[n, d].item() - expected) < 1e-5
    assert torch.equal(made(x[:, torch.randperm(5)]), made(x))


def test_recurrent_weights_are_drawn_as_released_and_left_alone_by_the_others_draw():
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
