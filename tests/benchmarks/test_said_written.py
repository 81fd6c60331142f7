"""The made reels of `benchmarks/said_written.py` have one correct shot for each query about words."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.said_written import edits, is_correct, overlap

from benchmarks import spoken_reels as made
from untrimmed.demo.queries import QUERIES


def test_edits_are_counted():
    assert edits("kitten", "sitting") == 3
    assert edits(["a", "b"], []) == 2
    assert edits("", "ab") == 2


def test_words_of_a_query_are_in_the_sentence():
    sentence = made.Sentence.of("the FINANCE MINISTER discussed BUDGET CUTS on Thursday", "en")
    assert (sentence.text, sentence.words) == (
        "The finance minister discussed budget cuts on thursday",
        "finance minister budget cuts",
    )
    assert made.Sentence.of("火车 明天 早上 到达 北京", "zh").text == "火车明天早上到达北京"


def test_each_sentence_is_in_one_shot_and_those_of_mixed_queries_in_two():
    scenes = [scene for reel in made.plan(np.random.default_rng(0)) for scene in reel]
    texts = Counter((scene.said or scene.written).text for scene in scenes if scene.said or scene.written)
    mixed = {(s.said or s.written).text for s in scenes if (s.said or s.written) and s.picture in QUERIES}
    assert {text: count for text, count in texts.items() if count != 1} == dict.fromkeys(mixed, 2)
    assert len(mixed) == made.NUM_MIXED // 2
    pictures = {
        text: {s.picture for s in scenes if text in [t.text for t in (s.said, s.written) if t]} for text in mixed
    }
    assert all(len(names) == 2 for names in pictures.values()), "the picture decides"
    assert sum(bool(s.said) and s.picture not in QUERIES for s in scenes) == made.NUM_SAID
    assert sum(bool(s.written) and s.picture not in QUERIES for s in scenes) == made.NUM_WRITTEN


@pytest.mark.parametrize("seed", range(5))
def test_each_name_is_said_in_its_own_shot_of_another_picture(tmp_path, seed):
    pictures = np.random.default_rng(seed).permutation([*QUERIES, "leaves", "street"])
    shots = [(picture, 3.0 * number, 3.0 * number + 3) for number, picture in enumerate(pictures)]
    made.say_names(tmp_path, [made.Script("a", shots=shots[:9]), made.Script("b", shots=shots[9:])])
    files = [tmp_path / f"{reel}{made.SUFFIX_OF_NAMES}" for reel in "ab"]
    said = [entry for file in files for entry in json.loads(file.read_text())]
    places = {name: int(start_s // 3) for name, start_s, _ in said}
    assert places.keys() == set(QUERIES)
    assert len(set(places.values())) == len(QUERIES)
    assert all(pictures[place] != name for name, place in places.items())


def test_a_hit_is_correct_if_its_middle_is_in_the_shot():
    query = made.MadeQuery("said", "", "budget", "", [("a.mp4", 10.0, 15.0)], (11.0, 13.0))

    def hit(start_s, end_s, name="a.mp4"):
        return SimpleNamespace(video=SimpleNamespace(name=name), start_s=start_s, end_s=end_s)

    assert is_correct(query, hit(9, 12))
    assert not is_correct(query, hit(2, 12))
    assert not is_correct(query, hit(11, 13, "b.mp4"))
    assert overlap(query, hit(12, 14)) == pytest.approx(1 / 3)
    assert overlap(query, hit(11, 13, "b.mp4")) == 0
