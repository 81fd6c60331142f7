"""Subtitles on the command line: read, searched, listed and printed."""

import json
import re

import pytest

from tests.refusals import require_named
from untrimmed.search.indexing.passages import PassageReader

SRT = "1\n00:00:00,500 --> 00:00:01,500\nWe made <i>budget</i>\n\n2\n00:00:01,600 --> 00:00:02,999\ncuts today.\n"


@pytest.fixture
def with_subtitles(run, videos):
    (videos / "flag.en.srt").write_text(SRT)
    code, out, _ = run("index", videos)
    assert code == 0
    assert "subtitle" in out
    return videos


def test_search_prints_the_passage_of_a_hit(run, with_subtitles):
    code, out, _ = run("search", '"budget cuts"')
    assert code == 0
    assert "flag.mp4" in out
    assert "We made budget cuts today." in out
    code, out, _ = run("search", "budget", "--said", "-k", "1", "--json")
    assert code == 0
    (hit,) = json.loads(out)["hits"]
    (evidence,) = hit["moments"][0]["evidence"]
    assert (evidence["mode"], evidence["source"], evidence["start_s"]) == ("said", "subtitle", 0.5)
    assert run("search", "budget", "--written")[0] == 1
    assert "evidence" not in run("search", "blue", "--seen", "--json")[1]
    assert "flag.mp4" in run("search", "red", "--saying", "budget", "-k", "1")[1]


def test_a_cut_keeps_the_words_that_go_on_after_a_shot_change(run, videos, tmp_path):
    import av

    (videos / "flag.en.srt").write_text("1\n00:00:00,500 --> 00:00:02,300\nWe made budget cuts\n")
    run("index", videos)
    (hit,) = json.loads(run("search", "budget", "--said", "-k", "1", "--json")[1])["hits"]
    assert (hit["start_s"], hit["end_s"]) == (0.5, 2.3)
    assert run("cut", "1", "-o", tmp_path / "said.mp4")[0] == 0
    with av.open(str(tmp_path / "said.mp4")) as container:
        assert len(list(container.decode(video=0))) == 18, "1.8 s; the shot changes at 2 s"


def test_transcripts_have_the_times_of_the_file(run, with_subtitles):
    code, out, _ = run("transcript", "flag.mp4", "--format", "srt")
    assert code == 0
    assert out.split("\n\n")[0] == "1\n00:00:00,500 --> 00:00:01,500\nWe made budget"
    assert out.split("\n\n")[1].strip() == "2\n00:00:01,600 --> 00:00:02,999\ncuts today."
    assert "00:00:01.600 --> 00:00:02.999" in run("transcript", "flag", "--format", "vtt")[1]
    passages = json.loads(run("transcript", "flag", "--format", "json")[1])
    assert [(passage["text"], passage["language"]) for passage in passages] == [
        ("We made budget", "en"), ("cuts today.", "en")
    ]  # fmt: skip
    assert "cuts today." in run("transcript", "flag")[1]
    assert run("transcript", "flag", "--source", "screen")[0] == 1
    assert run("transcript", "flag", "--format", "pdf")[0] == 2
    assert run("transcript", "absent.mp4")[0] == 2


def test_texts_of_several_tracks_are_told_apart(run, with_subtitles):
    (with_subtitles / "flag.de.srt").write_text("1\n00:00:00,700 --> 00:00:01,500\nWir haben gespart\n")
    run("index", with_subtitles)
    lines = [line.split() for line in run("transcript", "flag")[1].splitlines()]
    assert [line[1:4] for line in lines] == [
        ["subtitle", "en", "flag.en.srt"], ["subtitle", "de", "flag.de.srt"], ["subtitle", "en", "flag.en.srt"]
    ]  # fmt: skip
    code, out, err = run("transcript", "flag", "--format", "srt")
    assert code == 0
    assert "gespart" in out
    require_named(err.strip(), "flag.de.srt", "flag.en.srt", "--track")
    code, out, err = run("transcript", "flag", "--format", "srt", "--track", "flag.de.srt")
    assert (code, err) == (0, "")
    assert "gespart" in out
    assert "budget" not in out
    assert run("transcript", "flag", "--track", "flag.fr.srt")[0] == 2


def test_a_transcript_that_is_missing_says_why(run, with_subtitles):
    code, _, err = run("transcript", "flag", "--source", "subtitels")
    assert code == 2
    require_named(err.strip(), "subtitels", "subtitle", "speech", "screen")
    code, _, err = run("transcript", "flag", "--source", "screen")
    assert code == 1
    require_named(err.strip(), "screen", "--screen-text")
    assert "--subtitles" not in err
    code, out, err = run("transcript", "flag", "--source", "screen", "--format", "json")
    assert (code, json.loads(out)) == (1, [])
    require_named(err.strip(), "screen", "--screen-text")
    code, _, err = run("transcript", "flag", "--language", "fr")
    assert code == 1
    assert err.strip().endswith(" en")
    code, _, err = run("transcript", "sea [1].mp4")
    assert code == 1
    require_named(err.strip(), "--speech", "--screen-text")
    assert "--subtitles" not in err, "subtitles were looked for already"
    assert "cuts today." in run("transcript", "flag", "--language", "eng")[1]


def test_a_path_that_contains_the_name_of_an_argument_is_printed_unchanged(run, with_subtitles):
    for name in ("film (split).mp4", "film (out)"):
        code, _, err = run("transcript", with_subtitles / name)
        assert (code, str(with_subtitles / name) in err) == (2, True)


def test_text_that_was_not_read_yet_is_reported(run, videos, monkeypatch):
    (videos / "flag.en.srt").write_text(SRT)
    with monkeypatch.context() as patched:
        patched.setattr(PassageReader, "read", lambda *_: None)  # as if interrupted
        run("index", videos, "--screen-text")
    code, _, err = run("transcript", "flag")
    assert code == 1
    require_named(err.strip(), "subtitle", "screen", "untrimmed index")
    _, _, err = run("transcript", "flag", "--source", "subtitle")
    require_named(err.strip(), "subtitle", "untrimmed index FOLDER")
    assert "screen" not in err
    assert "untrimmed index FOLDER" in run("status")[1]
    run("index", videos, "--no-screen-text")
    assert "untrimmed index FOLDER" not in run("status")[1]
    assert "untrimmed index FOLDER" not in run("transcript", "sea [1].mp4")[2]


def test_text_of_one_source_is_removed_and_the_video_stays(run, with_subtitles, tmp_path):
    assert run("rm", "--text", "subtitels", with_subtitles)[0] == 2
    assert run("rm", "--text", "speech", "--all")[1].startswith("0")
    assert run("rm", "--text", "subtitle", with_subtitles)[0] == 2, "a folder needs --yes"
    assert run("rm", "--text", "subtitle", with_subtitles, "--dry-run")[1].startswith("1")
    assert run("transcript", "flag")[0] == 0
    code, out, err = run("rm", "--text", "subtitle", with_subtitles / "flag.mp4")
    assert (code, out.strip()) == (0, "1 removed")
    require_named(err.strip(), "subtitle", "flag.mp4")
    assert run("transcript", "flag")[0] == 1
    assert "flag.mp4" in run("ls")[1]
    run("index", with_subtitles)
    assert run("transcript", "flag")[0] == 1, "removed texts stay removed"
    part = with_subtitles.parent / "part"
    run("index", with_subtitles, "--library", part)
    run("rm", "--text", "subtitle", "flag.mp4", "--library", part)
    run("merge", tmp_path / "merged", part)
    assert run("transcript", "flag", "--library", tmp_path / "merged")[0] == 1
    (with_subtitles / "flag.en.srt").write_text(SRT.replace("today", "tomorrow"))
    run("index", with_subtitles)
    assert "tomorrow" in run("transcript", "flag")[1]


def test_the_name_of_a_video_removes_its_text_without_a_question(run, with_subtitles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("rm", "--text", "subtitle", "flag.mp4")[0] == 0


def test_indexing_a_subtitle_file_indexes_its_video(run, videos):
    (videos / "flag.en.srt").write_text(SRT)
    assert run("index", videos / "flag.en.srt")[0] == 0
    assert "flag.mp4" in run("ls")[1]
    assert "cuts today." in run("transcript", "flag")[1]


def test_equal_passages_of_two_tracks_are_printed_once(run, with_subtitles):
    (with_subtitles / "flag.eng.srt").write_text(SRT)
    run("index", with_subtitles)
    assert run("transcript", "flag")[1].count("cuts today.") == 1


def test_a_long_passage_is_printed_around_the_matching_words(run, videos):
    words = " ".join(f"word{number}" for number in range(32))
    (videos / "flag.srt").write_text(f"1\n00:00:00,500 --> 00:00:01,500\n{words} budget cuts today\n")
    run("index", videos)
    line = next(line for line in run("search", "budget", "--said", "-k", "1")[1].splitlines() if "subtitle" in line)
    assert "budget cuts today" in line
    assert "…word" in line
    line = next(line for line in run("search", "word1", "--said", "-k", "1")[1].splitlines() if "subtitle" in line)
    assert ": word0 word1 " in line
    assert line.endswith("…")


def test_each_moment_of_a_long_passage_has_the_time_of_its_own_words(run, videos):
    cues = ["We made budget cuts", "in May and more", "budget cuts in June", "of all years."]
    blocks = [f"{n}\n00:00:0{n},000 --> 00:00:0{n + 1},000\n{cue}\n\n" for n, cue in enumerate(cues)]
    (videos / "flag.srt").write_text("".join(blocks))
    run("index", videos)
    lines = run("search", '"budget cuts"', "--said", "-k", "1", "--moments", "all")[1].splitlines()
    assert sorted(line.split("at ")[1][:6] for line in lines if "said at" in line) == ["0:00.0", "0:02.0"]


def test_a_passage_is_printed_as_text_and_not_as_a_path(run, videos):
    (videos / "flag.srt").write_text("1\n00:00:00,500 --> 00:00:01,500\nbudget // cuts/./ today/\n")
    run("index", videos)
    assert "budget // cuts/./ today/" in run("search", "budget", "--said", "-k", "1")[1]


def test_deleted_subtitles_are_in_the_summary(run, with_subtitles):
    (with_subtitles / "flag.en.srt").unlink()
    _, out, _ = run("index", with_subtitles)
    assert "removed" in out
    assert "1 (subtitle)" in out
    assert "removed" not in run("index", with_subtitles)[1]


def test_an_empty_sentence_is_refused(run, with_subtitles):
    for flag in ("--saying", "--reading", "--then"):
        code, _, err = run("search", "red", flag, " ")
        assert code == 2
        require_named(err.strip(), flag)


def test_errors_of_a_search_name_options(run, with_subtitles):
    for words, flags in (
        (["--min-confidence", "0.5", "--saying", "budget"], ["--min-confidence", "--min-score"]),
        (["--then", "blue", "--saying", "budget"], ["--then", "--saying", "--reading", "--seen"]),
        (["--not", "blue", "--said"], ["--seen"]),
    ):
        code, _, err = run("search", "red", *words)
        assert code == 2
        require_named(err.strip(), *flags)
        assert not re.search(r"min_|modes|'said'", err)


def test_status_lists_the_sources_of_text(run, videos):
    run("index", videos)
    assert "reads text from subtitle" in run("status")[1]
    run("index", videos, "--no-subtitles")
    assert "reads no text" in run("status")[1]
    assert json.loads(run("status", "--json")[1])["sources"] == {}


def test_status_repeats_the_warnings_of_earlier_runs(run, videos):
    (videos / "flag.srt").write_text(SRT + "\n3\n00:00:xx --> 00:00:02,000\nlost\n")
    (videos / "sea [1].2.srt").write_text(SRT)
    run("index", videos)
    warnings = json.loads(run("status", "--json")[1])["warnings"]
    assert [warning["path"] for warning in warnings] == [str(videos / "flag.mp4"), str(videos / "sea [1].mp4")]
    status = run("status")[1]
    assert all(warning["reason"] in status for warning in warnings)
    assert str(videos / "flag.mp4") not in status, "the reason names the subtitle file, and the line is shorter"
    assert "0 (" not in status
    assert run("ls")[1].count("(text)") == 1


def test_a_file_whose_video_is_unclear_is_one_warning_until_it_is_deleted(run, videos):
    def reasons():
        return [warning["reason"] for warning in json.loads(run("status", "--json")[1])["warnings"]]

    run("index", videos)
    (videos / "Subs").mkdir()
    unclear = videos / "Subs" / "English.srt"
    unclear.write_text(SRT)
    assert run("index", videos)[2].count(str(unclear)) == 1
    (reason,) = reasons()
    assert str(unclear) in reason
    assert str(unclear) not in run("index", videos)[2]
    run("rm", videos / "flag.mp4")
    assert reasons() == [reason], "the other videos have the warning too"
    unclear.unlink()
    run("index", videos)
    assert reasons() == []


def test_passages_are_listed_and_added_without_paths(run, videos):
    run("index", videos, "--no-subtitles")
    (videos / "flag.en.srt").write_text(SRT)
    assert json.loads(run("status", "--json")[1])["passages"] == 0
    code, _, _ = run("index", "--subtitles")
    assert code == 0
    assert json.loads(run("status", "--json")[1])["passages"] == 1
    assert "subtitle" in run("status")[1]
    marked = [line for line in run("ls")[1].splitlines() if "(text)" in line]
    assert len(marked) == 1
    assert "flag.mp4" in marked[0]
