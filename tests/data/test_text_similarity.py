"""Cosines between all captions of a split, against a plain comparison of all pairs."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from untrimmed.cli.data import data_app
from untrimmed.data import text_similarity as module
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_words, read_split
from untrimmed.data.text_similarity import pair_statistics, text_similarity


def test_the_statistics_are_those_of_all_pairs(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    vectors = np.random.default_rng(0).standard_normal((50, 6)) + 0.5
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = (unit @ unit.T)[np.triu_indices(50, 1)]
    high, mean, median, low = pair_statistics(vectors)
    assert (high, mean, low) == pytest.approx((pairs.max(), pairs.mean(), pairs.min()))
    assert median == pytest.approx(np.median(pairs), abs=1e-3)


def test_a_caption_is_the_mean_or_the_last_of_its_words(data_root):
    words = open_words(Layout.at(data_root, "tvr"))
    tables = [words.read(annotation.caption_id) for annotation in read_split("tvr", data_root, "test")]
    for pooling, vectors in (("mean", [t.mean(axis=0) for t in tables]), ("last", [t[-1] for t in tables])):
        found = text_similarity("tvr", data_root, "test", pooling)
        assert found.captions == len(tables)
        assert (found.max, found.mean, found.median, found.min) == pytest.approx(pair_statistics(np.array(vectors)))


def test_of_many_captions_some_are_drawn(data_root, monkeypatch):
    monkeypatch.setattr(module, "MAX_CAPTIONS", 5)
    assert text_similarity("tvr", data_root, "test").captions == 5
    assert text_similarity("tvr", data_root, "test") == text_similarity("tvr", data_root, "test")


def test_describe_prints_them_when_asked(data_root):
    describe = ["describe", "tvr", "--root", str(data_root)]
    plain = CliRunner().invoke(data_app, describe).stdout
    asked = CliRunner().invoke(data_app, [*describe, "--texts", "mean"])
    assert asked.exit_code == 0, asked.output
    found = text_similarity("tvr", data_root, "test")
    assert (f"{found.median:.3f}" in asked.stdout, f"{found.median:.3f}" in plain) == (True, False)
    last = json.loads(CliRunner().invoke(data_app, [*describe, "--texts", "last", "--json"]).stdout)[-1]
    assert last["texts"]["mean"] == text_similarity("tvr", data_root, "test", "last").mean
