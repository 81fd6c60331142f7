import pytest

from tests.refusals import refused
from untrimmed.encoders.features.kinds import KINDS, NetworkSpec, feature_name, is_feature_name, join_parts, read_spec
from untrimmed.errors import ConfigError, UnknownNameError

HASH = "0123456789abcdef" * 4


def test_a_name_lists_networks_in_order_with_their_weights():
    spec = read_spec(f"resnet152+i3d=/w/i3d.pt#sha256={HASH}+roberta=FacebookAI/roberta-large")
    i3d = NetworkSpec("i3d", "/w/i3d.pt", HASH)
    roberta = NetworkSpec("roberta", "FacebookAI/roberta-large")
    assert spec.parts == (NetworkSpec("resnet152"), i3d, roberta)
    assert (spec.pictures, spec.words) == ((NetworkSpec("resnet152"), i3d), roberta)
    assert read_spec(str(spec)) == spec


def test_a_path_may_contain_a_plus_and_a_number_sign():
    parts = read_spec("i3d=/a+b/c#1.pt+slowfast=/my+clips/d.pyth").parts
    assert parts == (NetworkSpec("i3d", "/a+b/c#1.pt"), NetworkSpec("slowfast", "/my+clips/d.pyth"))


@pytest.mark.parametrize(
    ("name", "words"),
    [("i3d=a", "roberta"), ("slowfast=a+clip", "clip"), ("clip+roberta", "roberta"), ("clip", "clip")],
)
def test_words_are_of_roberta_unless_only_clip_is_named(name, words):
    assert read_spec(name).words.kind == words


def test_networks_make_as_many_vectors_as_the_slowest():
    assert read_spec("slowfast=a+clip").fps == KINDS["slowfast"].fps
    assert read_spec("resnet152+i3d=a").fps == pytest.approx(1 / 1.5)


def test_other_names_are_not_features():
    names = ("clip-b32", "openai/clip-vit-base-patch16", "./clip", "clips", "/i3d", "builtin", "i3d.pt")
    assert [name for name in names if is_feature_name(name)] == []


def test_wrong_names_are_refused():
    with refused(UnknownNameError, "i3dd", "i3d"):
        join_parts(["resnet152", "i3dd=a"])
    with refused(ConfigError, "i3d=a", "abc", "64"):
        join_parts(["i3d=a#sha256=abc"])
    with refused(ConfigError, "i3d", "2"):
        join_parts(["i3d=a", "i3d=b"])
    with refused(ConfigError, "roberta", "i3d"):
        join_parts(["roberta"])


def test_features_are_named_after_the_networks_of_frames():
    assert feature_name("resnet152+i3d=/w/i3d.pt+roberta") == "resnet152_i3d"
    assert feature_name("/models/my-clip") == "my-clip"
