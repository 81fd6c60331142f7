"""A library's frames and people's sentences about them as a data set that methods train on; nothing is decoded again.

    OUT/NAME/captions.jsonl, frames/<video>.npy, words.h5        the plain layout, see `untrimmed.data.plain`
    OUT/NAME/FeatureData/<encoder>/..., TextData/...             the field's layout, see `untrimmed.data.bigfile`
    OUT/NAME/features.json                                       encoder and sampling, see `untrimmed.data.origin`

Beside captions that `untrimmed data prepare` wrote, frames and words are put in the field's layout.

The vectors are those that `Library.use` hands to a trained model, and words come from the encoder that reads queries.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from untrimmed.data.prepare import write_annotations
from untrimmed.data.sources import read_pieces
from untrimmed.data.writing import write_captions, write_frames, write_tables, write_words
from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_file, whole_folder, write_whole
from untrimmed.search.store.records import Records, Settings, VideoRecord
from untrimmed.search.store.table import VideoIndex

ExportLayout = Literal["plain", "field"]

_TEXTS_AT_A_TIME = 64


@dataclass(frozen=True)
class ExportedFeatures:
    """What was written: the data set's folder, videos with frames, captions of each split, widths of the vectors."""

    folder: Path
    num_videos: int
    captions: Mapping[str, int]
    frame_dim: int
    word_dim: int
    left_out: tuple[Label, ...]  # their videos are not in the library


def prepared_at(out: Path, name: str, layout: ExportLayout | None, *, captions: bool) -> Layout | None:
    """The data set at OUT/NAME whose captions `prepare` has written, to put features beside; None for a new one.

    Raises:
        ConfigError: The name cannot be that of a data set, something else is there already, or `captions` are given,
            or another `layout` is, beside prepared ones.
    """
    if Path(name).name != name:
        raise ConfigError(f"name {name!r} is not that of a folder; choose a plain --name, such as 'mine'")
    target = Layout(name, out / name)
    if not target.folder.exists():
        return None
    if not target.benchmark_note.is_file():
        raise ConfigError(f"{target.folder} is already there; choose another --name, or remove it first")
    if captions or layout == "plain":
        given = "--captions" if captions else "--layout plain"
        raise ConfigError(
            f"{target.folder}: has prepared captions already; leave {given} out, or choose another --name"
        )
    if not (target.folder / ORIGIN).is_file() and (target.frame_sources() or target.words.is_file()):
        raise _not_ours(target)
    return target


def _not_ours(target: Layout) -> ConfigError:
    return ConfigError(
        f"{target.folder}: has features of another network; prepare the captions again under a name for these, "
        f"untrimmed data prepare ... --name {target.name}_own, and give that --name here"
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
    """Write the frames of these videos, and the captions with their words, to OUT/NAME, whole or not at all.

    Captions without a split are dealt by video, see `untrimmed.data.labelled.deal_videos`. Beside prepared captions,
    these alone get words, and those of videos that are not there are taken out.

    Raises:
        ConfigError: OUT/NAME is already there, and not prepared, or not for these features.
        UnknownNameError: A label's video fits several files.
        FeatureError: There are no videos, or none that a caption is about; a moment lies outside its video; captions of
            fewer than three videos cannot be dealt; the folder cannot be written.
    """
    prepared = prepared_at(out, name, layout, captions=bool(labels))
    settings = index.settings
    if not records or settings is None:
        raise FeatureError(f"{index.folder}: no videos to export; index some first")
    if prepared is not None:
        return _add_features(index, records, settings, encoder, prepared, progress)
    layout = layout or "plain"
    ids = _video_ids([record.path for record in records], layout)
    splits, left_out = _captions(labels, records, ids, layout)
    frames = _stored_frames(index, {ids[record.path]: record for record in records}, progress)
    try:
        with whole_folder(out / name) as temporary:
            target = Layout(name, temporary)
            write_frames(target, layout, Path(settings.encoder).name, frames)
            if labels:
                write_captions(target, layout, splits)
                everything = [caption for captions in splits.values() for caption in captions]
                write_words(target, layout, _words(everything, encoder))
            (temporary / ORIGIN).write_text(_about(settings, len(records)), encoding="utf-8")
    except OSError as error:
        raise FeatureError(f"{out / name}: cannot be written ({error}); free space or choose another --out") from error
    counts = {split: len(captions) for split, captions in splits.items()}
    return ExportedFeatures(out / name, len(records), counts, settings.frame_dim, settings.word_dim, tuple(left_out))


def _add_features(
    index: VideoIndex,
    records: Records,
    settings: Settings,
    encoder: Encoder,
    target: Layout,
    progress: Callable[[int, int], None] | None,
) -> ExportedFeatures:
    """Write frames and words beside prepared captions; the note goes first, so that the rest is known as ours."""
    if encoder_identity_of(target.folder) not in (None, settings.encoder_identity):
        raise _not_ours(target)
    captions = {
        split: read_split(target.name, target.folder.parent, split)
        for split in SPLITS
        if target.captions(split).is_file()
    }
    found, left_out = _videos_of_captions(captions, records, target)
    missing = {label.video for label in left_out}
    kept = {split: [caption for caption in own if caption.video not in missing] for split, own in captions.items()}
    distinct = {caption.caption_id: caption for own in kept.values() for caption in own}  # val may be test
    frames = target.folder / "FeatureData" / Path(settings.encoder).name
    try:
        write_whole(target.folder / ORIGIN, _about(settings, len(found)))
        shutil.rmtree(frames, ignore_errors=True)
        write_frames(target, "field", frames.name, _stored_frames(index, found, progress))
        with whole_file(target.words) as temporary:
            write_tables(temporary, _words(list(distinct.values()), encoder))
        for split, own in kept.items():
            if own != captions[split]:
                write_annotations(target, split, own)
    except OSError as error:
        raise FeatureError(f"{target.folder}: cannot be written ({error}); free space, then run this again") from error
    counts = {split: len(kept.get(split, ())) for split in SPLITS}
    return ExportedFeatures(target.folder, len(found), counts, settings.frame_dim, settings.word_dim, tuple(left_out))


def _videos_of_captions(
    captions: Mapping[str, list[Annotation]], records: Records, target: Layout
) -> tuple[dict[str, VideoRecord], list[Label]]:
    """The videos that captions are about, or the pieces they were joined of, and a label for each that is not there."""
    pieces = read_pieces(target.merged_videos) if target.merged_videos.is_file() else {}
    found: dict[str, VideoRecord] = {}
    left_out: list[Label] = []
    for split, own in captions.items():
        for video, caption in {caption.video: caption for caption in own}.items():
            names = [video] if records.named(video) else pieces.get(video, [video])
            parts = {name: record for name in names if (record := records.find(name))}
            if len(parts) == len(set(names)):
                found |= parts
            elif all(label.video != video for label in left_out):
                left_out.append(Label(video, caption.text, None, split, str(target.captions(split))))
    if not found:
        raise FeatureError(
            f"{target.folder}: none of the {len(left_out)} videos with captions is among the {len(records)} given, "
            f"e.g. {left_out[0].video!r}; name the files so, or give others"
        )
    return found, left_out


def _video_ids(paths: Sequence[str], layout: ExportLayout) -> dict[str, str]:
    """Path -> the name in the data set: the shortest of stem, file name, relative path that tells all videos apart.

    The field's files cannot hold white space or `#` in a name; there, such characters are percent-encoded.
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
    """The captions of each split, and the labels whose videos are not there."""
    found = [(label, records.find(label.video)) for label in labels]
    usable = [(label, ids[record.path], record.duration_s) for label, record in found if record is not None]
    if labels and not usable:
        raise FeatureError(
            f"{labels[0].place}: video {labels[0].video!r} and all others with captions are not among the "
            f"{len(records)} videos; name them by path, file name or name without suffix"
        )
    return captions_by_split(usable, plain=layout == "plain"), [label for label, record in found if record is None]


def _stored_frames(
    index: VideoIndex, records: Mapping[str, VideoRecord], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, Float[np.ndarray, "T D"]]]:
    """Frame vectors by video, float32, one video at a time."""
    for done, (video, record) in enumerate(records.items(), start=1):
        stored = index.get(record.video_id)
        if stored is None:
            raise FeatureError(f"{record.path}: was removed from {index.folder} meanwhile; run this again")
        yield video, stored.features.vectors.astype(np.float32)
        if progress is not None:
            progress(done, len(records))


def _words(captions: Sequence[Annotation], encoder: Encoder) -> Iterator[tuple[str, np.ndarray]]:
    for start in range(0, len(captions), _TEXTS_AT_A_TIME):
        batch = captions[start : start + _TEXTS_AT_A_TIME]
        for caption, features in zip(batch, encoder.encode_texts([c.text for c in batch]), strict=True):
            yield caption.caption_id, features.words


def _about(settings: Settings, num_videos: int) -> str:
    about = {
        "encoder": settings.encoder,
        "encoder_identity": settings.encoder_identity,
        "sampling": settings.sampling,
        "frame_dim": settings.frame_dim,
        "word_dim": settings.word_dim,
        "num_videos": num_videos,
    }
    return json.dumps(about, indent=2) + "\n"
