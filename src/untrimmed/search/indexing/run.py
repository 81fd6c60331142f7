"""What an indexing run settles before its first file, encoder, sampling and model, and what it says at its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import CheckpointError, UntrimmedError
from untrimmed.search.corpora.corpus import SearchModel
from untrimmed.search.corpora.engine import TRAINING_FREE, model_in_use, training_free
from untrimmed.search.indexing.pipeline import Indexer, IndexReport, ProgressCallback
from untrimmed.search.indexing.video_files import FRAMES_TOGETHER, Workers
from untrimmed.search.store.records import NO_SETTINGS, Settings, joined_products
from untrimmed.search.store.table import VideoIndex
from untrimmed.video.reader import Sampling, VideoReader


def fill(
    folder: Path,
    files: Sequence[Path],
    choose: Callable[[Settings | None, str | None], LoadedEncoder],
    *,
    encoder: str | None,
    sampling: Callable[[Settings | None], Sampling],
    workers: Callable[[Settings, Sampling], Workers] | None,
    progress: ProgressCallback | None,
) -> tuple[LoadedEncoder, IndexReport]:
    """Bring the library in a folder up to date with files; `choose` and `sampling` are asked with its settings.

    `workers` makes those that encode, where this process does not.

    Raises:
        UntrimmedError: A merge into it has not ended, or its settings are lost.
        IndexMismatchError: It was made by another encoder.
        IndexBusyError: Another process is writing to it.
    """
    with VideoIndex(folder, create=True) as index:
        before = index.settings
        if before is None and len(index):
            raise UntrimmedError(f"{folder}: {NO_SETTINGS}")
        sampled = sampling(before)
        if encoder is not None and len(index) == 0:
            before = None  # there are no vectors yet that another encoder's could not be compared with
        loaded = choose(before, encoder)
        settings = _settings(before, loaded, sampled)
        used = model_in_use(folder, settings.model, settings.model_folder)
        was = {record.path: record.sampling for record in index.scan()}
        if before != settings:
            index.write_settings(settings)
        with VideoReader(sampling=sampled, short_side=loaded.encoder.short_side, batch_size=FRAMES_TOGETHER) as reader:
            indexer = Indexer(index, loaded.encoder, reader, settings, used)
            report = indexer.run(files, progress, workers(settings, sampled) if workers is not None else None)
    changed = before is not None and _say_resampled(before, settings, [was.get(str(path)) for path in report.done])
    return loaded, replace(report, notice=loaded.notice or changed or None)


def _settings(before: Settings | None, loaded: LoadedEncoder, sampling: Sampling) -> Settings:
    """Of the library from now on."""
    settings = Settings(
        encoder=loaded.encoder.name,
        encoder_identity=loaded.encoder.identity,
        frame_dim=loaded.encoder.frame_dim,
        word_dim=loaded.encoder.word_dim,
        fps=sampling.fps,
        keyframes_only=sampling.keyframes_only,
        products=joined_products([before.products, loaded.products] if before else [loaded.products]),
    )
    if before is None:
        return settings
    return replace(settings, model=before.model, model_folder=before.model_folder)


def _say_resampled(before: Settings, now: Settings, replaced: Iterable[str | None]) -> str | None:
    """One line where the library's sampling has changed; `replaced` is that of the records that made room."""
    if before.sampling == now.sampling:
        return None
    count = sum(sampling not in (None, now.sampling) for sampling in replaced)
    videos = "1 video is" if count == 1 else f"{count} videos are"
    return f"sampling changed from {before.sampling} to {now.sampling}: {videos} encoded anew"


def choose_sampling(settings: Settings | None, fps: float | None, keyframes_only: bool | None) -> Sampling:
    """What was asked for, and the library's own where nothing was."""
    before = Sampling(settings.fps, settings.keyframes_only) if settings else Sampling()
    if fps is not None and keyframes_only is None:
        keyframes_only = False
    return Sampling(
        fps=before.fps if fps is None else fps,
        keyframes_only=before.keyframes_only if keyframes_only is None else keyframes_only,
    )


def named_model(model: str | os.PathLike[str] | None, settings: Settings) -> SearchModel:
    """Return the model that `Library.use` names, which fits the library.

    Raises:
        CheckpointError: There is no model in the folder, or a damaged one.
        IndexMismatchError: It was trained on features of another encoder, or of other widths.
    """
    if named := training_free(model):
        return named
    assert model is not None, "that is training-free"
    from untrimmed.models.registry import is_method
    from untrimmed.search.corpora.trained import TrainedModel

    if not Path(model).exists() and is_method(os.fspath(model)):
        raise CheckpointError(f"{model}: is a method; train it (untrimmed train {model}), then name the run's folder")
    if not Path(model).exists():
        raise CheckpointError(
            f"{model}: no such folder; name the one that `untrimmed train` wrote, or what needs no training: "
            f"{', '.join(TRAINING_FREE)}"
        )
    trained = TrainedModel(model)
    trained.check_encoder(settings.encoder_identity)
    trained.check_widths(frame_dim=settings.frame_dim, word_dim=settings.word_dim)
    return trained
