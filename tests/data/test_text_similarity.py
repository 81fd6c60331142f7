"""Cosines of all pairs of captions equal those of a full comparison."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from untrimmed.cli.data import data_app
from untrimmed.data import text_similarity as module
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_words, read_split
from untrimmed.data.text_similarity import pair_statistics, text_similarity


def test_the_statistics_equal_those_of_a_full_comparison(monkeypatch):
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
        result = text_similarity("tvr", data_root, "test", pooling)
        assert result.captions == len(tables)
        assert (result.max, result.mean, result.median, result.min) == pytest.approx(pair_statistics(np.array(vectors)))


def test_a_large_split_is_sampled(data_root, monkeypatch):
    monkeypatch.setattr(module, "MAX_CAPTIONS", 5)
    assert text_similarity("tvr", data_root, "test").captions == 5
    assert text_similarity("tvr", data_root, "test") == text_similarity("tvr", data_root, "test")


def test_describe_prints_the_statistics_with_texts(data_root):
    describe = ["describe", "tvr", "--root", str(data_root)]
    plain = CliRunner().invoke(data_app, describe).stdout
    described = CliRunner().invoke(data_app, [*describe, "--texts", "mean"])
    assert described.exit_code == 0, described.output
    expected = text_similarity("tvr", data_root, "test")
    assert (f"{expected.median:.3f}" in described.stdout, f"{expected.median:.3f}" in plain) == (True, False)
    last = json.loads(CliRunner().invoke(data_app, [*describe, "--texts", "last", "--json"]).stdout)[-1]
    assert last["texts"]["mean"] == text_similarity("tvr", data_root, "test", "last").mean
