"""The networks against another implementation, other names of the same weights, and files that do not fit."""

import math

import pytest
import torch

from tests.refusals import refused
from tests.tiny_features import I3D_DIM, RESNET_DIM, SLOWFAST_DIM, i3d_state, resnet_state, slowfast_state
from untrimmed.encoders.features.i3d import I3D, Unit
from untrimmed.encoders.features.kinds import NetworkSpec
from untrimmed.encoders.features.resnet import ResNet
from untrimmed.encoders.features.slowfast import SlowFast
from untrimmed.encoders.features.weights import WeightFiles, find_weights, read_state
from untrimmed.errors import EncoderError


@torch.inference_mode()
def test_resnet_gives_the_numbers_of_transformers():
    from transformers import ResNetConfig, ResNetModel

    state = resnet_state()
    config = ResNetConfig(embedding_size=4, hidden_sizes=[RESNET_DIM] * 4, depths=[3, 8, 36, 3])
    config.layer_type = "bottleneck"
    theirs = ResNetModel(config).eval()
    own = theirs.state_dict()  # its blocks are a quarter as wide as their output: 8 / 4 = 2
    parts = {"conv": "convolution", "bn": "normalization"}
    for key, value in state.items():
        if key.startswith("fc."):
            continue
        names = key.split(".")
        if names[0] in ("conv1", "bn1"):
            name = f"embedder.embedder.{parts[names[0].rstrip('1')]}.{names[1]}"
        elif names[2] == "downsample":
            stage, block = int(names[0][-1]) - 1, names[1]
            kind = "convolution" if names[3] == "0" else "normalization"
            name = f"encoder.stages.{stage}.layers.{block}.shortcut.{kind}.{names[4]}"
        else:
            stage, block, number = int(names[0][-1]) - 1, names[1], int(names[2][-1]) - 1
            name = f"encoder.stages.{stage}.layers.{block}.layer.{number}.{parts[names[2][:-1]]}.{names[3]}"
        assert own[name].shape == value.shape, name
        own[name] = value
    theirs.load_state_dict(own)
    frames = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(5))
    expected = theirs(frames).pooler_output.flatten(1)
    vectors = ResNet(state, name="tiny").eval()(frames)
    assert vectors.shape == (2, RESNET_DIM)
    assert torch.allclose(vectors, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("length", "stride", "expected"),
    # The kernel is 1, 10, 100 and the signal 1, 2, 3, ...: [0] 1 2 | 2 3 4 | 4 5 [0], and 1 2 3 | 3 4 [0].
    [(5, 2, [210, 432, 54]), (4, 2, [321, 43]), (3, 1, [210, 321, 32]), (1, 2, [10])],
)
@torch.inference_mode()
def test_a_unit_of_i3d_is_padded_as_in_tensorflow(length, stride, expected):
    """With SAME padding, the output length is the length / stride, rounded up.

    If the number of zeros is odd, the end gets one more.
    """
    state = {"u.conv3d.weight": torch.zeros(1, 1, 3, 3, 3)}
    unit = Unit(state, "u", stride=stride).eval()
    unit.conv3d.weight.zero_()
    unit.conv3d.weight[0, 0, :, 1, 1] = torch.tensor([1.0, 10.0, 100.0])
    x = torch.arange(1.0, length + 1)[None, None, :, None, None].expand(1, 1, length, 4, 4)
    values = unit(x)[0, 0, :, 0, 0] * math.sqrt(1 + 1e-3)  # the norm's epsilon
    assert values.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("num_frames", [1, 4, 37])
@torch.inference_mode()
def test_i3d_encodes_clips_of_any_length(num_frames):
    vector = I3D(i3d_state(), name="tiny").eval()(torch.randn(num_frames, 3, 64, 64))
    assert vector.shape == (I3D_DIM,)
    assert bool(torch.isfinite(vector).all())


@torch.inference_mode()
def test_slowfast_reads_the_names_of_both_sources():
    state = slowfast_state()
    renamed = {_slowfast_repository_name(key): value for key, value in state.items()}
    assert not renamed.keys() & state.keys()
    clip = torch.randn(32, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    ours = SlowFast(state, name="tiny").eval()(clip)
    assert ours.shape == (SLOWFAST_DIM,)
    assert torch.equal(SlowFast(renamed, name="tiny").eval()(clip), ours)
    assert not torch.allclose(SlowFast(state, name="tiny").eval()(clip.flip(0)), ours)  # it sees the direction of time


def _slowfast_repository_name(key: str) -> str:
    _, number, *rest = key.split(".")
    if number == "6":
        return f"head.projection.{rest[-1]}"
    stage = f"s{int(number) + 1}"
    name = ".".join(rest)
    for path in "01":
        stem = f"{stage}.pathway{path}_stem" if number == "0" else f"{stage}.pathway{path}"
        name = name.replace(f"multipathway_blocks.{path}.res_blocks.", f"{stem}_res")
        name = name.replace(f"multipathway_blocks.{path}", stem)
    name = name.replace("multipathway_fusion", f"{stage}_fuse").replace("conv_fast_to_slow", "conv_f2s")
    name = name.replace("branch1_conv", "branch1").replace("branch1_norm", "branch1_bn")
    for letter in "abc":
        name = name.replace(f"conv_{letter}.", f"{letter}.").replace(f"norm_{letter}.", f"{letter}_bn.")
    return name.replace(".norm.", ".bn.")


def test_the_weights_of_another_network_are_refused():
    with refused(EncoderError, "other.pth", "3, 4, 6, 3", "3, 8, 36, 3"):
        ResNet(resnet_state(blocks=(3, 4, 6, 3)), name="other.pth")
    with refused(EncoderError, "flow.pt", "2", "RGB"):
        I3D(i3d_state(colours=2), name="flow.pt")
    with refused(EncoderError, "other.pyth", "3, 4, 23, 3"):
        SlowFast(slowfast_state(blocks=(3, 4, 23, 3)), name="other.pyth")
    for network, state in ((ResNet, i3d_state()), (I3D, slowfast_state()), (SlowFast, resnet_state())):
        with refused(EncoderError, "other"):
            network(state, name="other")


def test_incomplete_and_damaged_weights_are_refused():
    state = i3d_state()
    del state["Mixed_4c.b1a.bn.running_mean"]
    with refused(EncoderError, "i3d.pt", "1", "Mixed_4c.b1a.bn.running_mean"):
        I3D(state, name="i3d.pt")
    del state["Mixed_4c.b1a.conv3d.weight"]
    with refused(EncoderError, "i3d.pt", "Mixed_4c.b1a.conv3d.weight"):
        I3D(state, name="i3d.pt")
    with refused(EncoderError, "i3d.pt", "Mixed_9.weight"):
        I3D({**i3d_state(), "Mixed_9.weight": torch.zeros(1)}, name="i3d.pt")
    broken = i3d_state()
    broken["Mixed_3b.b0.bn.bias"][0] = torch.nan
    with refused(EncoderError, "i3d.pt", "Mixed_3b.b0.bn.bias", "finite"):
        I3D(broken, name="i3d.pt")


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state"])
def test_checkpoints_of_training_programs_are_unwrapped(wrapper, tmp_path):
    state = {f"module.{key}": value for key, value in i3d_state().items()}
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "i3d.pt")
    read = read_state(WeightFiles("i3d", (tmp_path / "i3d.pt",), ""))
    assert read.keys() == i3d_state().keys()


class _Code:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_a_file_that_could_run_code_is_refused(tmp_path, capsys):
    path = tmp_path / "i3d.pt"
    torch.save({"state_dict": i3d_state(), "extra": _Code()}, path)
    with refused(EncoderError, str(path), "code"):
        read_state(WeightFiles("i3d", (path,), ""))
    assert "must not run" not in capsys.readouterr().out
    path.write_bytes(b"no weights")
    with refused(EncoderError, str(path)):
        read_state(WeightFiles("i3d", (path,), ""))
    torch.save([1, 2], path)
    with refused(EncoderError, str(path), "list"):
        read_state(WeightFiles("i3d", (path,), ""))


def test_a_file_is_pinned_by_its_hash(tmp_path):
    import hashlib

    path = tmp_path / "i3d.pt"
    torch.save(i3d_state(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert find_weights(NetworkSpec("i3d", str(path), digest)).sha256 == digest
    with refused(EncoderError, str(path), digest, "0" * 64):
        find_weights(NetworkSpec("i3d", str(path), "0" * 64))


def test_a_kind_without_default_weights_names_the_file_to_pass():
    with refused(EncoderError, "i3d", "i3d=FILE"):
        find_weights(NetworkSpec("i3d"))
    with refused(EncoderError, "slowfast", "slowfast=FILE"):
        find_weights(NetworkSpec("slowfast"))
    with refused(EncoderError, "/no/such/file.pt"):
        find_weights(NetworkSpec("i3d", "/no/such/file.pt"))
