"""Check that another engine returns the hits of a search in this process, also after commits."""

import shutil

SENTENCES = ["red", "a blue sea", "white", "green wood", "something yellow"]


def hits_of(lib):
    return [list(lib.search(text, limit=3, moments=2)) for text in SENTENCES]


def check_same_hits(other, lib, videos, tmp_path):
    """`other` is the same library with another engine. `videos` is the folder that was indexed."""
    assert hits_of(other) == hits_of(lib)
    shutil.copy(videos / "wood.mp4", tmp_path / "new.mp4")
    lib.index(tmp_path / "new.mp4")
    assert hits_of(other) == hits_of(lib), "the new video is found, and affects the mean relevance"
    lib.remove([videos / "flag.mp4"])
    assert hits_of(other) == hits_of(lib)
    sun = videos / "sun.mp4"
    assert list(other.search("red", within=sun)) == list(lib.search("red", within=sun))
    for actual, expected in zip(other.relevance("red", sun), lib.relevance("red", sun), strict=True):
        assert actual.tolist() == expected.tolist()
