"""Layouts from outside whose methods fail or answer with the wrong kind of thing."""

import numpy as np
import pytest

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
        ("recognises", fails, "layout 'lay', recognises: KeyError: 'v0'; correct it"),
        ("captions", fails, "layout 'lay', captions: KeyError: 'v0'; correct it"),
        ("captions", lambda *_: None, "layout 'lay', captions: TypeError: .*; correct it"),
        ("captions", lambda *_: [("v", "v#0", "x")], "layout 'lay', captions: holds a tuple, wanted Annotations"),
        ("frames", fails, "layout 'lay', frames: KeyError: 'v0'; correct it"),
        ("frames", lambda *_: [1], "layout 'lay', frames: gave a list, wanted a mapping of arrays by id"),
        ("words", lambda *_: None, "layout 'lay', words: gave a NoneType, wanted a mapping"),
    ],
)
def test_a_layout_that_fails_is_told_in_one_line(method, answer, message, tmp_path, monkeypatch):
    frames = staticmethod(lambda *_: {"v": np.ones((3, 4))})
    layout = type("Lay", (Fine,), {"frames": frames, method: staticmethod(answer)})
    monkeypatch.setattr(layouts, "_LAYOUTS", {"lay": layout()})
    (tmp_path / "mine").mkdir()
    with pytest.raises(FeatureError, match=message):
        load_dataset("mine", tmp_path, "train")
