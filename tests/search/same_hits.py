"""What any engine of a library has to answer: the hits of a search in this process, whatever is committed meanwhile."""

import shutil

SENTENCES = ["red", "a blue sea", "white", "green wood", "something yellow"]


def hits_of(lib):
    return [list(lib.search(text, limit=3, moments=2)) for text in SENTENCES]


def check_same_hits(other, lib, videos, tmp_path):
    """`other` is the library once more, behind another engine; `videos` are those it was made of."""
    assert hits_of(other) == hits_of(lib)
    shutil.copy(videos / "wood.mp4", tmp_path / "new.mp4")
    lib.index(tmp_path / "new.mp4")
    assert hits_of(other) == hits_of(lib), "what was committed is found, and counts in the background"
    lib.remove([videos / "flag.mp4"])
    assert hits_of(other) == hits_of(lib)
    one = videos / "sun.mp4"
    assert list(other.search("red", within=one)) == list(lib.search("red", within=one))
    for mine, theirs in zip(other.relevance("red", one), lib.relevance("red", one), strict=True):
        assert mine.tolist() == theirs.tolist()
