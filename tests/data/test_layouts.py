"""Registered layouts whose methods raise errors or return wrong types."""

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed import load_dataset
from untrimmed.data import layouts
from untrimmed.errors import FeatureError


class Fine:
    def recognises(self, folder):
        return True

    def captions(self, folder, split):
        return [layouts.Annotation("v", "v#0", "a sentence")]

    def frames(self, folder):
        return {}

    def words(self, folder):
        return {}


def fails(*_):
    raise KeyError("v0")


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("recognises", fails, ("'lay'", "recognises", "KeyError", "'v0'")),
        ("captions", fails, ("'lay'", "captions", "KeyError", "'v0'")),
        ("captions", lambda *_: None, ("'lay'", "captions", "TypeError")),
        ("captions", lambda *_: [("v", "v#0", "x")], ("'lay'", "captions", "tuple")),
        ("frames", fails, ("'lay'", "frames", "KeyError", "'v0'")),
        ("frames", lambda *_: [1], ("'lay'", "frames", "list")),
        ("words", lambda *_: None, ("'lay'", "words", "NoneType")),
    ],
)
def test_an_error_in_a_registered_layout_is_reported_in_one_line(method, answer, message, tmp_path, monkeypatch):
    frames = staticmethod(lambda *_: {"v": np.ones((3, 4))})
    layout = type("Lay", (Fine,), {"frames": frames, method: staticmethod(answer)})
    monkeypatch.setattr(layouts, "_LAYOUTS", {"lay": layout()})
    (tmp_path / "mine").mkdir()
    with refused(FeatureError, *message):
        load_dataset("mine", tmp_path, "train")
