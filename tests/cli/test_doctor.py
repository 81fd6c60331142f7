"""`doctor` says each thing once, fetches nothing, and names what it looked at."""

import pytest

from untrimmed.encoders import registry
from untrimmed.encoders.hub import encoder, weights
from untrimmed.encoders.registry import DEFAULT, ENCODERS
from untrimmed.errors import EncoderError


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
