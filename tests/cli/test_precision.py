"""`--precision` has the same values in every command, and the format in use is printed."""

import json

import pytest

from tests.tiny_models import save_clip
from untrimmed import precision
from untrimmed.cli import doctor
from untrimmed.encoders.registry import load_encoder
from untrimmed.search import library as library_module


@pytest.fixture
def model(tmp_path, run, monkeypatch):
    """The folder of a small dual encoder, which commands load without patches."""
    monkeypatch.setattr(library_module, "load_encoder", load_encoder)
    return save_clip(tmp_path / "clip")


@pytest.mark.parametrize(("first", "second"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_a_library_of_one_format_is_searched_and_added_to_in_the_other(run, videos, model, first, second):
    index = ["index", "--encoder", model, "--device", "cpu", "--precision"]
    assert run(*index, first, videos / "flag.mp4")[0] == 0
    assert json.loads(run("status", "--json")[1])["products"] == first
    hits = {}
    for name in (first, second):
        code, out, _ = run("search", "a dog runs", "--precision", name, "--json")
        assert code == 0
        hits[name] = json.loads(out)["hits"][0]["score"]
        assert run("similar", f"{videos / 'flag.mp4'}@1", "--precision", name)[0] == 0
    assert hits[first] != hits[second]  # the format was used
    assert hits[first] == pytest.approx(hits[second], abs=2**-5)  # rounding moves unit vectors by at most 2^-6
    assert run(*index, second, videos)[0] == 0
    facts = json.loads(run("status", "--json")[1])
    assert (facts["videos"], facts["products"]) == (2, "bfloat16 and float32")


def test_status_and_doctor_print_the_number_format_and_its_reason(run, videos, model, monkeypatch):
    run("index", "--encoder", model, "--device", "cpu", "--precision", "float32", videos)
    for quick, name in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device, quick=quick: quick)
        (line,) = [line for line in run("status")[1].splitlines() if "--precision auto" in line]
        assert name in line
        assert any(name in finding.text for finding in doctor._python())
    (finding,) = doctor._encoder(str(model))
    assert "float32" in finding.text


@pytest.mark.parametrize(
    "words",
    [
        ["index", "VIDEOS"],
        ["search", "a dog"],
        ["similar", "VIDEOS/flag.mp4@1"],
        ["features", "VIDEOS", "--out", "VIDEOS/out"],
        ["train", "ms_sl", "--data", "tvr", "--root", "VIDEOS"],
        ["evaluate", "VIDEOS", "--queries", "VIDEOS/queries.jsonl"],
    ],
)
def test_every_command_refuses_unknown_formats(run, videos, words):
    (videos / "queries.jsonl").write_text("")
    words = [word.replace("VIDEOS", str(videos)) for word in words]
    for name in ("fp17", "bf16"):
        code, _, err = run(*words, "--precision", name)
        assert code == 2
        assert all(word in err for word in (f"'{name}'", "auto", "float32", "bfloat16"))
