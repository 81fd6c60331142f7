"""Export the stored frames of a library, and captions, as a data set for training. No video is decoded again.

    OUT/NAME/captions.jsonl, frames/<video>.npy, words.h5        the plain layout, see `untrimmed.data.plain`
    OUT/NAME/FeatureData/<encoder>/..., TextData/...             the standard layout, see `untrimmed.data.bigfile`
    OUT/NAME/features.json                                       encoder and sampling, see `untrimmed.data.origin`

If `untrimmed data prepare` wrote the captions, the features are in the standard layout. Training gets the same vectors
as search: stored frames, and words that are encoded like the words of queries.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import Annotation
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.labelled import Label, captions_by_split
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import read_split
from untrimmed.data.origin import ORIGIN, encoder_identity_of
from untrimmed.data.sources import read_pieces
from untrimmed.data.subtitles import read_subtitles
from untrimmed.data.writing import write_annotations, write_captions, write_frames, write_tables, write_words
from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.features.kinds import feature_name
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_file, whole_folder, write_whole
from untrimmed.search.store.records import Records, Settings, VideoRecord
from untrimmed.search.store.table import VideoIndex

ExportLayout = Literal["plain", "field"]

_BATCH_SIZE = 64  # number of texts that are encoded together


@dataclass(frozen=True)
class ExportedFeatures:
    """The result of an export: the data set's folder, numbers of videos and captions, and widths of vectors."""

    folder: Path
    num_videos: int
    captions: Mapping[str, int]  # number of captions by split
    frame_dim: int
    word_dim: int
    left_out: tuple[Label, ...]  # captions whose videos are not in the library


def prepared_data_set(out: Path, name: str, layout: ExportLayout | None, *, captions: bool) -> Layout | None:
    """Return the data set OUT/NAME with captions of `untrimmed data prepare`, or None if OUT/NAME does not exist.

    Raises:
        ConfigError: The name is invalid; OUT/NAME is another kind of folder; it has features of another encoder; or it
            has prepared captions, but `captions` or `layout="plain"` was requested.
    """
    if Path(name).name != name:
        raise ConfigError(f"name {name!r} is not the name of a folder; choose a plain --name, such as 'mine'")
    target = Layout(name, out / name)
    if not target.folder.exists():
        return None
    if not target.benchmark_note.is_file():
        raise ConfigError(f"{target.folder} already exists; choose another --name, or remove it first")
    if captions or layout == "plain":
        option = "--captions" if captions else "--layout plain"
        raise ConfigError(f"{target.folder}: has prepared captions; remove {option}, or choose another --name")
    if not (target.folder / ORIGIN).is_file() and (target.frame_sources() or target.words.is_file()):
        raise _foreign_features_error(target)
    return target


def _foreign_features_error(target: Layout) -> ConfigError:
    return ConfigError(
        f"{target.folder}: has features of another encoder; prepare the captions again under another name, "
        f"untrimmed data prepare ... --name {target.name}_own, and use that --name here"
    )


def export_features(
    index: VideoIndex,
    records: Records,
    encoder: Encoder,
    out: Path,
    *,
    name: str,
    layout: ExportLayout | None,
    labels: Sequence[Label],
    progress: Callable[[int, int], None] | None = None,
) -> ExportedFeatures:
    """Write the frames of the records' videos, and the captions with their word vectors, to OUT/NAME.

    The videos of captions without a split are divided into train, val and test. If OUT/NAME already has prepared
    captions, the captions of videos that are not exported are removed. If the export fails and OUT/NAME did not exist
    before, it is removed.

    Raises:
        ConfigError: See `prepared_data_set`.
        UnknownNameError: The name of a caption's video matches several files.
        FeatureError: There are no videos, or none has captions; a moment is outside its video; fewer than three videos
            have captions, so they cannot be divided; or the folder cannot be written.
    """
    prepared = prepared_data_set(out, name, layout, captions=bool(labels))
    settings = index.settings
    if not records or settings is None:
        raise FeatureError(f"{index.folder}: no videos to export; index some first")
    if prepared is not None:
        return _add_features(index, records, settings, encoder, prepared, progress)
    layout = layout or "plain"
    ids = _video_ids([record.path for record in records], layout)
    captions, left_out = _captions(labels, records, ids, layout)
    frames = _stored_frames(index, {ids[record.path]: record for record in records}, progress)
    try:
        with whole_folder(out / name) as temporary:
            target = Layout(name, temporary)
            write_frames(target, layout, feature_name(settings.encoder), frames)
            if labels:
                write_captions(target, layout, captions)
                write_words(target, layout, _words(list(chain.from_iterable(captions.values())), encoder))
            (temporary / ORIGIN).write_text(_origin(settings, len(records)), encoding="utf-8")
    except OSError as error:
        what = f"{out / name}: cannot be written ({error})"
        raise FeatureError(f"{what}; free space or choose another folder (out)") from error
    counts = {split: len(group) for split, group in captions.items()}
    return ExportedFeatures(out / name, len(records), counts, settings.frame_dim, settings.word_dim, tuple(left_out))


def _add_features(
    index: VideoIndex,
    records: Records,
    settings: Settings,
    encoder: Encoder,
    target: Layout,
    progress: Callable[[int, int], None] | None,
) -> ExportedFeatures:
    """Add the vectors of frames, words and subtitles (if any) to a data set with prepared captions.

    The file with the encoder and sampling is written first, so that it also describes the files of an interrupted
    export.
    """
    if encoder_identity_of(target.folder) not in (None, settings.encoder_identity):
        raise _foreign_features_error(target)
    captions = {
        split: read_split(target.name, target.folder.parent, split)
        for split in SPLITS
        if target.captions(split).is_file()
    }
    videos, left_out = _videos_of_captions(captions, records, target)
    missing = {label.video for label in left_out}
    usable = {split: [c for c in captions.get(split, ()) if c.video not in missing] for split in SPLITS}
    # the val and test splits may have the same captions
    distinct = {caption.caption_id: caption for caption in chain.from_iterable(usable.values())}
    frames = target.folder / "FeatureData" / feature_name(settings.encoder)
    try:
        write_whole(target.folder / ORIGIN, _origin(settings, len(videos)))
        shutil.rmtree(frames, ignore_errors=True)
        write_frames(target, "field", frames.name, _stored_frames(index, videos, progress))
        with whole_file(target.words) as temporary:
            write_tables(temporary, _words(list(distinct.values()), encoder))
        if target.subtitles.is_file():
            with whole_file(target.subtitle_vectors) as temporary:
                write_tables(temporary, _passage_vectors(target, encoder))
        for split, original in captions.items():
            if usable[split] != original:
                write_annotations(target, split, usable[split])
    except OSError as error:
        raise FeatureError(f"{target.folder}: cannot be written ({error}); free space, then run this again") from error
    counts = {split: len(group) for split, group in usable.items()}
    return ExportedFeatures(target.folder, len(videos), counts, settings.frame_dim, settings.word_dim, tuple(left_out))


def _videos_of_captions(
    captions: Mapping[str, list[Annotation]], records: Records, target: Layout
) -> tuple[dict[str, VideoRecord], list[Label]]:
    """Return the videos of captions by id, and one caption for each video that is not in the library.

    A video that was joined from pieces counts as being in the library if all its pieces are in the library.
    """
    pieces = read_pieces(target.merged_videos) if target.merged_videos.is_file() else {}
    videos: dict[str, VideoRecord] = {}
    missing: dict[str, Label] = {}
    for split, group in captions.items():
        for video, caption in {caption.video: caption for caption in group}.items():
            names = [video] if records.named(video) else pieces.get(video, [video])
            matches = {name: record for name in names if (record := records.find(name))}
            if len(matches) == len(set(names)):
                videos |= matches
            else:
                missing.setdefault(video, Label(video, caption.text, None, split, str(target.captions(split))))
    if not videos:
        raise FeatureError(
            f"{target.folder}: none of the {len(missing)} videos with captions, such as {next(iter(missing))!r}, is "
            f"among the {len(records)} exported videos; rename the files, or export other videos"
        )
    return videos, list(missing.values())


def _video_ids(paths: Sequence[str], layout: ExportLayout) -> dict[str, str]:
    """Return the name of each video in the data set, by path.

    The name is the stem if all stems are unique, else the file name if all file names are unique, else the relative
    path. In the standard layout, names cannot contain white space or `#`, so these characters are percent-encoded.
    """
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    choices = (
        {path: Path(path).stem for path in paths},
        {path: Path(path).name for path in paths},
        {path: Path(path).relative_to(common).as_posix() for path in paths},
    )
    ids = next(names for names in choices if len(set(names.values())) == len(paths))
    return ids if layout == "plain" else {path: quote(name, safe="") for path, name in ids.items()}


def _captions(
    labels: Sequence[Label], records: Records, ids: Mapping[str, str], layout: ExportLayout
) -> tuple[dict[str, list[Annotation]], list[Label]]:
    """Return the captions of each split, and the captions whose videos are not in the library."""
    matches = [(label, records.find(label.video)) for label in labels]
    usable = [(label, ids[record.path], record.duration_s) for label, record in matches if record is not None]
    if labels and not usable:
        raise FeatureError(
            f"{labels[0].place}: none of the videos with captions, such as {labels[0].video!r}, is among the "
            f"{len(records)} exported videos; name them by path, file name or name without suffix"
        )
    return captions_by_split(usable, plain=layout == "plain"), [label for label, record in matches if record is None]


def _stored_frames(
    index: VideoIndex, records: Mapping[str, VideoRecord], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, Float[np.ndarray, "T D"]]]:
    """Yield the name of each video and its stored frame vectors."""
    for done, (video, record) in enumerate(records.items(), start=1):
        stored = index.get(record.video_id)
        if stored is None:
            raise FeatureError(f"{record.path}: was removed from {index.folder} during the export; run it again")
        yield video, stored.features.vectors.astype(np.float32)
        if progress is not None:
            progress(done, len(records))


def _words(captions: Sequence[Annotation], encoder: Encoder) -> Iterator[tuple[str, np.ndarray]]:
    for start in range(0, len(captions), _BATCH_SIZE):
        batch = captions[start : start + _BATCH_SIZE]
        for caption, features in zip(batch, encoder.encode_texts([c.text for c in batch]), strict=True):
            yield caption.caption_id, features.words


def _passage_vectors(target: Layout, encoder: Encoder) -> Iterator[tuple[str, Float[np.ndarray, "P E"]]]:
    """Yield each video with subtitles, and the mean word vector of each of its passages."""
    for video, passages in read_subtitles(target.subtitles).items():
        texts = [passage.text for passage in passages]
        batches = (texts[start : start + _BATCH_SIZE] for start in range(0, len(texts), _BATCH_SIZE))
        vectors = [features.words.mean(axis=0) for batch in batches for features in encoder.encode_texts(batch)]
        if vectors:
            yield video, np.stack(vectors)


def _origin(settings: Settings, num_videos: int) -> str:
    names = ("encoder", "encoder_identity", "sampling", "frame_dim", "word_dim")
    return json.dumps({name: getattr(settings, name) for name in names} | {"num_videos": num_videos}, indent=2) + "\n"
