"""A library of videos: index files, then search for moments with sentences.

>>> lib = untrimmed.open("~/.my-videos")          # doctest: +SKIP
>>> lib.index(["~/Videos"])                       # doctest: +SKIP
>>> lib.search("a dog jumps into a lake")[0]      # doctest: +SKIP
Hit(video=PosixPath('/home/me/Videos/summer.mp4'), start_s=61.5, end_s=66.0, score=0.31, ...)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.registry import LoadedEncoder, load_encoder
from untrimmed.errors import ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError
from untrimmed.precision import Precision, read_precision
from untrimmed.search.cache.block_cache import remove_damaged
from untrimmed.search.corpora.engine import Engine, View, cache_library
from untrimmed.search.query.answer import LockedEncoder, answer, rank_all, relevance
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, Edges, NumMoments, Query
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import (
    Records,
    Settings,
    VideoRecord,
    absolute,
    library_folder,
    newest_commit,
    read_settings,
    remove_damaged_copies,
)
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.search.store.thumbnails import remove_damaged_thumbnails
from untrimmed.span import Moment

if TYPE_CHECKING:
    from untrimmed.passages.passage import Passage
    from untrimmed.search.cluster.ray_cluster import RayCluster
    from untrimmed.search.edges import ExactEdges
    from untrimmed.search.indexing.export import ExportedFeatures, ExportLayout
    from untrimmed.search.indexing.pipeline import IndexReport, ProgressCallback
    from untrimmed.search.store.merge import MergeReport


@dataclass(frozen=True)
class RepairReport:
    """The result of `Library.repair`. The lists are empty if nothing was damaged."""

    files: tuple[Path, ...]  # damaged files that were removed
    videos: tuple[VideoRecord, ...]  # damaged videos that were removed; they must be indexed again
    commits: tuple[Path, ...] = ()  # renamed files of damaged commits; the library is at the last readable commit
    texts: tuple[VideoRecord, ...] = ()  # videos whose damaged passages were removed; they must be read again
    passages: Path | None = None  # the renamed table of all passages, if none of its commits can be read


class Library:
    """A library of indexed videos. Opening it is fast; models are loaded when they are first needed.

    Any number of threads and processes may search, even while another process changes the library. Each search uses one
    version of the library.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        precision: Precision = "auto",
        ray: str | None = None,
        shards: int = 1,
        replicas: int = 1,
    ):
        """Open the library in a folder, by default the user's library.

        If the library does not exist, the first call of `index` creates it.

        Args:
            precision: The number format in which the encoder computes matrix products: auto, float32 or bfloat16
                (`untrimmed.precision`).
            ray: The address of a Ray cluster on which searches run (`auto`, `HOST:PORT`; `local` starts one here). The
                machines of the cluster must see the library at the same path. Results are the same as without a
                cluster.
            shards: The number of parts into which the videos are divided. Each part is searched by a process of the
                cluster.
            replicas: The number of processes per part. With several, one of them may fail.

        Raises:
            ConfigError: An option is invalid.
            UntrimmedError: No cluster answers at `ray`.
        """
        if ray is None and (shards, replicas) != (1, 1):
            raise ConfigError(
                f"shards is {shards} and replicas {replicas}, which needs a Ray cluster; set ray to its address"
            )
        self.folder = library_folder(folder)
        self.precision: Precision = read_precision(precision)
        self.engine = Engine(self.folder)
        self._encoder: Encoder | None = None
        # guards the encoder, because not all encoders are thread-safe
        self._encoder_lock = threading.RLock()
        self._cluster = None if ray is None else _connect(ray)
        if self._cluster is not None:
            self.engine = self._cluster.engine(self.folder, shards, replicas)

    def close(self) -> None:
        """Stop the decoder if it is running, and disconnect from the Ray cluster if there is one."""
        if "_exact_edges" in vars(self):
            self._exact_edges.close()
        if self._cluster is not None:
            self._cluster.close()

    # -- indexing

    def index(
        self,
        paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
        *,
        encoder: str | None = None,
        fps: float | None = None,
        keyframes_only: bool | None = None,
        thumbnails: bool | None = None,
        device: str = "auto",
        precision: Precision | None = None,
        part: str | None = None,
        ray: str | None = None,
        pictures_fps: float | None = None,
        sources: Mapping[str, Mapping[str, Any] | None] | None = None,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        """Add videos in files and folders to the library, or update them. Return the report.

        Unchanged files are skipped, moved files are recognised by content, and changed files are encoded again. Each
        video is committed as soon as it is finished, so an interrupted run loses no finished video. If there is no file
        to index, no library is created.

        Args:
            encoder: A short name, hub id or folder. Default: the library's encoder. For a new library, it is SigLIP 2
                if its weights can be loaded or downloaded, otherwise `builtin` (see the report's `notice`).
            fps: Frames to index per second of video. Default: the library's; 2 for a new library.
            keyframes_only: Whether to decode only key frames, which is many times faster but gives fewer frames.
            thumbnails: Whether to store one small picture per second of each new video, so that pictures can be shown
                without decoding. True also adds missing thumbnails of known videos. False keeps existing thumbnails.
                Default: the library's setting; True for a new library.
            precision: auto, float32 or bfloat16. Default: the precision of this object. A library may contain vectors
                of both formats.
            part: "3/16" indexes only the third of 16 parts of the files, into a library of its own beside this one
                (`LibraryPart.folder`). In this way, several machines can index at the same time, and `merge` joins the
                parts.
            ray: The address of a Ray cluster (`auto`, `HOST:PORT`) whose workers decode and encode the videos. They
                must see the files at the same paths.
            pictures_fps: The frame rate of folders of numbered pictures (00001.jpg, 00002.jpg, ...), which then count
                as videos (TVR: 3). By default such folders are ignored.
            sources: Sources of passages to add or change: the settings of each source, by its name, or None to turn it
                off. They also apply to later runs. Passages of a source that is turned off are kept, and its
                settings apply again when it is turned on. A known video is only read again by sources that are new or
                changed, and by sources named here whose text was removed (`remove_text`). A new library has the
                source `subtitle`.

        Raises:
            ConfigError: An option is invalid.
            UntrimmedError: A path does not exist.
            IndexMismatchError: The library was indexed with another encoder.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.pipeline import IndexReport
        from untrimmed.search.indexing.run import index_files  # a slow import that searches do not need
        from untrimmed.search.indexing.video_files import find_videos
        from untrimmed.search.store.merge import LibraryPart
        from untrimmed.video.timeline import check_fps

        roots = [Path(paths)] if isinstance(paths, str | os.PathLike) else list(map(Path, paths))
        if pictures_fps is not None:
            check_fps(pictures_fps, "pictures_fps", "pictures")
        videos = find_videos(roots, with_pictures=pictures_fps is not None)
        files = videos.files
        folder = self.folder
        if not files and part is None and read_settings(folder) is None and newest_commit(folder) is None:
            return IndexReport(linked=videos.linked)
        if part is not None:
            if (address := address_of(folder)) is not None:
                raise ConfigError(f"{address}: parts must be folders; index them beside each other, then merge them")
            library_part = LibraryPart.parse(part)
            files = library_part.choose(files, roots)
            folder = library_part.folder(folder)
        load = partial(load_encoder, device=device, precision=precision or self.precision, images=True)
        loaded, report = index_files(
            folder,
            files,
            partial(self._load_matching_encoder, load, name=encoder),
            replace_empty=encoder is not None,
            fps=fps,
            keyframes_only=keyframes_only,
            thumbnails=thumbnails,
            workers=None if ray is None else partial(_connect(ray).workers, load, device),
            pictures_fps=pictures_fps,
            sources=sources or {},
            progress=progress,
        )
        self._encoder = loaded.encoder
        if part is None:
            cache_library(folder)
        return replace(report, linked=videos.linked)

    def merge(
        self,
        libraries: Iterable[str | os.PathLike[str]],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> MergeReport:
        """Add the videos of other libraries, such as parts of this one. Return the report.

        Nothing is encoded again. To continue an interrupted merge, repeat the call. See
        `untrimmed.search.store.merge.merge`.
        """
        from untrimmed.search.store.merge import merge

        report = merge(self.folder, [library_folder(library) for library in libraries], progress=progress)
        cache_library(self.folder)
        return report

    def use(self, model: str | os.PathLike[str] | None, *, progress: Callable[[int, int], None] | None = None) -> None:
        """Search with this model from now on.

        `model` is "tf_prvr", "frames" (or None, which means "frames"), or the folder of a run or of an imported model.
        The model encodes the stored frames; no video is decoded again. Until all videos are encoded, searches use the
        previous model. To continue after an interruption, repeat the call.

        Raises:
            CheckpointError: The folder has no model, or a damaged one.
            IndexMismatchError: The model was trained on features of another encoder or of another width.
            FeatureError: A stored frame is a zero vector, which `tf_prvr` refuses.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.pipeline import encode_with
        from untrimmed.search.indexing.run import model_by_name

        with VideoIndex(self.folder) as index:
            settings = index.settings
            if settings is None:
                raise UntrimmedError(f"{self.folder}: nothing is indexed here yet; run: untrimmed index FOLDER")
            search_model = model_by_name(model, settings)
            identity = search_model.identity
            outdated = [record.video_id for record in index.scan() if record.model != identity]
            for number, video in enumerate(index.read(outdated), start=1):
                record = replace(video.record, model=identity)
                index.put(StoredVideo(record, video.features, encode_with(search_model, video)))
                if progress is not None:
                    progress(number, len(outdated))
            folder = str(search_model.folder) if search_model.folder else None
            index.write_settings(replace(settings, model=identity, model_folder=folder))
        cache_library(self.folder)

    def check_model(self, model: str | os.PathLike[str]) -> None:
        """Raise the errors of `use(model)` that can be detected before the first video is indexed.

        Raises:
            CheckpointError: The folder has no model, or a damaged one.
            IndexMismatchError: The model was trained on features of another encoder or of another width.
        """
        from untrimmed.search.indexing.run import model_by_name

        settings = read_settings(self.folder)
        # `index` may still change the encoder of a library without videos
        is_empty = settings is None or not read_records(self.folder)
        model_by_name(model, None if is_empty else settings)

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
        """Write a data set for training: the stored frame vectors, and word vectors of captions.

        No video is decoded again. `untrimmed.train(..., data=name, root=out)` trains a model on the data set, and `use`
        accepts this model.

        Args:
            out: The folder that contains data sets. The data set is written to OUT/NAME.
            layout: `plain` (a file per video), or `field` (BigFile and HDF5, which the released programs read). If
                `untrimmed data prepare` wrote the captions, the layout must be `field`.
            captions: JSON lines `{"video", "caption", "start_s"?, "end_s"?, "split"?}`; a video is a path, a file name,
                or a file name without suffix. Without captions only frames are written.
            within: Export only these files, and the videos below these folders.

        Raises:
            ConfigError: OUT/NAME exists, and is not a data set of `untrimmed data prepare` for this encoder.
            FeatureError: A caption is invalid, or there are no videos.
            UntrimmedError: There is no library.
        """
        from untrimmed.data.labelled import read_labels
        from untrimmed.search.indexing.export import export_features, prepared_data_set

        prepared_data_set(Path(out), name, layout, captions=captions is not None)
        labels = read_labels(captions) if captions is not None else []
        index = VideoIndex(self.folder)
        records = Records(index.scan())
        settings = index.settings
        encoder = self._ready_encoder(settings.encoder_identity if settings else None)
        if within is not None:
            by_id = {record.video_id: record for path in within for record in records.below(absolute(path))}
            records = Records(by_id.values())
        return export_features(
            index, records, encoder, Path(out), name=name, layout=layout, labels=labels, progress=progress
        )

    def remove(self, paths: Iterable[str | os.PathLike[str]], *, dry_run: bool = False) -> list[VideoRecord]:
        """Remove these files, and all videos in these folders, from the library. Return their records.

        Files on disk are not deleted. With `dry_run`, the records are only returned.

        Raises:
            UnknownNameError: A path is not in the library.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.store.passages import PassageTable  # an import that searches do not need

        with VideoIndex(self.folder) as index:
            records = Records(index.scan())
            removed = self._records_at(records, paths)
            if not dry_run:
                index.remove(list(removed))
                passages = PassageTable(self.folder)
                passages.keep({record.video_id for record in records} - removed.keys())
                passages.finish()
        if not dry_run:
            cache_library(self.folder)
        return list(removed.values())

    def remove_text(
        self, source: str, paths: Iterable[str | os.PathLike[str]], *, dry_run: bool = False
    ) -> list[VideoRecord]:
        """Remove the passages of a source, such as "speech", of these files and of all videos in these folders.

        Returns the records of the videos that had such passages. The videos stay in the library. Indexing reads their
        passages again when the video, its subtitle files, the source (its settings or version) or the encoder has
        changed, or when the source is named in `sources` of `index`. With `dry_run`, the records are only returned.

        Raises:
            UnknownNameError: The source does not exist, or a path is not in the library.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.passages.source import list_sources
        from untrimmed.search.store.passages import PassageTable  # an import that searches do not need
        from untrimmed.search.store.readings import new_reading_id

        with VideoIndex(self.folder) as index:
            records = self._records_at(Records(index.scan()), paths)
            table = PassageTable(self.folder)
            readings = table.readings()
            if source not in (known := {*list_sources(), *(reading.source for reading in readings)}):
                raise UnknownNameError.among("source of passages", source, sorted(known))
            removed = [
                reading
                for reading in readings
                if reading.source == source and reading.video_id in records and reading.num_passages
            ]
            if not dry_run:
                empty = [
                    replace(
                        reading,
                        num_passages=0,
                        warnings=(),
                        unread="",
                        is_removed=True,
                        read_at=time.time(),
                        reading_id=new_reading_id(),
                    )
                    for reading in removed
                ]
                table.put_empty(empty, [reading.reading_id for reading in removed])
                table.finish()
        if not dry_run:
            cache_library(self.folder)
        ids = {reading.video_id for reading in removed}
        return [record for video_id, record in records.items() if video_id in ids]

    def _records_at(self, records: Records, paths: Iterable[str | os.PathLike[str]]) -> dict[str, VideoRecord]:
        """Return the records of these files, and of all videos in these folders, by id."""
        matching: dict[str, VideoRecord] = {}
        for path in paths:
            if not (below := records.matching(path)):
                raise UnknownNameError(f"{absolute(path)}: not in {self.folder}; see: untrimmed ls")
            matching.update((record.video_id, record) for record in below)
        return matching

    def repair(self) -> RepairReport:
        """Verify the whole library, remove damaged videos and files, and update the cache. Return the report.

        If the last commit is damaged, the library goes back to the last commit that can be read.

        Raises:
            UntrimmedError: There is no library, or its settings or its table cannot be read.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.store.passages import PassageTable  # an import that searches do not need

        with VideoIndex(self.folder) as index:
            read_settings(self.folder)  # raises an error if the settings are damaged, because they cannot be repaired
            passages = PassageTable(self.folder)
            commits = (*index.set_aside_damaged_commits(), *passages.set_aside_damaged_commits())
            passages_aside = passages.set_aside()
            files = (*remove_damaged_copies(self.folder), *remove_damaged(self.folder))
            files += tuple(remove_damaged_thumbnails(self.folder))
            videos = index.damaged()
            index.remove([record.video_id for record in videos])
            readings = passages.damaged()
            passages.remove([reading.reading_id for reading in readings])
            passages.finish()
            if not commits:  # otherwise, this would remove the files of the renamed commits
                index.clean(with_leftovers=True)
                passages.clean(with_leftovers=True)
            ids = {reading.video_id for reading in readings}
            texts = tuple(record for record in index.scan() if record.video_id in ids)
        cache_library(self.folder)
        return RepairReport(files, tuple(videos), commits, texts, passages_aside)

    # -- searching

    def search(
        self,
        query: str | Query,
        *,
        limit: int = 10,
        moments: NumMoments = 3,
        min_moment_s: float = 1.0,
        edges: Edges = "sampled",
        min_score: float | None = None,
        min_confidence: float | None = None,
        curve_points: int = 0,
        within: str | os.PathLike[str] | None = None,
        on_hit: Callable[[Hit], None] | None = None,
    ) -> Hits:
        """Return the videos that match a sentence or a `Query` best, with their best moments.

        The `warnings` of the result name words that the encoder does not know, and mention if the sentence is too long.
        A sentence without a known word has no hits.

        Args:
            query: A description of a moment in plain words, or a `Query` (docs/queries.md).
            limit: Maximum number of hits.
            moments: Maximum number of moments per video, best first; or "all" for all relevant moments, in time order.
            min_moment_s: Shortest moment, in seconds.
            edges: "exact" moves each edge of a moment to a shot change within half a second, if there is one. For this,
                a second of video is decoded around each edge. The edges of a moment with a passage only move outwards.
                By default, edges are halfway between sampled frames.
            min_score: Hide hits with a lower score. The scale depends on the encoder.
            min_confidence: Hide hits with a lower confidence, from 0 to 1; there may be no hits left. Only for encoders
                with a measured confidence (docs/quality.md).
            curve_points: Number of values of each hit's `curve`, for drawing. 0: no curves.
            within: Search only videos in this folder and its subfolders, or only this file.
            on_hit: Called with each hit as soon as its moments are known, best first. Not called with
                `group_by="moment"` or `fold`. If the library changes during the search, it may be called again for
                some hits.

        Raises:
            ConfigError: The sentence is empty or not a text, or an option is invalid.
            UnknownNameError: `within` contains no video of the library, or the video of a `Place` is not in the
                library.
            IndexMismatchError: The loaded encoder is not the library's encoder, for example after the encoder's files
                changed.
            UntrimmedError: The library does not exist, or nothing was indexed yet.
        """
        parts = query if isinstance(query, Query) else Query(query)
        cutoff = Cutoff(
            limit=limit,
            moments=moments,
            min_moment_s=min_moment_s,
            edges=edges,
            min_score=min_score,
            min_confidence=min_confidence,
            curve_points=curve_points,
        )
        return self.engine.answer(lambda view: self._answer(view, parts, cutoff, within, on_hit))

    def exact(self, hit: Hit, *, min_moment_s: float = 1.0) -> Hit:
        """Return the hit with each edge of its moments moved to a shot change within half a second, if there is one.

        The edges of a moment with a passage only move outwards. If the video cannot be read, the edges are unchanged.
        Results are cached.
        """
        return self._exact_edges.hit(hit, min_s=min_moment_s)

    def exact_span(self, video: VideoRecord, start_s: float, end_s: float, *, extend_only: bool = False) -> Moment:
        """Return a span of a video as a moment, with its edges moved to shot changes as in `exact`.

        With `extend_only`, the edges do not move inwards.
        """
        return self._exact_edges.moment(
            Path(video.path),
            Moment(start_s, end_s),
            duration_s=video.duration_s,
            content=video.content_hash,
            min_s=1.0,
            extend_only=extend_only,
        )

    def rank(
        self, sentences: Sequence[str], *, limit: int = 100, within: str | os.PathLike[str] | None = None
    ) -> list[dict[Path, float]]:
        """Return, for each sentence, the best videos with their scores, best first. No moments are computed.

        With a trained model and many videos, this is faster than one search per sentence. Raises the errors of
        `search`.
        """
        limit = Cutoff(limit=limit).limit
        return self.engine.answer(lambda view: rank_all(sentences, view, self._locked_encoder(view), limit, within))

    def similar(
        self,
        image: UInt8[np.ndarray, "Y X 3"],
        *,
        limit: int = 10,
        moments: int = 3,
        min_score: float | None = None,
        within: str | os.PathLike[str] | None = None,
    ) -> Hits:
        """Return the videos with frames like this RGB image. Options and errors are the same as in `search`.

        The image and the frames are compared by the encoder's vectors, even if the library has a trained model.
        """
        return self.search(Query(image=image), limit=limit, moments=moments, min_score=min_score, within=within)

    def relevance(
        self, query: str | Query, video: str | os.PathLike[str]
    ) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance of its pictures at each time.

        If the query has `then`, the second array is the relevance for the first moment. If only passages are searched,
        the second array is the strength of the best passage at each time.

        Raises: UntrimmedError if no word of the sentence is known, or the video is not in the library.
        """
        return self.engine.answer(lambda view: relevance(query, video, view, self._locked_encoder(view)))

    def videos(self) -> list[VideoRecord]:
        """Return the records of all indexed videos, sorted by path."""
        return read_records(self.folder)

    def transcript(self, video: str | os.PathLike[str]) -> list[Passage]:
        """Return the passages of a video (what is said and written) as its sources read them, in time order.

        `video` is the path, file name or id of the video.

        Raises:
            UnknownNameError: The video is not in the library.
        """
        from untrimmed.search.store.passages import PassageTable  # an import that searches do not need

        return [passage for _, passage in PassageTable(self.folder).transcript(self._record_of(video))]

    def unread_sources(self, video: str | os.PathLike[str]) -> list[str]:
        """Return the sources that `index` uses but that have not read this video yet, e.g. after an interruption.

        `video` is the path, file name or id of the video.

        Raises:
            UnknownNameError: The video is not in the library.
        """
        from untrimmed.search.store.passages import PassageTable  # an import that searches do not need

        settings = self.settings()
        readings = PassageTable(self.folder).readings_of(self._record_of(video))
        return sorted(set(settings.sources if settings else ()) - {reading.source for reading in readings})

    def _record_of(self, video: str | os.PathLike[str]) -> VideoRecord:
        """Return the record of the video with this path, file name or id."""
        records = Records(self.videos())
        named = [record for record in records if record.video_id == os.fspath(video)] or records.matching(video)
        if len(named) != 1:
            problem = f"names {len(named)} videos" if named else "is not in the library"
            raise UnknownNameError(f"{os.fspath(video)}: {problem}; name one video, see: untrimmed ls")
        return named[0]

    def settings(self) -> Settings | None:
        """Return the encoder, sampling and model of the library, or None if nothing was ever indexed."""
        return VideoIndex(self.folder).settings

    def _answer(
        self,
        view: View,
        query: Query,
        cutoff: Cutoff,
        within: str | os.PathLike[str] | None,
        on_hit: Callable[[Hit], None] | None,
    ) -> Hits:
        encoder = self._locked_encoder(view)
        if cutoff.edges == "sampled":
            return answer(query, view, encoder, cutoff, within=within, on_hit=on_hit)

        def exact(hit: Hit) -> Hit:
            content = view.records.of(hit.video_id).content_hash
            return self._exact_edges.hit(hit, content=content, min_s=cutoff.min_moment_s)

        callback = None if on_hit is None else lambda hit: on_hit(exact(hit))
        hits = answer(query, view, encoder, cutoff, within=within, on_hit=callback)
        hits[:] = map(exact, hits)
        return hits

    @cached_property
    def _exact_edges(self) -> ExactEdges:
        from untrimmed.search.edges import ExactEdges

        return ExactEdges()

    def _locked_encoder(self, view: View) -> LockedEncoder:
        return LockedEncoder(self._ready_encoder(view.encoder), self._encoder_lock)

    def _ready_encoder(self, identity: str | None) -> Encoder:
        """Return the encoder with this identity. The identity changes if another process replaces the encoder."""
        with self._encoder_lock:
            if self._encoder is None or self._encoder.identity != identity:
                settings = VideoIndex(self.folder).settings
                if settings and identity:
                    settings = replace(settings, encoder_identity=identity)
                load = partial(load_encoder, precision=self.precision, images=False)
                self._encoder = self._load_matching_encoder(load, settings).encoder
            return self._encoder

    def _load_matching_encoder(
        self, load: Callable[[str | None], LoadedEncoder], settings: Settings | None, name: str | None = None
    ) -> LoadedEncoder:
        loaded = load(name or (settings.encoder if settings else None))
        if settings is not None and loaded.encoder.identity != settings.encoder_identity:
            raise IndexMismatchError(
                f"{self.folder}: made with encoder {settings.encoder_identity}, found {loaded.encoder.identity}; their "
                "vectors cannot be compared. Use the same encoder, or index into a new --library"
            )
        return loaded


def _connect(address: str) -> RayCluster:
    from untrimmed.search.cluster.ray_cluster import RayCluster  # needs the optional package `ray`

    return RayCluster(address)
