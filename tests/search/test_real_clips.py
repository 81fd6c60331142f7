"""Index and search real clips with the built-in encoder; nothing is replaced by a stand-in."""

import pytest

import untrimmed
from untrimmed.encoders.registry import BUILTIN

SENTENCES = {
    "sam2_dog.mp4": "a dog",
    "sam2_coffee.mp4": "a cup of coffee",
    "flutter_butterfly.mp4": "a butterfly on a flower",
    "intel_car.mp4": "cars on a road",
    "vide_ocean.mp4": "waves of the ocean",
}


@pytest.fixture(scope="module")
def lib(shared, tmp_path_factory):
    lib = untrimmed.open(tmp_path_factory.mktemp("real") / "library")
    report = lib.index([shared / "videos" / name for name in SENTENCES], encoder=BUILTIN)
    assert [path.name for path in report.done] == list(SENTENCES)
    assert (report.skipped, report.failed) == ([], [])
    assert report.notice is None, "the encoder was named"
    return lib


@pytest.mark.shared
@pytest.mark.parametrize(("name", "sentence"), SENTENCES.items())
def test_builtin_finds_real_clips_by_their_content(lib, name, sentence):
    best = lib.search(sentence)[0]
    assert best.video.name == name
    assert 0 <= best.start_s < best.end_s <= best.duration_s


@pytest.mark.shared
def test_an_indexed_clip_is_most_similar_to_itself(lib, shared):
    from untrimmed.video.reader import frame_at

    hits = lib.similar(frame_at(shared / "videos" / "vide_ocean.mp4", 5.0))
    assert hits[0].video.name == "vide_ocean.mp4"
    assert hits[0].score > hits[1].score
