"""The data of each picture, compared with small cases computed by hand and with other parts of the package."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.refusals import refused
from tests.toy import write_clip
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.evaluation.recall import recall
from untrimmed.models.jsg import JSG
from untrimmed.models.registry import plain_settings
from untrimmed.moments.gaussian_proposals import Proposals, pool
from untrimmed.plots.epochs import draw_epochs, epochs_of
from untrimmed.plots.first_ten import similarity_by_rank_of
from untrimmed.plots.heatmap import MOST_CAPTIONS, draw_heat_map, heat_map_of
from untrimmed.plots.moment_ratio import recall_by_ratio_of
from untrimmed.plots.noise import noisy_dataset, robustness_of, with_noise
from untrimmed.plots.prototypes import (
    attendance_of,
    covered,
    inside_by_rank,
    matching_frequency_of,
    prototype_attention_of,
)
from untrimmed.plots.seeds import group_by_seed
from untrimmed.plots.sweep import comparable_settings, sweep_of, swept_settings
from untrimmed.plots.timeline import cell_edges, part_similarities, parts
from untrimmed.plots.top import draw_top, top_of
from untrimmed.plots.trained_run import require_same_split
from untrimmed.plots.tsne import closest_videos, embeddings_of, in_two_dimensions, random_captions_of
from untrimmed.plots.uncertainty import draw_recall_by_uncertainty, equal_groups, recall_by_uncertainty_of
from untrimmed.plots.variance import draw_positioning_variances, positioning_variances_of, positions, variance_by_video
from untrimmed.plots.words import with_even_confidences, word_confidence_of, word_names
from untrimmed.running.evaluate import evaluate


def without_moments(run):
    bare = tuple(dataclasses.replace(a, moments=(), duration_s=None) for a in run.dataset.annotations)
    return dataclasses.replace(run, dataset=dataclasses.replace(run.dataset, annotations=bare))


# -- timeline, heat map, variance


def test_part_similarities_are_the_cosines_of_a_caption_with_every_clip_of_its_video(trained):
    run = trained["v2"]
    encoded, queries = run.videos(np.arange(2)), run.queries(run.dataset.captions_of(1)[:1])
    similarities = part_similarities(run.model, queries, encoded, np.array([1]))
    assert [len(similarity.values) for similarity in similarities] == [0, 1]
    for clip in (0, 31):
        expected = torch.cosine_similarity(queries.sentence[0], encoded.clips[1, clip], dim=0)
        assert similarities[1].values[0, clip] == pytest.approx(float(expected), abs=1e-6)


def test_parts_are_clips_in_order_or_the_methods_timeline(trained):
    run = trained["v2"]
    encoded = run.videos(np.arange(2))
    assert parts(run.model, encoded)[0] is encoded.clips
    proto = trained["proto"].videos(np.arange(2))
    assert parts(trained["proto"].model, proto)[0].shape == (2, 32, 8)


def test_a_heat_map_shows_the_captions_of_the_video_with_most_moments(trained):
    run = trained["v2"]
    data = heat_map_of([run, trained["proto"]], None)
    counts = np.bincount(run.dataset.video_index)
    video = run.dataset.video_ids.index(data.video_id)
    assert counts[video] == counts.max()
    assert len(data.captions) == min(MOST_CAPTIONS, counts.max())
    captions = run.dataset.captions_of(video)
    assert [caption.text for caption in data.captions] == [run.dataset.texts[c] for c in captions[:MOST_CAPTIONS]]
    assert data.captions[0].truth_s == run.dataset.moments[captions[0]]
    assert [strip.label for strip in data.captions[0].strips] == ["v2", "proto"]
    for strip in data.captions[0].strips:
        assert 0 <= strip.best_s[0] < strip.best_s[1] <= data.duration_s + 1e-3
        assert strip.similarity.shape == (32,)


def test_the_best_moment_is_where_the_clips_are_most_similar_to_the_caption(trained, monkeypatch):
    run = trained["v2"]
    caption = run.dataset.captions_of(0)[0]
    sentence = run.queries(np.array([caption])).sentence[0]
    sentence = torch.nn.functional.normalize(sentence, dim=0)
    orthogonal = torch.nn.functional.normalize(sentence.roll(1) - (sentence.roll(1) @ sentence) * sentence, dim=0)
    away = (torch.arange(32.0) - 18).abs()[:, None] / 18  # clips turn from the caption's direction, row by row
    clips = sentence * (1 - away) + orthogonal * away
    monkeypatch.setattr("untrimmed.plots.timeline.parts", lambda model, videos: (clips[None], None))
    strip = heat_map_of([run], run.dataset.caption_ids[caption]).captions[0].strips[0]
    start, end = np.array(strip.best_s) / run.dataset.durations_s[0]
    assert strip.similarity.argmax() == 18
    assert abs((start + end) / 2 - 18.5 / 32) < 1 / 64  # row 18 is the closest to the middle
    assert end - start < 0.2  # wider windows include rows that fit less


def test_cells_of_a_heat_map_are_where_windows_pool_them(trained):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    data = heat_map_of([trained["v2"]], None)
    mesh = draw_heat_map(data).axes[0].collections[0]
    edges = mesh.get_coordinates()[0, :, 0] / data.duration_s
    assert np.asarray(edges) == pytest.approx(np.linspace(0, 1, 33))
    _require_rows_in(edges, trained["v2"].model.row_times)
    _require_rows_in(cell_edges(32, JSG.row_times), JSG.row_times)  # its outer cells are half as wide


def _require_rows_in(edges, row_times):
    """Assert that a narrow window around the middle of inner cell i reads only row i."""
    windows = Proposals(torch.from_numpy((edges[1:-2] + edges[2:-1]) / 2).float(), torch.full((30,), 0.05))
    weights = pool(torch.eye(32)[None], windows, row_times=row_times)[0]
    assert weights.argmax(dim=1).tolist() == list(range(1, 31))
    assert torch.allclose((weights * torch.arange(32.0)).sum(dim=1), torch.arange(1.0, 31.0), atol=1e-3)


def test_the_curve_of_a_top_video_is_where_windows_pool_it(trained):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    data = top_of([trained["v2"]], [])
    curve, video = draw_top(data).axes[0].lines[0].get_xdata(), data[0].videos[0]
    share = 1 / len(curve)
    assert curve / video.duration_s == pytest.approx(np.linspace(share / 2, 1 - share / 2, len(curve)))


def test_the_variance_of_a_video_is_that_of_its_captions_positions():
    # Video 7: mean 0.5, deviations 0.3, 0, 0.3 -> 0.18 / 3; video 9: 0.25 and 0.75 -> 0.0625; video 8 has one caption.
    position = np.array([0.2, 0.25, 0.9, 0.5, 0.75, 0.8])
    assert variance_by_video(position, np.array([7, 9, 8, 7, 9, 7])) == pytest.approx([0.06, 0.0625])


def test_positions_do_not_depend_on_batches(trained):
    run = trained["v2"]
    in_parts = dataclasses.replace(run, train=dataclasses.replace(run.train, eval_video_batch=2))
    assert np.array_equal(positions(run), positions(in_parts))
    assert len(set(positions(run))) > 2


def test_variances_include_annotated_moments_if_there_are_any(trained):
    run = trained["v2"]
    with_them, bare = positioning_variances_of([run]), positioning_variances_of([without_moments(run)])
    middles = [sum(a.main_moment) / 2 / a.duration_s for a in run.dataset.annotations]
    assert with_them.annotated == pytest.approx(variance_by_video(np.array(middles), run.dataset.video_index))
    assert len(bare.annotated) == 0
    assert np.array_equal(with_them.by_label["v2"], bare.by_label["v2"])
    assert 0 <= with_them.by_label["v2"].min() <= with_them.by_label["v2"].max() <= 0.25


def test_an_untrained_run_has_a_positioning_variance(trained, untrained):
    variances = positioning_variances_of([untrained, trained["v2"]]).by_label
    assert list(variances) == ["untrained", "v2"]
    assert not np.array_equal(variances["untrained"], variances["v2"])


# -- t-SNE


def test_random_captions_depend_on_the_seed_and_are_the_same_for_all_runs(trained):
    runs = [trained["v2"], trained["proto"]]
    data, other = random_captions_of(runs, 0), random_captions_of(runs, 1)
    assert data.video_ids != other.video_ids or len(trained["v2"].dataset.video_ids) <= 10
    counts = [
        (trained["v2"].dataset.video_index == trained["v2"].dataset.video_ids.index(v)).sum() for v in data.video_ids
    ]
    assert np.bincount(data.video).tolist() == counts
    assert {label: len(points) for label, points in data.by_run.items()} == {"v2": sum(counts), "proto": sum(counts)}


def test_the_closest_videos_are_those_with_the_most_similar_mean_captions():
    # Means: video 0 along x, 1 along y, 2 near x. Video 3 is along x too, but has only one caption.
    sentence = np.array([[1.0, 0.0], [1, 0], [0, 1], [0, 1], [0.9, 0.1], [1, 0.1], [1, 0]])
    index = np.array([0, 0, 1, 1, 2, 2, 3])
    assert closest_videos(sentence, index, 2).tolist() == [0, 2]
    assert closest_videos(sentence, index, 3).tolist() == [0, 1, 2]


def test_separate_groups_stay_separate_in_two_dimensions():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(0, 0.05, (20, 6)) + 1, rng.normal(0, 0.05, (20, 6)) - 1])
    plane = in_two_dimensions(vectors)
    first, second = plane[:20], plane[20:]
    apart = np.linalg.norm(first.mean(axis=0) - second.mean(axis=0))
    assert apart > 2 * max(first.std(), second.std())
    assert np.array_equal(plane, in_two_dimensions(vectors))


def test_embeddings_contain_both_videos_and_mark_the_best_clips_of_captions(trained):
    data = embeddings_of([trained["v2"], trained["proto"]])
    assert len(data.video_ids) == 2
    for embedded in data.by_run:
        assert np.bincount(embedded.clip_video).tolist() == [32, 32]
        assert len(embedded.queries) == len(embedded.query_video) >= 4
        for video in (0, 1):
            captions = (embedded.query_video == video).sum()
            assert 1 <= embedded.matched[embedded.clip_video == video].sum() <= captions


def test_embeddings_mark_clips_by_the_methods_own_similarity(trained, monkeypatch):
    earlier_is_better = lambda queries, units: -torch.arange(32.0).expand(len(queries), len(units), 32)  # noqa: E731
    monkeypatch.setattr(trained["v2"].model, "similarity", earlier_is_better)
    (embedded,) = embeddings_of([trained["v2"]]).by_run
    assert np.flatnonzero(embedded.matched).tolist() == [0, 32]


# -- prototypes


def test_coverage_uses_the_widened_moment():
    # 10 s to 20 s, half a second wider on each side, of 40 s in parts of 8 s: 9.5-16 of 8-16, then 16-20.5 of 16-24.
    assert covered((10.0, 20.0), 40.0, 5) == pytest.approx([0, 6.5 / 8, 4.5 / 8, 0, 0])


def test_attention_inside_is_sorted_by_similarity():
    attention = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [0.1, 0.9, 0.0]])
    inside = np.array([0.0, 1.0, 0.5])
    # 0.25 + 0.125, 0.5 and 0.9; the similarities put the last one first, then the first.
    assert inside_by_rank(attention, np.array([0.2, 0.1, 0.3]), inside) == pytest.approx([0.9, 0.375, 0.5])


def test_attendance_of_even_attention_equals_chance(trained, monkeypatch):
    run = trained["proto"]
    monkeypatch.setattr(
        "untrimmed.plots.prototypes._attention", lambda run, encoded: np.full((len(encoded), 6, 32), 1 / 32)
    )
    data = attendance_of(run)
    assert data.inside == pytest.approx(np.full(6, data.by_chance))
    assert data.num_captions == len(run.dataset.caption_ids)
    widened = 1.1 * run.dataset.moment_ratios  # moments at the edge of a video are widened less
    assert 0.9 * widened.mean() < data.by_chance <= widened.mean()


def test_prototype_attention_is_of_one_video_with_the_best_prototype_first(trained):
    run = trained["proto"]
    data = prototype_attention_of(run, run.dataset.caption_ids[3])
    assert data.caption == run.dataset.texts[3]
    assert data.attention.sum(axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    assert sorted(data.prototype.tolist()) == list(range(6))
    assert (np.diff(data.similarity) <= 0).all()
    scores = run.model.score(run.queries(np.array([3])), run.videos(run.dataset.video_index[[3]]))
    assert data.prototype[0] == int(scores["clip"].best[0, 0])
    assert data.similarity[0] == pytest.approx(float(scores["clip"].value[0, 0].detach()), abs=1e-6)


def test_a_model_without_stored_attention_is_refused(trained):
    run = trained["proto"]
    config = dataclasses.replace(run.model.config, keep_attention=False)
    run.model.config, before = config, run.model.config
    with pytest.raises(ConfigError, match="proto"):
        attendance_of(run)
    run.model.config = before


def test_every_caption_has_one_best_prototype_per_branch(trained):
    run = trained["proto"]
    counts = matching_frequency_of(run)
    assert {branch: len(values) for branch, values in counts.items()} == {"clip": 6, "frame": 6}
    assert [values.sum() for values in counts.values()] == [len(run.dataset.caption_ids)] * 2
    by_hand = np.zeros(6, dtype=int)
    for row, video in enumerate(run.dataset.video_index):
        scores = run.model.score(run.queries(np.array([row])), run.videos(np.array([video])))
        by_hand[int(scores["clip"].best[0, 0])] += 1
    assert counts["clip"].tolist() == by_hand.tolist()


# -- recall by ratio, noise, uncertainty


def test_recall_by_ratio_equals_that_of_evaluate(trained, runs_folder):
    data = recall_by_ratio_of([trained["v2"], trained["ral"]])
    report = evaluate(runs_folder / "v2", device="cpu")
    for grouping, by_label in data.sum_r.items():
        expected = [report.rows[f"M/V {group}"]["SumR"] for group in data.num_captions[grouping]]
        assert by_label["v2"].mean == pytest.approx(expected, nan_ok=True)
        assert set(by_label) == {"v2", "ral"}
    assert all(sum(counts.values()) == len(report.rank) for counts in data.num_captions.values())
    with pytest.raises(FeatureError):
        recall_by_ratio_of([without_moments(trained["v2"])])


def test_noise_precedes_frames_with_their_mean_length_and_differs_by_video():
    frames = np.full((10, 4), 1.5, dtype=np.float32)  # each of length 3
    noisy = with_noise(frames, 0.3, "a")
    assert noisy.shape == (13, 4)
    assert np.array_equal(noisy[3:], frames)
    assert np.linalg.norm(noisy[:3], axis=1) == pytest.approx([3, 3, 3])
    assert np.array_equal(noisy, with_noise(frames, 0.3, "a"))
    assert not np.allclose(noisy[:3], with_noise(frames, 0.3, "b")[:3])
    assert np.array_equal(with_noise(frames, 0.0, "a"), frames)


def test_a_noisy_split_is_resampled_like_the_real_one(trained, tmp_path):
    run = trained["v2"]
    clean = noisy_dataset(run, 0.0, tmp_path / "none").features
    assert np.array_equal(clean.clips, run.dataset.features.clips)
    noisy = noisy_dataset(run, 0.5, tmp_path / "half").features
    lengths, noisy_lengths = run.dataset.features.frames.lengths, noisy.frames.lengths
    assert np.array_equal(noisy_lengths, np.minimum(20, lengths + np.round(0.5 * lengths)))
    # The first third of the rows and clips is noise, in which neighbours are dissimilar.
    neighbours = (noisy.clips[:, 1:] * noisy.clips[:, :-1]).sum(axis=2)
    assert neighbours[:, :9].mean() < neighbours[:, 12:].mean() - 0.1
    assert not list(run.dataset.features.folder.parent.glob("*noise*"))


def test_robustness_at_level_0_is_the_result_without_noise(trained):
    run = trained["v2"]
    data = robustness_of([run], levels=(0.0, 0.5))
    assert data.sum_r["v2"].mean[0] == pytest.approx(recall(run.rank)["SumR"])
    assert len(data.sum_r["v2"].mean) == 2


def test_uncertainty_groups_have_equal_sizes_and_ascend():
    groups = equal_groups(np.arange(103)[::-1].astype(float))
    assert [len(group) for group in groups] == [11, 11, 11, *[10] * 7]
    assert groups[0].tolist() == list(range(102, 91, -1))
    assert len(equal_groups(np.arange(14.0))) == 2


def test_recall_by_uncertainty_uses_the_groups_of_the_first_run(trained):
    ral, v2 = trained["ral"], trained["v2"]
    data = recall_by_uncertainty_of([ral, v2])
    uncertainty = ral.all_queries.attached["ral"].uncertainty.numpy()
    assert (np.diff(data.level) > 0).all()
    lowest = np.argsort(uncertainty, kind="stable")[: data.group_size]
    share = (v2.rank[lowest] == 1).mean()
    assert data.recall["v2"].mean[0] == pytest.approx(100 * share)
    assert data.error["v2"][0] == pytest.approx(100 * np.sqrt(share * (1 - share) / data.group_size))


def test_recall_by_uncertainty_can_select_moment_ratios(trained):
    run = trained["ral"]
    ratios = run.dataset.moment_ratios
    low, high = np.quantile(ratios, [0.2, 1])
    selected = (ratios > low) & (ratios <= high)
    data = recall_by_uncertainty_of([run], (low, high))
    uncertainty = run.all_queries.attached["ral"].uncertainty.numpy()[selected]
    lowest = np.argsort(uncertainty, kind="stable")[: data.group_size]
    assert data.level[0] == pytest.approx(uncertainty[lowest].mean())
    assert data.recall["ral"].mean[0] == pytest.approx(100 * (run.rank[selected][lowest] == 1).mean())
    with refused(FeatureError, "0", "3", "4", "10"):
        recall_by_uncertainty_of([run], (3, 4))


# -- first videos, first ten, epochs


def test_top_videos_have_the_highest_scores_and_the_relevance_of_the_timeline(trained):
    run = trained["v2"]
    caption = run.dataset.caption_ids[3]
    (data,) = top_of([run], [caption])
    scores = run.score().fused[3]
    assert [video.ranked.row for video in data.videos] == np.argsort(-scores, kind="stable")[:3].tolist()
    assert data.rank == {"v2": int(run.rank[3])}
    first = data.videos[0]
    frames = run.videos(np.array([first.ranked.row])).frames[0]
    expected = torch.cosine_similarity(run.queries(np.array([3])).sentence, frames, dim=-1)
    assert first.relevance == pytest.approx(expected.numpy(), abs=1e-6)
    assert first.truth_s == (run.dataset.moments[3] if first.ranked.is_right else ())
    assert first.frames is None
    (both,) = top_of([run, trained["proto"]], [caption])
    assert [video.label for video in both.videos] == ["v2", "proto"]
    assert both.rank == {"v2": int(run.rank[3]), "proto": int(trained["proto"].rank[3])}


def test_frames_are_shown_for_videos_with_a_file(trained, tmp_path):
    pytest.importorskip("PIL")
    run = trained["v2"]
    caption = run.dataset.caption_ids[3]
    second = top_of([run], [caption])[0].videos[1].ranked
    (tmp_path / "deep").mkdir()
    write_clip(tmp_path / "deep" / f"{second.video}.mp4", ["red"] * 30)
    (data,) = top_of([run], [caption], tmp_path)
    assert [video.frames is not None for video in data.videos] == [False, True, False]
    assert data.videos[1].frames.shape == (6, 72, 96, 3)
    red, green, _ = data.videos[1].frames.reshape(-1, 3).mean(axis=0)
    assert red > 150 > 80 > green
    figure = draw_top([data])
    assert [len(axes.images) for axes in figure.axes] == [0, 6, 0]
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(FeatureError):
        top_of([run], [caption], empty)
    with pytest.raises(FeatureError, match="nowhere"):
        top_of([run], [caption], tmp_path / "nowhere")


def test_first_ten_are_the_highest_mean_cosines_of_branches(trained):
    run = trained["v2"]
    weights = run.model.score(run.queries(np.arange(1)), run.videos(np.arange(1))).weights
    scores = run.score()
    mean = sum(weights[name] * scores.branches[name] for name in weights) / sum(weights.values())
    highest = np.sort(mean, axis=1)[:, ::-1]
    low, median, high = similarity_by_rank_of([run])["v2"]
    assert median == pytest.approx(np.median(highest[:, :10], axis=0)[: len(median)], abs=1e-5)
    assert (low <= median).all()
    assert (median <= high).all()


def test_epochs_equal_those_of_the_metrics_file(trained):
    data = epochs_of([trained["v2"], trained["ral"]])
    assert data.epoch["v2"] == (1,)
    assert tuple(data.sum_r["v2"].mean) == tuple(entry["val"]["SumR"] for entry in trained["v2"].history)
    assert data.uncertainty["v2"] == {}
    of_ral = trained["ral"].history[0]["val"]
    assert data.uncertainty["ral"]["video_uncertainty"].mean == pytest.approx([of_ral["video_uncertainty"]])
    assert data.uncertainty["ral"]["query_uncertainty"].mean == pytest.approx([of_ral["query_uncertainty"]])


def other_seed(run, **changes):
    """The same run with another seed in its settings."""
    config = dataclasses.replace(run.config, train=dataclasses.replace(run.config.train, seed=9))
    return dataclasses.replace(run, label=f"{run.label}_seed9", config=config, **changes)


def test_runs_that_differ_only_in_their_seed_are_one_line_with_a_band(trained):
    first = trained["v2"]
    sum_r = first.history[0]["val"]["SumR"]
    history = [{**first.history[0], "val": {**first.history[0]["val"], "SumR": sum_r + 2}}]
    second = other_seed(first, history=history)
    data = epochs_of([first, trained["ral"], second])
    assert list(data.sum_r) == ["gmmformer_v2", "ral"]
    spread = data.sum_r["gmmformer_v2"]
    assert (spread.mean.tolist(), spread.num_seeds) == ([sum_r + 1], 2)
    assert spread.deviation == pytest.approx([np.sqrt(2)])
    assert data.sum_r["ral"].deviation is None
    axes = draw_epochs(data).axes[0]
    assert (len(axes.lines), len(axes.collections)) == (2, 1)
    assert [group.label for group in group_by_seed([first, trained["v2_weight"]])] == ["v2", "v2_weight"]


def test_positioning_variances_have_a_band_over_seeds(trained, untrained):
    second = other_seed(trained["v2"], model=untrained.model)
    data = positioning_variances_of([trained["v2"], trained["ral"], second])
    assert list(data.by_label) == ["gmmformer_v2", "ral"]
    alone = positioning_variances_of([untrained]).by_label["untrained"]
    assert np.array_equal(data.by_label["gmmformer_v2"][1:], alone)
    assert len(data.by_label["ral"]) == 1
    bands = [patch for patch in draw_positioning_variances(data).axes[0].patches if patch.get_alpha() is not None]
    assert len(bands) == 1


def test_recall_by_uncertainty_has_a_band_over_seeds(trained):
    ral, v2 = trained["ral"], trained["v2"]
    rank = np.where(v2.rank == 1, 2, 1)  # finds what the first seed does not
    second = other_seed(v2)
    vars(second)["rank"] = rank
    data = recall_by_uncertainty_of([ral, v2, second])
    spread = data.recall["gmmformer_v2"]
    assert spread.mean == pytest.approx(np.full(len(data.level), 50))
    first = recall_by_uncertainty_of([ral, v2]).recall["v2"].mean
    assert spread.deviation == pytest.approx(np.abs(2 * first - 100) / np.sqrt(2))
    assert data.error["gmmformer_v2"] == pytest.approx(np.zeros(len(data.level)))
    assert data.recall["ral"].deviation is None
    assert draw_recall_by_uncertainty(data).axes[0].get_legend_handles_labels()[1] == ["ral", "gmmformer_v2"]


def test_runs_of_one_seed_or_of_other_features_are_not_seeds_of_one_model(trained):
    first = trained["v2"]
    with refused(ConfigError, "v2", "again", "seed"):
        group_by_seed([first, dataclasses.replace(first, label="again")])
    data = dataclasses.replace(first.config.data, video_features="other")
    other = dataclasses.replace(first, label="other", config=dataclasses.replace(first.config, data=data))
    assert [group.label for group in group_by_seed([first, other])] == ["v2", "other"]


def test_an_untrained_model_is_at_epoch_0(trained, untrained):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    data = epochs_of([untrained])
    assert data.epoch == {"untrained": (0,)}
    axes = draw_epochs(data).axes[0]
    axes.figure.draw_without_rendering()
    assert axes.lines[0].get_xdata().tolist() == [0]
    assert [tick.get_text() for tick in axes.get_xticklabels() if abs(tick.get_position()[0]) <= 0.5] == ["0"]
    assert draw_epochs(epochs_of([untrained, trained["v2"]])).axes[0].lines[1].get_xdata().tolist() == [1]


# -- words, sweep


def test_words_are_named_if_features_have_a_row_for_each():
    assert word_names("He opens 'it', then waits ...", 5) == ("He", "opens", "it", "then", "waits")
    assert word_names("unbelievable", 3) == ("1", "2", "3")


def test_word_confidences_sum_to_one_and_words_are_compared_with_every_frame(trained):
    run = trained["ral"]
    data = word_confidence_of(run, run.dataset.caption_ids[5])
    words = run.dataset.texts[5].strip(".").split()
    assert list(data.words) == words
    assert data.confidence.sum() == pytest.approx(1, abs=1e-6)
    frames = run.dataset.features.frames.lengths[run.dataset.video_index[5]]
    assert data.similarity.shape == (len(words), frames)
    csa = run.model.score(run.queries(np.array([5])), run.videos(run.dataset.video_index[[5]]))["frame"].value
    # The released score: no word counts below 0 in a video with padding.
    best = data.similarity.max(axis=1)
    best = np.maximum(best, 0) if frames < 20 else best
    assert float(csa.detach()) == pytest.approx(float(data.confidence @ best), abs=1e-5)


def test_even_confidences_weight_all_words_equally(trained):
    run = trained["ral"]
    data = word_confidence_of(run, run.dataset.caption_ids[5])
    assert data.rank == run.rank[5]
    even = with_even_confidences(run)
    words = even.queries(np.array([5])).attached["ral"]
    assert words.word_weights[0][words.word_mask[0]].numpy() == pytest.approx(1 / int(words.word_mask.sum()))
    assert data.even_rank == even.rank[5]
    assert len(set(data.confidence.round(6))) > 1  # the run itself is unchanged
    # The model was built with that setting, so its config agrees with its parts.
    assert plain_settings(even.model.config)["ral"]["confidences"] == "even"


def test_a_sweep_over_several_settings_shares_its_base_run():
    base = {"w.a": 1.0, "w.b": 1.0, "m": "x"}
    runs = {"a2": base | {"w.a": 2.0}, "base": base, "a3": base | {"w.a": 3.0}, "b5": base | {"w.b": 5.0}}
    assert swept_settings(runs) == {"w.a": ["a2", "base", "a3"], "w.b": ["base", "b5"]}
    with refused(ConfigError, "m", "w.a"):
        swept_settings({"base": base, "far": base | {"w.a": 2.0, "m": "y"}})
    with pytest.raises(ConfigError):
        swept_settings({"first": base, "second": base})


def test_a_sweep_ignores_seeds_and_data_roots():
    settings = {"train": {"seed": 3, "epochs": 2}, "data": {"root": "a"}, "weights": {"nce": 0.1}, "losses": {}}
    assert comparable_settings(settings) == {"train.epochs": 2, "weights.nce": 0.1, "losses": {}}


def test_a_sweep_sorts_results_by_value_and_knows_the_published_value(trained):
    first, second = trained["v2_weight"], trained["v2"]
    (curve,) = sweep_of([first, second])
    assert curve.setting == "weights.clip_nce"
    assert curve.values == (0.05, 0.5)
    assert curve.published == 0.05
    assert curve.sum_r == ((recall(second.rank)["SumR"],), (recall(first.rank)["SumR"],))


def test_a_list_of_one_number_counts_as_that_number_in_a_sweep(trained):
    def with_widths(label, *widths):
        model = trained["v2"].config.model | {"gaussian_widths": list(widths)}
        return dataclasses.replace(
            trained["v2"], label=label, config=dataclasses.replace(trained["v2"].config, model=model)
        )

    runs = [with_widths("narrow", 0.5), with_widths("wide", np.inf)]
    (curve,) = sweep_of(runs)
    assert curve.values == (0.5, np.inf)
    with refused(ConfigError, "gaussian_widths", "[0.5, 1.0]"):
        sweep_of([*runs, with_widths("both", 0.5, 1.0)])


def test_a_sweep_over_text_is_refused(trained):
    run = trained["v2"]
    model = run.config.model | {"window": "paper"}
    variant = dataclasses.replace(run, label="variant", config=dataclasses.replace(run.config, model=model))
    with refused(ConfigError, "model.window", "'released'"):
        sweep_of([run, variant])


def test_runs_with_different_captions_are_refused(trained):
    run = trained["v2"]
    reversed_dataset = dataclasses.replace(run.dataset, annotations=run.dataset.annotations[::-1])
    with pytest.raises(ConfigError):
        require_same_split([run, dataclasses.replace(run, dataset=reversed_dataset)])
