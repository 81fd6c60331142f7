import os
import shutil

import numpy as np
import pytest

from tests.refusals import refused
from tests.tiny_features import I3D_DIM, RESNET_DIM, SLOWFAST_DIM, WORD_DIM
from tests.tiny_models import SHARED_DIM, save_clip
from untrimmed.encoders.hub import weights
from untrimmed.encoders.registry import load_encoder
from untrimmed.errors import ConfigError, EncoderError
from untrimmed.files import file_sha256


def name_of(networks, *kinds):
    return "+".join(f"{kind}={networks[kind]}" for kind in kinds)


@pytest.fixture(scope="module")
def tvr(networks):
    return load_encoder(name_of(networks, "resnet152", "i3d", "roberta"), device="cpu").encoder


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip"))


def noise(num_frames, seed=0, size=(60, 80)):
    return np.random.default_rng(seed).integers(0, 256, (num_frames, *size, 3), dtype=np.uint8)


def encode(encoder, frames, fps, batch_size=8):
    """The vectors and times of a video whose frames are given at the encoder's rate."""
    encoding = encoder.start_video(fps)
    times_s = np.arange(len(frames)) / encoder.rate(fps)
    steps = range(0, len(frames), batch_size)
    results = [encoding.add(times_s[i : i + batch_size], frames[i : i + batch_size]) for i in steps]
    vectors, times_s = zip(*results, encoding.finish(), strict=True)
    return np.concatenate(vectors), np.concatenate(times_s)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_networks_are_joined_as_unit_vectors(tvr, networks):
    fps = 1 / 1.5
    frames = noise(round(3.5 * tvr.rate(fps)))  # three vectors, of which the last covers 0.5 s
    vectors, times_s = encode(tvr, frames, fps)
    assert (tvr.rate(fps), vectors.shape, times_s.tolist()) == (75, (3, RESNET_DIM + I3D_DIM), [0, 1.5, 3])
    pictures, motion = vectors[:, :RESNET_DIM], vectors[:, RESNET_DIM:]
    assert np.allclose(np.linalg.norm(pictures, axis=1), np.sqrt(0.5), atol=1e-6)
    resnet = load_encoder(name_of(networks, "resnet152", "roberta"), device="cpu").encoder
    i3d = load_encoder(name_of(networks, "i3d", "roberta"), device="cpu").encoder
    assert np.allclose(unit(pictures), encode(resnet, frames[::25], fps)[0], atol=1e-5)
    assert np.allclose(unit(motion), encode(i3d, frames[::3], fps)[0], atol=1e-5)


def test_a_vector_of_pictures_is_the_maximum_of_its_frames(networks):
    resnet = load_encoder(name_of(networks, "resnet152", "roberta"), device="cpu").encoder
    (network,) = resnet._networks
    frames = noise(9)
    singles = network.encode([network.prepare(frame[None]) for frame in frames])
    vectors, _ = encode(resnet, frames, 1 / 1.5)
    assert np.allclose(vectors, unit(np.stack([singles[:5].max(axis=0), singles[5:].max(axis=0)])), atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_batches_do_not_change_the_vectors(batch_size, networks):
    slowfast = load_encoder(name_of(networks, "slowfast", "roberta"), device="cpu").encoder
    frames = noise(70)
    vectors, times_s = encode(slowfast, frames, 0.5, batch_size)
    expected, _ = encode(slowfast, frames, 0.5, 16)
    assert (vectors.shape, times_s.tolist()) == ((3, SLOWFAST_DIM), [0, 2, 4])
    assert np.allclose(vectors, expected, atol=1e-6)


def test_the_last_frame_of_a_short_clip_is_repeated(networks):
    slowfast = load_encoder(name_of(networks, "slowfast", "roberta"), device="cpu").encoder
    frames = noise(5)
    padded = np.concatenate([frames, np.repeat(frames[-1:], 27, axis=0)])
    assert np.allclose(encode(slowfast, frames, 0.5)[0], encode(slowfast, padded, 0.5)[0], atol=1e-6)


def test_a_last_vector_needs_a_frame_of_every_network(tvr):
    times_s = encode(tvr, noise(round(1.6 * 75)), 1 / 1.5)[1]  # the next picture would be at 1.667 s
    assert times_s.tolist() == [0]
    assert encode(tvr, noise(1), 1 / 1.5)[1].tolist() == [0]


def test_frames_of_several_sizes_in_one_video(tvr):
    encoding = tvr.start_video(2.0)
    encoding.add(np.arange(10) / 75, noise(10))
    encoding.add(np.arange(10, 20) / 75, noise(10, size=(300, 200)))
    assert encoding.finish()[0].shape == (1, RESNET_DIM + I3D_DIM)


def test_slowfast_with_clip_has_words_of_clip(networks, clip_folder):
    name = f"slowfast={networks['slowfast']}+clip={clip_folder}"
    encoder = load_encoder(name, device="cpu").encoder
    clip = load_encoder(str(clip_folder), device="cpu").encoder
    assert (encoder.frame_dim, encoder.fps) == (SLOWFAST_DIM + SHARED_DIM, 0.5)
    frames = noise(33)
    vectors, _ = encode(encoder, frames, 0.5)
    assert np.allclose(unit(vectors[:, SLOWFAST_DIM:]), clip.encode_frames(frames[[0, 32]]), atol=1e-5)
    (text,) = encoder.encode_texts(["a dog runs"])
    assert np.array_equal(text.words, clip.encode_texts(["a dog runs"])[0].words)
    assert text.sentence.shape == (0,)


def test_clip_alone_is_the_ordinary_encoder(clip_folder):
    encoder = load_encoder(f"clip={clip_folder}", device="cpu").encoder
    ordinary = load_encoder(str(clip_folder), device="cpu").encoder
    assert (encoder.name, encoder.identity) == (ordinary.name, ordinary.identity)
    with refused(EncoderError, str(clip_folder), "0" * 64):
        load_encoder(f"clip={clip_folder}#sha256={'0' * 64}", device="cpu")


def test_weights_of_clip_are_hashed_once(clip_folder, monkeypatch):
    hashed = []
    monkeypatch.setattr(weights, "file_sha256", lambda path: hashed.append(path) or file_sha256(path))
    load_encoder(f"clip={clip_folder}", device="cpu")
    assert len(hashed) == 1


def test_words_are_the_hidden_states_before_the_last_layer(networks):
    import torch
    from transformers import AutoModel, AutoTokenizer

    name = name_of(networks, "resnet152", "roberta")
    encoder = load_encoder(name, device="cpu", precision="float32").encoder  # "auto" is bfloat16 on processors with AMX
    model = AutoModel.from_pretrained(networks["roberta"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(networks["roberta"])
    sentence = "three people sit in a kitchen"
    with torch.inference_mode():
        states = model(**tokenizer(sentence, return_tensors="pt"), output_hidden_states=True).hidden_states
    short, text = encoder.encode_texts(["a dog", sentence])
    assert text.words.shape == (len(text.tokens), WORD_DIM)
    assert np.allclose(text.words, states[-2][0, :-1].numpy(), atol=1e-5)  # the last token is </s>; there is no <s>
    assert np.allclose(short.words, encoder.encode_texts(["a dog"])[0].words, atol=1e-5)
    with refused(ConfigError, "1", "empty"):
        encoder.encode_texts([" "])


def test_a_single_picture_is_a_clip_without_motion(tvr):
    vectors = tvr.encode_frames(noise(3))
    assert vectors.shape == (3, tvr.frame_dim)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert tvr.encode_frames(noise(0)).shape == (0, tvr.frame_dim)


def test_the_name_loads_the_same_encoder_from_another_folder(tvr, networks, monkeypatch):
    folder = networks["i3d"].parent
    monkeypatch.chdir(folder)
    relative = "+".join(f"{kind}={os.path.relpath(networks[kind])}" for kind in ("resnet152", "i3d", "roberta"))
    encoder = load_encoder(relative, device="cpu", images=False).encoder
    assert (encoder.name, encoder.identity) == (tvr.name, tvr.identity)
    monkeypatch.chdir("/")
    assert load_encoder(encoder.name, device="cpu", images=False).encoder.identity == tvr.identity


def test_other_weights_or_another_order_are_another_encoder(tvr, networks, tmp_path):
    swapped = load_encoder(name_of(networks, "i3d", "resnet152", "roberta"), device="cpu", images=False).encoder
    other = shutil.copy(networks["i3d"], tmp_path / "other.pt")
    with open(other, "ab") as file:
        file.write(b"\0")
    changed = name_of({**networks, "i3d": other}, "resnet152", "i3d", "roberta")
    identities = {tvr.identity, swapped.identity, load_encoder(changed, device="cpu", images=False).encoder.identity}
    assert len(identities) == 3


@pytest.mark.parametrize("kind", ["i3d", "clip"])
def test_a_search_needs_no_network_of_frames(kind, networks, clip_folder, tmp_path):
    """Only its hash is computed: the file need not be valid until a frame is encoded."""
    if kind == "clip":
        broken = shutil.copytree(clip_folder, tmp_path / "clip")
        (broken / "model.safetensors").write_bytes(b"broken")
    else:
        broken = tmp_path / "i3d.pt"
        broken.write_bytes(b"broken")
    name = name_of({**networks, kind: broken}, kind, "roberta")
    assert load_encoder(name, device="cpu", images=False).encoder.word_dim == WORD_DIM
    with refused(EncoderError, str(broken)):
        load_encoder(name, device="cpu")
