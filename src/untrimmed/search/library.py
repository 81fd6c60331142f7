"""A library: videos in, sentences in, moments out.

>>> lib = untrimmed.open("~/.my-videos")          # doctest: +SKIP
>>> lib.index(["~/Videos"])                       # doctest: +SKIP
>>> lib.search("a dog jumps into a lake")[0]      # doctest: +SKIP
Hit(video=PosixPath('/home/me/Videos/summer.mp4'), start_s=61.5, end_s=66.0, score=0.31, ...)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.registry import LoadedEncoder, load_encoder
from untrimmed.errors import ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError
from untrimmed.precision import Precision, read_precision
from untrimmed.search.cache.snapshot import remove_damaged
from untrimmed.search.corpora.engine import Engine, View, cache_library
from untrimmed.search.query.answer import EncoderReader, answer, rank_all, relevance
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, Query
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import (
    Records,
    Settings,
    VideoRecord,
    absolute,
    library_folder,
    read_settings,
    remove_damaged_copy,
)
from untrimmed.search.store.table import StoredVideo, VideoIndex

if TYPE_CHECKING:
    from untrimmed.search.cluster.ray_cluster import RayCluster
    from untrimmed.search.indexing.export import ExportedFeatures, ExportLayout
    from untrimmed.search.indexing.pipeline import IndexReport, ProgressCallback
    from untrimmed.search.store.merge import MergeReport


@dataclass(frozen=True)
class Repaired:
    """The damaged files and videos that were removed.

    The files are derived from the table; those of the same name that are there now are new. The videos have to be
    indexed again.
    """

    files: tuple[Path, ...]
    videos: tuple[VideoRecord, ...]


class Library:
    """Indexed videos in one folder; opening costs nothing, models load when they are first needed.

    Any number of threads may search at once, also while others index or remove: each search sees one version.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        precision: Precision = "auto",
        ray: str | None = None,
        shards: int = 1,
        replicas: int = 1,
    ):
        self.folder = library_folder(folder)
        self.precision: Precision = read_precision(precision)
        self._encoder: Encoder | None = None
        self._encoding = threading.RLock()  # loaded once; not all encoders read two sentences at once
        if ray is None and (shards, replicas) != (1, 1):
            raise ConfigError(f"shards is {shards} and replicas {replicas}, without the address of a Ray cluster: ray")
        self.engine = Engine(self.folder)
        self._cluster = None if ray is None else _cluster_at(ray)
        if self._cluster is not None:
            self.engine = self._cluster.engine(self.folder, shards, replicas)

    def close(self) -> None:
        """Leave the cluster on which the library is searched, if it is."""
        if self._cluster is not None:
            self._cluster.close()

    # -- filling

    def index(
        self,
        paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
        *,
        encoder: str | None = None,
        fps: float | None = None,
        keyframes_only: bool | None = None,
        device: str = "auto",
        precision: Precision | None = None,
        part: str | None = None,
        ray: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        """Bring the library up to date with files and folders.

        Unchanged files are skipped, moved ones are recognised by content, changed ones are encoded again. Every video
        is a commit of its own: whatever ends the process, what was reported done is kept.

        Args:
            encoder: A short name, hub id or folder; by default the library's own, or for a new library SigLIP 2 if its
                weights can be downloaded within seconds, else `builtin` (see the report's `notice`).
            fps: Frames a second of presentation time; by default the library's, 2 for a new one.
            keyframes_only: Decode key frames alone, which is many times faster and coarser.
            precision: auto, float32 or bfloat16; by default that of the library. Vectors of both formats may be mixed.
            part: "3/16" indexes the files of the third of 16 parts into a library of its own beside this one
                (`LibraryPart.folder`), so that many machines can index at once; `merge` joins them.
            ray: The address of a Ray cluster (`auto`, `HOST:PORT`) whose workers decode and encode, a video a task.
                They must see the files at the same paths.

        Raises:
            UntrimmedError: A path does not exist.
            IndexMismatchError: The library was made by another encoder.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.run import choose_sampling, fill  # what a search does without
        from untrimmed.search.indexing.video_files import find_videos
        from untrimmed.search.store.merge import LibraryPart

        given = [Path(paths)] if isinstance(paths, str | os.PathLike) else list(map(Path, paths))
        found, folder = find_videos(given), self.folder
        if part is not None:
            if (address := address_of(folder)) is not None:
                raise ConfigError(f"{address}: parts are folders; index them beside each other, then merge into this")
            share = LibraryPart.parse(part)
            found, folder = replace(found, files=share.choose(found.files, given)), share.folder(folder)
        choose = partial(self._choose_encoder, device=device, precision=precision, images=True)
        sampling = partial(choose_sampling, fps=fps, keyframes_only=keyframes_only)
        load = partial(load_encoder, device=device, precision=precision or self.precision, images=True)
        workers = partial(_cluster_at(ray).workers, load, device) if ray is not None else None
        loaded, report = fill(
            folder, found.files, choose, encoder=encoder, sampling=sampling, workers=workers, progress=progress
        )
        self._encoder = loaded.encoder
        if part is None:
            cache_library(folder)
        return replace(report, linked=found.linked)

    def merge(
        self,
        libraries: Iterable[str | os.PathLike[str]],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> MergeReport:
        """Bring the library up to date with the videos of others, such as its parts; nothing is encoded again.

        See `untrimmed.search.store.merge.merge`. The same call continues a merge that was interrupted.
        """
        from untrimmed.search.store.merge import merge

        report = merge(self.folder, [library_folder(library) for library in libraries], progress=progress)
        cache_library(self.folder)
        return report

    def use(self, model: str | os.PathLike[str] | None, *, progress: Callable[[int, int], None] | None = None) -> None:
        """Search with a trained model (the folder of a run, or an imported one), `tf_prvr`, or "frames" (None).

        The model encodes the stored frame features; nothing is decoded again. Until all are encoded, searches use the
        previous model. The same call continues one that was interrupted.

        Raises:
            CheckpointError: There is no model in the folder, or a damaged one.
            IndexMismatchError: It was trained on features of another encoder, or of other widths.
            FeatureError: A stored frame has no direction, which `tf_prvr` refuses.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.pipeline import encoded_by
        from untrimmed.search.indexing.run import named_model

        with VideoIndex(self.folder) as index:
            settings = index.settings
            if settings is None:
                raise UntrimmedError(f"{self.folder}: nothing is indexed here yet; run: untrimmed index FOLDER")
            chosen = named_model(model, settings)
            todo = [record.video_id for record in index.scan() if record.model != chosen.identity]
            for number, video in enumerate(index.read(todo), start=1):
                record = replace(video.record, model=chosen.identity)
                index.put(StoredVideo(record, video.features, encoded_by(chosen, video)))
                if progress is not None:
                    progress(number, len(todo))
            folder = str(chosen.folder) if chosen.folder else None
            index.write_settings(replace(settings, model=chosen.identity, model_folder=folder))
        cache_library(self.folder)

    def export_features(
        self,
        out: str | os.PathLike[str],
        *,
        name: str = "mine",
        layout: ExportLayout | None = None,
        captions: str | os.PathLike[str] | None = None,
        within: Iterable[str | os.PathLike[str]] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportedFeatures:
        """Write the stored frame vectors, and word vectors of captions, as a data set that methods train on.

        Nothing is decoded again. `untrimmed.train(..., data=name, root=out)` trains on it; `use` takes the result.

        Args:
            out: The folder in which the data set's own folder, `name`, is made.
            layout: `plain` (a file per video), or `field` (BigFile and HDF5, as the released programs read). Beside
                captions of `untrimmed data prepare` it must be `field`.
            captions: JSON lines `{"video", "caption", "start_s"?, "end_s"?, "split"?}`, a video by its path, file name,
                or that without suffix; without a file only frames are written.
            within: Only these files, and videos below these folders.

        Raises:
            ConfigError: OUT/NAME is already there, and nothing that `untrimmed data prepare` made for these features.
            FeatureError: The captions' file is wrong, or there are no videos.
            UntrimmedError: There is no library.
        """
        from untrimmed.data.labelled import read_labels
        from untrimmed.search.indexing.export import export_features, prepared_at

        prepared_at(Path(out), name, layout, captions=captions is not None)
        labels = read_labels(captions) if captions is not None else []
        index = VideoIndex(self.folder)
        records, settings = Records(index.scan()), index.settings
        encoder = self._ready_encoder(settings.encoder_identity if settings else None)
        if within is not None:
            chosen = {record.video_id: record for path in within for record in records.below(absolute(path))}
            records = Records(chosen.values())
        return export_features(
            index, records, encoder, Path(out), name=name, layout=layout, labels=labels, progress=progress
        )

    def remove(self, paths: Iterable[str | os.PathLike[str]], *, dry_run: bool = False) -> list[VideoRecord]:
        """Forget videos by file, or all below a folder; the files stay. Gives what was, or with `dry_run` would be.

        Raises:
            UnknownNameError: A path is not in the library.
            IndexBusyError: Another process is writing to the library.
        """
        with VideoIndex(self.folder) as index:
            records = Records(index.scan())
            chosen: dict[str, VideoRecord] = {}
            for path in map(absolute, paths):
                if not (below := records.below(path)):
                    raise UnknownNameError(f"{path}: not in {self.folder}; see: untrimmed ls")
                chosen.update((record.video_id, record) for record in below)
            if not dry_run:
                index.remove(list(chosen))
        if not dry_run:
            cache_library(self.folder)
        return list(chosen.values())

    def repair(self) -> Repaired:
        """Check every byte of the library, remove what is damaged, and cache again what is derived from the table.

        Raises:
            UntrimmedError: There is no library, or its settings or its table cannot be read at all.
            IndexBusyError: Another process is writing to it.
        """
        with VideoIndex(self.folder) as index:
            read_settings(self.folder)  # raises: nothing is repaired beside settings that are damaged
            files = (*remove_damaged_copy(self.folder), *remove_damaged(self.folder))
            videos = index.damaged()
            index.remove([record.video_id for record in videos])
        cache_library(self.folder)
        return Repaired(files, tuple(videos))

    # -- asking

    def search(
        self,
        query: str | Query,
        *,
        limit: int = 10,
        moments: int = 3,
        min_score: float | None = None,
        min_confidence: float | None = None,
        within: str | os.PathLike[str] | None = None,
        on_hit: Callable[[Hit], None] | None = None,
    ) -> Hits:
        """Return the videos that best fit a sentence, or a `Query` of several parts, each with its best moments.

        The list's `warnings` name words that the encoder does not know, and where it stopped reading. A sentence
        without a known word has no hits.

        Args:
            query: Describe a moment in plain words, or by a `Query` (docs/queries.md).
            limit: Number of hits at most.
            moments: Number of moments of each video at most.
            min_score: Leave out hits that score less. What is a good score depends on the encoder.
            min_confidence: Leave out hits with a lower confidence, from 0 to 1; there may be no hits left. Only for
                encoders whose confidence was measured (docs/quality.md).
            within: Only videos below this folder, or this one file.
            on_hit: Called with each hit as soon as its moments are known, best first. Not called if hits are moments
                or folded. If the library changes meanwhile, it may be called with some hits again.

        Raises:
            ConfigError: The sentence is empty or no text, or an option makes no sense.
            UnknownNameError: No video of the library is in `within`, or at a place of the query.
            IndexMismatchError: The library's encoder is not the one that can be loaded now.
            UntrimmedError: The library does not exist, or nothing was indexed yet.
        """
        parts = query if isinstance(query, Query) else Query(query)
        cutoff = Cutoff(limit=limit, moments=moments, min_score=min_score, min_confidence=min_confidence)
        return self.engine.answer(
            lambda view: answer(parts, view, self._reader(view), cutoff, within=within, on_hit=on_hit)
        )

    def rank(
        self, sentences: Sequence[str], *, limit: int = 100, within: str | os.PathLike[str] | None = None
    ) -> list[dict[Path, float]]:
        """The best videos of each sentence and their scores, best first: as `search`, but without moments.

        Where a trained model searches many videos, sentences that are asked together cost less each than one alone.

        Raises: As `search`.
        """
        limit = Cutoff(limit=limit).limit
        return self.engine.answer(lambda view: rank_all(sentences, view, self._reader(view), limit, within))

    def similar(
        self,
        image: UInt8[np.ndarray, "Y X 3"],
        *,
        limit: int = 10,
        moments: int = 3,
        min_score: float | None = None,
        within: str | os.PathLike[str] | None = None,
    ) -> Hits:
        """The videos with frames like this RGB image, by the encoder alone; the rest is as in `search`."""
        return self.search(Query(image=image), limit=limit, moments=moments, min_score=min_score, within=within)

    def relevance(
        self, query: str | Query, video: str | os.PathLike[str]
    ) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """How well each time of one video fits: times in seconds and relevance; with `then`, as the first of the two.

        Raises:
            UntrimmedError: No word of the sentence is known, or the video is not in the library.
        """
        return self.engine.answer(lambda view: relevance(query, video, view, self._reader(view)))

    def videos(self) -> list[VideoRecord]:
        """What is indexed, by path."""
        return read_records(self.folder)

    def settings(self) -> Settings | None:
        """Encoder and sampling of the library; None as long as nothing was indexed."""
        return VideoIndex(self.folder).settings

    # -- inside

    def _reader(self, view: View) -> EncoderReader:
        return EncoderReader(self._ready_encoder(view.encoder), self._encoding)

    def _ready_encoder(self, identity: str | None) -> Encoder:
        """The encoder of that identity: another process may have filled the library anew with another one."""
        with self._encoding:
            if self._encoder is None or self._encoder.identity != identity:
                settings = VideoIndex(self.folder).settings
                wanted = replace(settings, encoder_identity=identity) if settings and identity else settings
                self._encoder = self._choose_encoder(wanted).encoder
            return self._encoder

    def _choose_encoder(
        self,
        settings: Settings | None,
        name: str | None = None,
        *,
        device: str = "auto",
        precision: Precision | None = None,
        images: bool = False,
    ) -> LoadedEncoder:
        chosen = name or (settings.encoder if settings else None)
        loaded = load_encoder(chosen, device=device, precision=precision or self.precision, images=images)
        if settings is not None and loaded.encoder.identity != settings.encoder_identity:
            raise IndexMismatchError(
                f"{self.folder}: made with encoder {settings.encoder_identity}, found {loaded.encoder.identity}; their "
                "vectors cannot be compared. Use the same encoder, or index into a new --library"
            )
        return loaded


def _cluster_at(address: str) -> RayCluster:
    """Connect to a cluster. It is imported here alone."""
    from untrimmed.search.cluster.ray_cluster import RayCluster

    return RayCluster(address)


def open_library(
    folder: str | os.PathLike[str] | None = None,
    *,
    precision: Precision = "auto",
    ray: str | None = None,
    shards: int = 1,
    replicas: int = 1,
) -> Library:
    """The library in a folder, by default the user's own; it is made when something is first indexed into it.

    Args:
        precision: The format in which its encoder multiplies: auto, float32 or bfloat16 (`untrimmed.precision`).
        ray: The address of a Ray cluster on which searches run (`auto`, `HOST:PORT`; `local` starts one here). Its
            machines must see the library at the same path. They answer as one machine would.
        shards: How many processes of the cluster share the videos.
        replicas: How many of them have the same ones, so that one may die.

    Raises:
        ConfigError: An option makes no sense.
        UntrimmedError: No cluster answers at `ray`.
    """
    return Library(library_folder(folder), precision=precision, ray=ray, shards=shards, replicas=replicas)
