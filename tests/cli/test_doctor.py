"""`doctor` says each thing once, fetches nothing, and names what it looked at."""

import sys

import pytest

from tests.search.corpora.test_updates import LIBRARY, features_of
from tests.toy import stored_video
from untrimmed.encoders import registry
from untrimmed.encoders.hub import encoder, weights
from untrimmed.encoders.registry import DEFAULT, ENCODERS
from untrimmed.errors import EncoderError
from untrimmed.search.corpora.engine import keep_laid_out
from untrimmed.search.store.table import VideoIndex


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """No weights here, and no network."""

    def refuse(source, *, local_files_only=False, **_):
        why = "only local files are allowed" if local_files_only else "https://huggingface.co cannot be reached"
        raise EncoderError(f"{source}: not in the hub's cache, and {why}; run `hf download {source}`")

    for module in (registry, encoder, weights):
        monkeypatch.setattr(module, "locate", refuse)


@pytest.mark.parametrize("name", [DEFAULT, ENCODERS[DEFAULT].hub_id])
def test_of_the_default_encoder_one_thing_is_said_once(run, name):
    code, out, _ = run("doctor", "--encoder", name)
    assert code == 2
    (line,) = [line for line in out.splitlines() if "siglip2" in line]
    assert line.startswith("bad  encoder")
    assert "cannot be reached" in line


def test_of_another_encoder_and_of_the_default_one_line_each(run):
    _, out, _ = run("doctor", "--encoder", "clip-b32")
    lines = out.splitlines()
    assert len([line for line in lines if "cannot be reached" in line]) == 1
    (default,) = [line for line in lines if DEFAULT in line]
    assert default.startswith(f"note default   the weights of {DEFAULT} are not here yet")
    assert len(lines) == len({line.split()[1] for line in lines}), "no subject twice"


def test_without_torch_the_default_is_no_promise(run, monkeypatch):
    monkeypatch.setattr(weights, "locate", lambda *_, **__: "weights are here")
    monkeypatch.setitem(sys.modules, "transformers", None)
    _, out, _ = run("doctor")
    (default,) = [line for line in out.splitlines() if DEFAULT in line]
    assert default == (
        f"note default   {DEFAULT} needs transformers; `index` uses 'builtin' until: pip install 'untrimmed[hub]'"
    )


def test_builtin_that_nobody_asked_for_may_be_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, out, _ = run("doctor")
    assert code == 0
    (line,) = [line for line in out.splitlines() if "onnx" in line]
    assert line.startswith("note encoder   encoder 'builtin' needs onnx, not installed")
    assert "without a network" not in out
    code, out, _ = run("doctor", "--encoder", "builtin")
    assert code == 2
    assert "bad  encoder   encoder 'builtin' needs onnx" in out


def test_repair_says_what_was_damaged_and_what_to_do(tmp_path, run):
    folder = tmp_path / "own"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        index.put_all([stored_video(f"v{seed}", features_of(seed)) for seed in range(3)])
    keep_laid_out(folder)
    out = run("doctor", "--repair", "--library", folder)[1]
    assert "ok   repair    all of the library is as it was written" in out
    frames = features_of(2).vectors.tobytes()
    for file in [*folder.rglob("*.lance/data/*"), *folder.rglob("*.block")]:
        file.write_bytes(file.read_bytes().replace(frames, frames[:9] + bytes([frames[9] ^ 1]) + frames[10:]))
    (block,) = folder.rglob("*.block")
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    code, out, _ = run("doctor", "--repair", "--library", folder)
    assert code == 2
    told = " ".join(out.split())
    assert not block.exists(), "another one has the videos that are left"
    assert f"note repair {block}: was damaged; removed, and nothing is lost: searches have it from the table" in told
    assert "bad repair /v/v2.mp4: was damaged in the library and is removed; run: untrimmed index /v/v2.mp4" in told
    (block,) = folder.rglob("*.block")
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    out = run("doctor", "--repair", "--library", folder)[1]
    assert f"note repair {block}: was damaged; made anew" in " ".join(out.split())
