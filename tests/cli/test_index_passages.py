"""`index --speech` and `--screen-text` add passages to a library without encoding its videos again."""

import pytest

import untrimmed
from tests.passages.test_speech import SmallRecogniser
from tests.refusals import require_named
from tests.toy import ToyEncoder, write_clip
from tests.video.test_sound import tone, write_film
from untrimmed.passages import screen, speech
from untrimmed.passages.screen import ScreenLine
from untrimmed.search.store.passages import PassageTable


class OneLine:
    """Reads the same line in every frame."""

    def lines(self, frame):
        return [ScreenLine("Budget cuts", 0.9, (10, 10, 100, 30))]

    def text(self, line):
        return "Budget cuts"


@pytest.fixture
def film(tmp_path, run, monkeypatch):
    """The folder of an indexed film with a tone, and stand-ins for models; nothing here recognises anything."""
    monkeypatch.setattr(screen, "RapidReader", OneLine)
    monkeypatch.setattr(speech, "Recogniser", SmallRecogniser)
    monkeypatch.setattr("faster_whisper.vad.get_speech_timestamps", lambda samples, _: [{"start": 0, "end": 16000}])
    for name in ("model.bin", "config.json", "tokenizer.json"):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_text(name, encoding="utf-8")
    (tmp_path / "films").mkdir()
    path = write_film(tmp_path / "films" / "film.mkv", [(0, tone(3))])
    assert run("index", path)[0] == 0
    monkeypatch.setattr(ToyEncoder, "encode_frames", None)
    return path.parent


def texts(tmp_path):
    library = untrimmed.open(tmp_path / "library")
    table = PassageTable(library.folder)
    return {
        match.sentence.passage.text: match.sentence.passage.source
        for record in library.videos()
        for match in table.read([record.video_id])
    }


def test_sources_are_added_to_a_known_library(run, film, tmp_path, monkeypatch):
    code, _, err = run("index", "--speech", "--speech-model", tmp_path / "model", "--screen-text")
    assert (code, err.count("Traceback")) == (0, 0)
    assert sorted(texts(tmp_path).values()) == ["screen", "speech"]
    settings = untrimmed.open(tmp_path / "library").settings().sources
    assert settings["speech"] == {"model": str(tmp_path / "model")}
    monkeypatch.setattr(OneLine, "lines", None)
    monkeypatch.setattr(SmallRecogniser, "recognise", None)
    assert run("index", film)[0] == 0, "nothing is read again"


def test_damage_is_reported_once_with_the_path_of_the_video(run, tmp_path, monkeypatch):
    monkeypatch.setattr(screen, "RapidReader", OneLine)
    path = write_clip(tmp_path / "film.mp4", ["red", "blue", "green"])
    data = bytearray(path.read_bytes())
    start = len(data) * 3 // 10  # among the packets
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    code, out, err = run("index", path, "--screen-text")
    (warning,) = [line for line in (out + err).splitlines() if line.startswith("warning")]
    assert (code, warning.count("film.mp4")) == (0, 1)


def test_settings_of_speech_that_are_not_named_stay(run, film, tmp_path):
    run("index", "--speech-model", tmp_path / "model")
    assert run("index", "--language", "de")[0] == 0
    assert "de." in texts(tmp_path)
    settings = untrimmed.open(tmp_path / "library").settings().sources
    assert settings["speech"] == {"model": str(tmp_path / "model"), "language": "de"}
    assert run("index", "--language", "auto", "--no-screen-text")[0] == 0
    settings = untrimmed.open(tmp_path / "library").settings().sources
    assert (settings["speech"]["language"], settings.keys()) == ("", {"speech", "subtitle"})


def test_settings_of_speech_come_back_when_it_is_turned_on_again(run, film, tmp_path):
    run("index", "--speech-model", tmp_path / "model", "--language", "de")
    before = untrimmed.open(tmp_path / "library").settings().sources
    for _ in range(2):
        assert run("index", film, "--no-speech")[0] == 0
        assert untrimmed.open(tmp_path / "library").settings().sources == {"subtitle": {}}
        assert str(tmp_path / "model") in run("doctor")[1]
    assert run("index", "--language", "en")[0] == 0
    assert untrimmed.open(tmp_path / "library").settings().sources == {
        **before,
        "speech": before["speech"] | {"language": "en"},
    }


def test_a_missing_model_changes_nothing(run, film, tmp_path):
    before = untrimmed.open(tmp_path / "library").settings()
    code, _, error = run("index", "--speech", "--speech-model", tmp_path / "nowhere")
    assert code != 0
    require_named(error.strip(), "nowhere")
    assert untrimmed.open(tmp_path / "library").settings() == before
    code, _, error = run("index", "--no-speech", "--language", "de")
    assert code == 2
    require_named(error.strip(), "language")
