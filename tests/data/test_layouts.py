"""Registered layouts whose methods raise errors or return wrong types."""

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused
from untrimmed import load_dataset
from untrimmed.data import layouts
from untrimmed.data.check import check_dataset
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


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("tvr", "untrimmed data prepare tvr --annotations"),
        ("activitynet_clip_l", "untrimmed data prepare activitynet --name activitynet_clip_l --annotations"),
        ("mine", "mine/captions.jsonl"),
    ],
)
def test_all_commands_give_the_same_next_step_for_a_missing_data_set(tmp_path, name, step):
    messages = [check_dataset(name, tmp_path)[0]]
    for read in (
        lambda: load_dataset(name, tmp_path, "test"),
        lambda: untrimmed.evaluate("tf_prvr", data=name, root=tmp_path),
        lambda: untrimmed.train("ms_sl", data=name, root=tmp_path, out=tmp_path / "run"),
    ):
        with pytest.raises(FeatureError) as caught:
            read()
        messages.append(str(caught.value))
    assert step in messages[0]
    assert len(set(messages)) == 1
