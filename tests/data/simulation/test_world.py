"""Simulated features of text, video and teacher depend on the hidden meaning as described in `World`."""

from dataclasses import replace

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.annotations import Annotation
from untrimmed.data.resampling import unit_rows
from untrimmed.data.simulation.lexicon import Lexicon, content_words
from untrimmed.data.simulation.world import BUILT_IN_SIDES, SimulationSettings, World
from untrimmed.errors import ConfigError

SMALL = SimulationSettings(query_dim=64, video_dim=80, teacher_dim=32)
DOG = Annotation("v", "v#0", "a brown dog jumps over the fence", ((30.0, 60.0),), 120.0)
CAT = Annotation("w", "w#0", "a cat sleeps", ((0.0, 30.0),), 90.0)


def test_features_depend_only_on_seed_video_and_captions():
    first, again, other = World(SMALL, [DOG, CAT]), World(SMALL, [DOG, CAT]), World(replace(SMALL, seed=1), [DOG, CAT])
    again.frames([CAT])  # earlier calls have no effect
    np.testing.assert_array_equal(first.frames([DOG]), again.frames([DOG]))
    np.testing.assert_array_equal(first.words([DOG.text])[0], again.words([DOG.text])[0])
    np.testing.assert_array_equal(first.teacher_frames([DOG]), again.teacher_frames([DOG]))
    assert not np.allclose(first.frames([DOG]), other.frames([DOG]))
    assert not np.allclose(first.frames([DOG]), first.frames([replace(DOG, video="x")]))


def test_frames_are_nonnegative_and_often_zero():
    frames = World(SMALL, [DOG, CAT]).frames([DOG])
    assert frames.shape == (80, 80)  # 120 s at two frames in three seconds
    assert frames.dtype == np.float32
    assert frames.min() == 0
    assert 0.3 < (frames == 0).mean() < 0.9


def test_the_vectors_of_a_word_in_different_sentences_are_similar():
    world = World(SMALL, [DOG, CAT])
    words, (other,) = world.words([DOG.text])[0], world.words(["dog"])
    own = [
        unit_rows(row - world.words(["zebra"])[0][0]) @ unit_rows(other[0] - world.words(["zebra"])[0][0])
        for row in words
    ]
    assert np.argmax(own) == 2  # a brown DOG
    assert max(own) < 1
    np.testing.assert_allclose(world.words([DOG.text, CAT.text])[0], words, atol=1e-5)  # together or alone


def test_features_are_nonlinear_in_the_hidden_meaning():
    """A least-squares map leaves more than a tenth of the variance of new rows unexplained."""
    world = World(replace(SMALL, noise=0.0, scene=0.0, shots=0.0))
    rng = np.random.default_rng(0)
    inputs = unit_rows(rng.standard_normal((4000, 96)))
    for network in (world._text, world._vision):
        outputs = network(np.sqrt(1.5) * inputs)
        features = np.maximum(outputs, 0) if network is world._vision else outputs
        design = np.concatenate([inputs, np.ones((4000, 1))], axis=1)
        weights, *_ = np.linalg.lstsq(design[:3000], features[:3000], rcond=None)
        centred = features[3000:] - features[:3000].mean(axis=0)
        unexplained = ((features[3000:] - design[3000:] @ weights) ** 2).sum() / (centred**2).sum()
        assert unexplained > 0.1  # text 0.26, video 0.54


def test_a_caption_is_visible_during_its_moment_only():
    world = World(replace(SMALL, distraction=0.0), [DOG, CAT])
    seen = world.events([DOG]) @ world.intent(DOG.text)
    assert seen[20:40].mean() > 0.3
    np.testing.assert_array_equal(np.delete(seen, np.s_[20:40]), 0)
    assert np.linalg.norm(world.events([DOG]), axis=1).max() <= 1 + 1e-9


def test_words_remain_visible_for_a_while():
    """Neighbouring frames of a long moment are more similar than distant frames."""
    long = replace(DOG, moments=((0.0, 3000.0),), duration_s=3000.0)
    rows = unit_rows(World(SMALL).events([long]))
    near, far = (rows[1:] * rows[:-1]).sum(axis=1).mean(), (rows[100:] * rows[:-100]).sum(axis=1).mean()
    assert near > far + 0.1


def test_other_captions_happen_in_half_of_the_time_without_captions():
    corpus = [replace(CAT, video=f"w{i}", text=f"word{i} thing{i}") for i in range(50)]
    long = replace(DOG, moments=(), duration_s=6000.0)
    busy = np.linalg.norm(World(SMALL, [long, *corpus]).events([long]), axis=1) > 0
    assert 0.3 < busy.mean() < 0.6  # less: a caption may be invisible
    np.testing.assert_array_equal(World(SMALL, [long]).events([long]), 0)  # no other captions


def test_only_the_main_moment_of_several_opinions_is_visible():
    opinions = replace(DOG, moments=((0.0, 30.0), (60.0, 90.0), (60.0, 90.0)))
    shown = [World(SMALL, main_moments=main).events([opinions]).any(axis=1) for main in (False, True)]
    assert shown[0][:20].any()
    assert not shown[1][:20].any()
    assert shown[1][40:60].any()


def test_the_teacher_is_informative_but_noisy():
    """Its sentence is closest to the frames of the moment, less so with more noise, and never equal to them."""
    contrast = []
    for noise in (0.0, 1.0, 8.0):
        world = World(replace(SMALL, teacher_noise=noise, teacher_dim=256, distraction=0.0), [DOG, CAT])
        similarity = (unit_rows(world.teacher_frames([DOG])) @ world.teacher_sentence(DOG.text).T)[:, 0]
        contrast.append(similarity[20:40].mean() - np.delete(similarity, np.s_[20:40]).mean())
    assert 0.8 > contrast[0] > contrast[1] > contrast[2]
    assert contrast[1] > 0.05


def test_the_teacher_is_a_linear_map_of_the_hidden_frames():
    """Without noise, the rank of its frames is limited by the event and the surroundings."""
    world = World(replace(SMALL, teacher_noise=0.0, teacher_dim=200), [DOG, CAT])
    frames = world.teacher_frames([DOG])
    assert np.linalg.matrix_rank(frames, tol=1e-3) <= 96
    assert not frames[:, :48].min() >= 0  # not the frames themselves


WORDS = [f"word{index}" for index in range(40)]


def sentence_meanings(lexicon, num_sentences=400):
    """Random sentences of six words as a table of words, and their meanings."""
    rng = np.random.default_rng(0)
    chosen = [rng.choice(40, 6, replace=False) for _ in range(num_sentences)]
    table = np.zeros((num_sentences, 40))
    for row, words in zip(table, chosen, strict=True):
        row[words] = 1
    return table, np.stack([lexicon.intent(" ".join(WORDS[word] for word in words)) for words in chosen])


@pytest.mark.parametrize(("mixed", "low", "high"), [(False, 0.0, 0.2), (True, 0.5, 2.0)])
def test_mixed_meanings_are_not_sums_of_words(mixed, low, high):
    """A vector for each word, fitted by least squares, explains the meanings of other sentences only if not mixed."""
    table, meanings = sentence_meanings(Lexicon(0, WORDS, mixed=mixed))
    vectors, *_ = np.linalg.lstsq(table[:300], meanings[:300], rcond=None)
    centred = meanings[300:] - meanings[:300].mean(axis=0)
    unexplained = ((meanings[300:] - table[300:] @ vectors) ** 2).sum() / (centred**2).sum()
    assert low <= unexplained < high


def test_mixed_meanings_of_similar_sentences_are_similar():
    lexicon = Lexicon(0, WORDS, mixed=True)
    base, near, far = (
        lexicon.intent(text)
        for text in ("word0 word1 word2 word3 word4 word5", "word0 word1 word2 word3 word4 word6", "word7 word8 word9")
    )
    assert base @ near > 0.5
    assert base @ near > base @ far + 0.3


def test_frames_show_parts_of_a_mixed_meaning():
    world = World(replace(SMALL, words="mixed", distraction=0.0), [DOG, CAT])
    similarity = world.events([DOG]) @ world.intent(DOG.text)
    assert similarity[20:40].max() > 0.4
    assert len({round(value, 6) for value in unit_rows(world.events([DOG]))[20:40] @ world.intent(DOG.text)}) > 1
    np.testing.assert_array_equal(np.delete(similarity, np.s_[20:40]), 0)


def test_scattered_runs_show_a_caption_in_single_frames_between_others():
    long = replace(DOG, moments=((0.0, 300.0),), duration_s=300.0)
    others = [replace(CAT, video=f"w{index}") for index in range(5)]
    shown = {
        runs: np.linalg.norm(World(replace(SMALL, runs=runs, distraction=0.0), [long, *others]).events([long]), axis=1)
        for runs in ("whole", "scattered")
    }
    assert (shown["whole"] > 0).mean() > 0.9
    assert 0.2 < (shown["scattered"] > 0).mean() < 0.6
    changes = {runs: (np.diff((strength > 0).astype(int)) != 0).sum() for runs, strength in shown.items()}
    assert changes["scattered"] > 50 > 20 > changes["whole"]
    distracted = World(replace(SMALL, runs="scattered", distraction=1.0), [long, *others]).events([long])
    assert (np.linalg.norm(distracted, axis=1) > 0).mean() > (shown["scattered"] > 0).mean() + 0.2


def test_a_nonlinear_teacher_is_informative_and_not_a_linear_map():
    """The rank of its frames is not limited by the 96 numbers of event and surroundings."""
    settings = replace(SMALL, teacher_noise=0.5, teacher_dim=200, distraction=0.0)
    long = replace(DOG, duration_s=600.0, moments=((150.0, 300.0),))
    linear, nonlinear = (World(replace(settings, teacher_map=kind), [DOG, CAT]) for kind in ("linear", "nonlinear"))
    assert np.linalg.matrix_rank(linear.teacher_frames([long]), tol=1e-3) == 96
    frames = nonlinear.teacher_frames([long])
    assert np.linalg.matrix_rank(frames, tol=1e-3) > 190
    similarity = (unit_rows(frames) @ nonlinear.teacher_sentence(DOG.text).T)[:, 0]
    assert similarity[100:200].mean() > np.delete(similarity, np.s_[100:200]).mean() + 0.1


def test_every_built_in_side_is_removed_by_a_setting():
    for setting in BUILT_IN_SIDES:
        key, value = setting.split("=")
        assert getattr(SimulationSettings(), key) != value
        variant, standard = (World(settings, [DOG, CAT]) for settings in (replace(SMALL, **{key: value}), SMALL))
        features = [(w.frames([DOG]), w.teacher_frames([DOG]), w.words([DOG.text])[0]) for w in (variant, standard)]
        assert any(not np.array_equal(changed, same) for changed, same in zip(*features, strict=True))


def test_a_sentence_of_function_words_has_a_meaning():
    assert content_words("it is on") == ["it", "is", "on"]
    assert World(SMALL).words(["..."])[0].shape == (1, 64)
    np.testing.assert_allclose(np.linalg.norm(World(SMALL).intent("it is on")), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": 2.0}, ("base", "2", "0", "1")),
        ({"distraction": -0.5}, ("distraction", "-0.5")),
        ({"noise": -1.0}, ("noise", "-1", "0")),
        ({"teacher_noise": -1.0}, ("teacher_noise", "-1")),
        ({"video_dim": 1}, ("video_dim", "1")),
        ({"frames_per_second": 0.0}, ("frames_per_second", "0")),
        ({"words": "mixd"}, ("words", "'mixd'", "mixed")),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with refused(ConfigError, *message):
        SimulationSettings(**settings)


def test_no_frame_is_all_zeros_even_with_few_coordinates():
    frames = World(replace(SMALL, video_dim=3), [DOG, CAT]).frames([replace(DOG, duration_s=900.0)])
    assert (frames > 0).any(axis=1).all()
    assert (np.maximum(frames[:, 1:], 0).sum(axis=1) == 0).any()  # some would have been zero
