"""Run indexing: choose the encoder, sampling and model, then index the files."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from untrimmed.encoders.encoder import ClipEncoder, Encoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import CheckpointError, ConfigError, UntrimmedError
from untrimmed.passages.source import create_source
from untrimmed.search.corpora.corpus import SearchModel
from untrimmed.search.corpora.engine import TRAINING_FREE, load_search_model, training_free_model
from untrimmed.search.corpora.frames import NAME
from untrimmed.search.indexing.pipeline import Indexer, IndexReport, ProgressCallback
from untrimmed.search.indexing.video_files import Workers, open_reader
from untrimmed.search.store.records import DEFAULT_SOURCES, NO_SETTINGS, Settings, joined_products
from untrimmed.search.store.table import VideoIndex
from untrimmed.video.reader import Sampling


def index_files(
    folder: Path,
    files: Sequence[Path],
    choose_encoder: Callable[[Settings | None], LoadedEncoder],
    *,
    replace_empty: bool,
    fps: float | None,
    keyframes_only: bool | None,
    thumbnails: bool | None,
    workers: Callable[[Settings], Workers] | None,
    pictures_fps: float | None,
    sources: Mapping[str, Mapping[str, Any] | None],
    progress: ProgressCallback | None,
) -> tuple[LoadedEncoder, IndexReport]:
    """Update the library in a folder from files. Return its encoder and the report.

    Args:
        choose_encoder: Returns the encoder for a library with these settings.
        replace_empty: Whether to ignore the settings of a library without videos.
        workers: Returns the workers that decode and encode for a library with these settings. By default, this process
            decodes and encodes.
        thumbnails, pictures_fps, sources: See `Library.index`.

    Raises:
        UntrimmedError: The library has no settings, for example because a merge into it was interrupted.
        IndexMismatchError: The library was made by another encoder.
        IndexBusyError: Another process is writing to the library.
    """
    with VideoIndex(folder, create=True) as index:
        if fps is not None:
            Sampling(fps)  # check the rate before the encoder is loaded
        previous = index.settings
        if previous is None and len(index):
            raise UntrimmedError(f"{folder}: {NO_SETTINGS}")
        stored_sampling = Sampling(previous.fps, previous.keyframes_only) if previous else None
        if replace_empty and len(index) == 0:
            previous = None
        loaded = choose_encoder(previous)
        sampling = _sampling(loaded.encoder, stored_sampling, fps, keyframes_only)
        settings = _settings(previous, loaded, sampling, thumbnails, sources)
        for name in (name for name in sources if name in settings.sources):
            create_source(name, settings.sources[name]).check()  # fail now, not after hours of indexing
        model = load_search_model(folder, settings.model, settings.model_folder)
        sampling_of = {record.path: record.sampling for record in index.scan()}
        if previous != settings:
            index.write_settings(settings)
        with open_reader(settings, loaded.encoder) as reader:
            indexer = Indexer(index, loaded.encoder, reader, settings, model)
            file_workers = workers(settings) if workers is not None else None
            report = indexer.run(files, progress, file_workers, pictures_fps, add_thumbnails=bool(thumbnails))
            indexer.read_passages(files, settings.sources, again=sources.keys() & settings.sources.keys())
    notice = loaded.notice
    if not notice and previous is not None and previous.sampling != settings.sampling:
        changed = [sampling_of.get(str(path), settings.sampling) != settings.sampling for path in report.done]
        videos = "1 video is" if sum(changed) == 1 else f"{sum(changed)} videos are"
        notice = f"sampling changed from {previous.sampling} to {settings.sampling}: {videos} encoded again"
    return loaded, replace(report, notice=notice or None)


def _settings(
    previous: Settings | None,
    loaded: LoadedEncoder,
    sampling: Sampling,
    thumbnails: bool | None,
    sources: Mapping[str, Mapping[str, Any] | None],
) -> Settings:
    """Return the settings of the library for this run and later runs."""
    used = {**(DEFAULT_SOURCES if previous is None else previous.sources)}
    unused = {} if previous is None else {**previous.unused_sources}
    for name, values in sources.items():
        if values is not None:
            used[name] = {**unused.pop(name, {}), **used.get(name, {}), **values}
        elif kept := used.pop(name, None):
            unused[name] = kept
    return Settings(
        encoder=loaded.encoder.name,
        encoder_identity=loaded.encoder.identity,
        frame_dim=loaded.encoder.frame_dim,
        word_dim=loaded.encoder.word_dim,
        fps=sampling.fps,
        keyframes_only=sampling.keyframes_only,
        products=joined_products([previous.products, loaded.products] if previous else [loaded.products]),
        model=previous.model if previous else NAME,
        model_folder=previous.model_folder if previous else None,
        thumbnails=(previous is None or previous.thumbnails) if thumbnails is None else thumbnails,
        sources=used,
        unused_sources=unused,
    )


def _sampling(encoder: Encoder, previous: Sampling | None, fps: float | None, keyframes_only: bool | None) -> Sampling:
    """Return the sampling for this run.

    Options that are None are taken from the library's settings, or for a new library from the encoder.

    Raises:
        ConfigError: Only key frames are requested, but the encoder needs all frames.
    """
    default = Sampling(encoder.fps) if isinstance(encoder, ClipEncoder) else Sampling()
    previous = previous or default
    if fps is not None and keyframes_only is None:
        keyframes_only = False
    sampling = Sampling(
        fps=previous.fps if fps is None else fps,
        keyframes_only=previous.keyframes_only if keyframes_only is None else keyframes_only,
    )
    if isinstance(encoder, ClipEncoder) and sampling.keyframes_only:
        raise ConfigError(f"{encoder.name}: encodes clips, which need all frames; use --no-keyframes, not --keyframes")
    return sampling


def model_by_name(model: str | os.PathLike[str] | None, settings: Settings | None) -> SearchModel:
    """Return the training-free model with this name, or the trained model in this folder.

    If `settings` is None (as for a new library), the function does not check that the model fits the library's encoder.

    Raises:
        CheckpointError: The folder has no model, or a damaged one.
        IndexMismatchError: The model was trained on features of another encoder, or of other widths.
    """
    if search_model := training_free_model(model):
        return search_model
    assert model is not None, "that is training-free"
    from untrimmed.models.registry import is_method
    from untrimmed.search.corpora.trained import TrainedModel

    if not Path(model).exists():
        if is_method(os.fspath(model)):
            raise CheckpointError(
                f"{model}: is a method; train it (untrimmed train {model}), then name the run's folder"
            )
        raise CheckpointError(
            f"{model}: no such folder; name a folder that `untrimmed train` wrote, or a model without training: "
            f"{', '.join(TRAINING_FREE)}"
        )
    trained = TrainedModel(model)
    if settings is not None:
        trained.check_encoder(settings.encoder_identity)
        trained.check_widths(frame_dim=settings.frame_dim, word_dim=settings.word_dim)
    return trained
