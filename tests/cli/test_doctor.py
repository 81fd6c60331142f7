"""`doctor` reports every finding once and downloads nothing."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.search.corpora.test_updates import LIBRARY, features_of
from tests.search.store.test_table import SETTINGS
from tests.toy import stored_video
from untrimmed.encoders import registry
from untrimmed.encoders.hub import encoder, weights
from untrimmed.encoders.registry import DEFAULT, ENCODERS
from untrimmed.errors import EncoderError, install_advice
from untrimmed.passages import screen, speech
from untrimmed.search.corpora.engine import cache_library
from untrimmed.search.indexing import passages as indexing_passages
from untrimmed.search.store.table import VideoIndex


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """A cache without weights, and no network."""

    def refuse(source, *, local_files_only=False, **_):
        why = "only local files are allowed" if local_files_only else "https://huggingface.co cannot be reached"
        raise EncoderError(f"{source}: not in the hub's cache, and {why}; run `hf download {source}`")

    for module in (registry, encoder, weights):
        monkeypatch.setattr(module, "locate", refuse)


@pytest.mark.parametrize("name", [DEFAULT, ENCODERS[DEFAULT].hub_id])
def test_the_default_encoder_is_reported_once(run, name):
    code, out, _ = run("doctor", "--encoder", name)
    assert code == 2
    (line,) = [line for line in out.splitlines() if "siglip2" in line]
    assert line.split()[:2] == ["bad", "encoder"]


def test_speech_and_screen_text_are_checked(run, monkeypatch):
    def locate():
        raise EncoderError("the package is missing")

    monkeypatch.setattr(speech, "DETECTOR", SimpleNamespace(locate=locate))
    monkeypatch.setattr(screen, "DETECTOR", SimpleNamespace(locate=locate))
    lines = [line for line in run("doctor")[1].splitlines() if line.split()[1] in ("speech", "screen")]
    assert [line.split()[0] for line in lines] == ["note", "note"]
    assert all("the package is missing" in line for line in lines)


def test_the_speech_model_of_the_library_is_checked(run, tmp_path, monkeypatch):
    def line():
        return next(line for line in run("doctor")[1].splitlines() if line.split()[1] == "speech")

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert line().split()[0] == "note"
    assert "hf download Systran/faster-whisper-base" in line()
    (tmp_path / "model").mkdir()
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(replace(SETTINGS, sources={"speech": {"model": str(tmp_path / "model")}}))
    assert line().split()[0] == "note"
    assert "model.bin" in line()
    for name in ("model.bin", "config.json", "tokenizer.json"):
        (tmp_path / "model" / name).touch()
    assert line().split()[0] == "ok"
    assert str(tmp_path / "model") in line()
    with VideoIndex(tmp_path / "library") as index:
        index.write_settings(replace(SETTINGS, sources={"speech": {"newer": 1}}))  # of another version
    assert line().split()[0] == "note"
    assert "newer" in line()


def test_json_has_the_same_findings_and_exit_code(run):
    code, out, _ = run("doctor", "--encoder", DEFAULT)
    lines = [line.split() for line in out.splitlines()]
    json_code, out, _ = run("doctor", "--encoder", DEFAULT, "--json")
    assert json_code == code == 2
    assert [[finding["state"], finding["subject"]] for finding in json.loads(out)] == [line[:2] for line in lines]


def test_another_encoder_and_the_default_have_one_line_each(run):
    _, out, _ = run("doctor", "--encoder", "clip-b32")
    lines = out.splitlines()
    (default,) = [line for line in lines if DEFAULT in line]
    assert default.split()[:2] == ["note", "default"]
    assert len(lines) == len({line.split()[1] for line in lines}), "no subject twice"


def test_without_torch_the_default_encoder_is_only_a_note(run, monkeypatch):
    monkeypatch.setattr(weights, "locate", lambda *_, **__: "weights are here")
    monkeypatch.setitem(sys.modules, "transformers", None)
    _, out, _ = run("doctor")
    (default,) = [line for line in out.splitlines() if DEFAULT in line]
    assert default.split()[:2] == ["note", "default"]
    assert all(word in default for word in ("transformers", "'builtin'", "pip install -c constraints.txt '.[hub]'"))


def test_builtin_may_be_missing_unless_it_is_requested(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for words, ends, state in (((), 0, "note"), (("--encoder", "builtin"), 2, "bad")):
        code, out, _ = run("doctor", *words)
        (line,) = [line for line in out.splitlines() if "tokenizers" in line]
        assert (code, line.split()[:2]) == (ends, [state, "encoder"])


def test_repair_names_the_commit_that_it_leaves(tmp_path, run):
    folder = tmp_path / "own"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        for seed in range(2):
            index.put(stored_video(f"v{seed}", features_of(seed)))
    newest = min(folder.rglob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:-1])
    code, out, _ = run("doctor", "--library", folder)
    assert code == 2
    assert "doctor --repair" in " ".join(out.split())
    code, out, _ = run("doctor", "--repair", "--library", folder)
    assert code == 2
    assert f"bad repair {newest.with_suffix('.damaged')}" in " ".join(out.split())
    assert "ok   repair" in run("doctor", "--repair", "--library", folder)[1]


def test_repair_lists_damaged_files_and_the_next_command(tmp_path, run):
    folder = tmp_path / "own"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        index.put_all([stored_video(f"v{seed}", features_of(seed)) for seed in range(3)])
    cache_library(folder)
    assert "ok   repair" in run("doctor", "--repair", "--library", folder)[1]
    frames = features_of(2).vectors.tobytes()
    for file in [*folder.rglob("*.lance/data/*"), *folder.rglob("*.block")]:
        file.write_bytes(file.read_bytes().replace(frames, frames[:9] + bytes([frames[9] ^ 1]) + frames[10:]))
    (block,) = folder.rglob("*.block")
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    code, out, _ = run("doctor", "--repair", "--library", folder)
    assert code == 2
    text = " ".join(out.split())
    assert not block.exists(), "another one has the videos that are left"
    assert f"note repair {block}" in text
    assert "bad repair /v/v2.mp4" in text
    assert "untrimmed index /v/v2.mp4" in text
    (block,) = folder.rglob("*.block")
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    out = run("doctor", "--repair", "--library", folder)[1]
    assert f"note repair {block}" in " ".join(out.split())


def test_old_words_of_passages_are_a_note_until_the_next_run(run, videos, monkeypatch):
    (videos / "flag.en.srt").write_text("1\n00:00:00,500 --> 00:00:01,500\nbudget\n")
    with monkeypatch.context() as old:
        old.setattr(indexing_passages, "WORDS_VERSION", 1)
        run("index", videos)
    assert "note passages" in " ".join(run("doctor")[1].split())
    run("index", videos)
    assert "note passages" not in " ".join(run("doctor")[1].split())


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pyvenv.cfg", "pip install -c constraints.txt '.[speech]'"),
        ("pipx_metadata.json", "pipx runpip untrimmed install -c constraints.txt '.[speech]'"),
        ("uv-receipt.toml", "uv tool install --constraints constraints.txt '.[offline,server,speech]'"),
    ],
)
def test_the_command_that_adds_an_extra_fits_the_environment(monkeypatch, tmp_path, file, command):
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_advice("speech") == f"in a checkout of untrimmed, run: {command}"
