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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.registry import LoadedEncoder, load_encoder
from untrimmed.errors import ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError
from untrimmed.precision import Precision, read_precision
from untrimmed.search.corpora.engine import Engine, View, keep_laid_out
from untrimmed.search.query.answer import EncoderReader, answer, rank_all, relevance
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, Query
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.parts import Part
from untrimmed.search.store.records import Records, Settings, VideoRecord, library_folder
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.search.store.video_names import absolute

if TYPE_CHECKING:
    from untrimmed.search.indexing.export import ExportedFeatures, ExportLayout
    from untrimmed.search.indexing.report import IndexReport, ProgressCallback
    from untrimmed.search.store.merge import MergeReport


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
        recall: float = 1.0,
    ):
        self.folder = library_folder(folder)
        self.precision: Precision = read_precision(precision)
        self._encoder: Encoder | None = None
        self._encoding = threading.RLock()  # loaded once; not all encoders read two sentences at once
        if ray is None and (shards, replicas) != (1, 1):
            raise ConfigError(f"shards is {shards} and replicas {replicas}, without the address of a Ray cluster: ray")
        if not 0.5 <= recall <= 1:
            raise ConfigError(f"recall is {recall}, must be from 0.5 to 1")
        self.engine = Engine(self.folder, recall)
        if ray is not None:
            from untrimmed.search.cluster.ray_cluster import engine_on

            self.engine = engine_on(ray, self.folder, shards, replicas, recall)

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

        Unchanged files are skipped, moved ones are recognised by content, changed ones are encoded anew. Every video
        is committed by itself: whatever ends the process, what was reported done is kept.

        Args:
            encoder: A short name, hub id or folder; by default the library's own, or for a new library SigLIP 2 where
                its weights can be had within seconds and else `builtin` (the report's `notice` says so).
            fps: Frames a second of presentation time; by default the library's, 2 for a new one.
            keyframes_only: Decode key frames alone: many times faster, and as fine as the file's key frames are apart.
            precision: The format in which the encoder multiplies, auto, float32 or bfloat16; by default the one that
                the library was opened with. Vectors of both formats may stand in one library.
            part: Which files of them, as "3/16": those of the third of 16 parts. They go into a library of their own
                beside this one (`Part.folder`), so that as many machines can index at once; `merge` joins them.
            ray: The address of a Ray cluster whose workers decode and encode, a video a task (`auto`, `HOST:PORT`).
                They must see the files at the same paths; this process commits what they give.

        Raises:
            UntrimmedError: A path does not exist.
            IndexMismatchError: The library was made by another encoder.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.run import choose_sampling, fill  # what a search does without
        from untrimmed.search.indexing.video_files import find_videos

        given = [Path(paths)] if isinstance(paths, str | os.PathLike) else list(map(Path, paths))
        found, folder = find_videos(given), self.folder
        if part is not None:
            if (address := address_of(folder)) is not None:
                raise ConfigError(f"{address}: parts are folders; index them beside each other, then merge into this")
            share = Part.parse(part)
            found, folder = replace(found, files=share.choose(found.files, given)), share.folder(folder)
        choose = partial(self._choose_encoder, device=device, precision=precision, images=True)
        sampling = partial(choose_sampling, fps=fps, keyframes_only=keyframes_only)
        load = partial(load_encoder, device=device, precision=precision or self.precision, images=True)
        workers = None
        if ray is not None:
            from untrimmed.search.cluster.ray_cluster import workers_on

            workers = partial(workers_on, ray, load, device)
        loaded, report = fill(
            folder, found.files, choose, encoder=encoder, sampling=sampling, workers=workers, progress=progress
        )
        self._encoder = loaded.encoder
        if part is None:
            keep_laid_out(folder)
        return replace(report, linked=found.linked)

    def merge(
        self,
        libraries: Iterable[str | os.PathLike[str]],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> MergeReport:
        """Bring the library up to date with the videos of others, such as its parts; nothing is encoded again.

        A new library is there when all of it is; a call that was ended goes on where it stopped. Into a library that
        is there already, videos are committed some at a time. A video that several hold is taken as `index` would take
        its files: see `untrimmed.search.store.merge.merge`.

        Raises:
            ConfigError: The libraries make no sense together.
            IndexMismatchError: They were made by different encoders, or are searched with different models.
            IndexBusyError: Another process is writing to one of them.
            UntrimmedError: One is not there, or a part is missing among those named.
        """
        from untrimmed.search.store.merge import merge

        report = merge(self.folder, [library_folder(library) for library in libraries], progress=progress)
        keep_laid_out(self.folder)
        return report

    def use(self, model: str | os.PathLike[str] | None, *, progress: Callable[[int, int], None] | None = None) -> None:
        """Search with a trained model (the folder of a run, or an imported one) or with `tf_prvr`, which needs no
        training; None or "frames" searches frames, as a new library does.

        The stored frame features are encoded through the model; nothing is decoded again. Until all are done, and if
        it is interrupted, searches go on with the model before; the same call then goes on where it stopped.

        Raises:
            CheckpointError: There is no model in the folder, or a damaged one.
            IndexMismatchError: It was trained on features of another encoder, or of other widths.
            FeatureError: A stored frame has no direction, which `tf_prvr` refuses.
            IndexBusyError: Another process is writing to the library.
        """
        from untrimmed.search.indexing.run import encoded_by, named_model

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
        keep_laid_out(self.folder)

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

        Nothing is decoded again. `untrimmed.train(..., data=name, root=out)` learns on it; `use` takes what that gave.

        Args:
            out: The folder in which the data set's own folder, `name`, is made.
            name: What the data set is called.
            layout: `plain` (a file per video), or `field` (BigFile and HDF5, as the released programs read), which
                alone is for a folder that `untrimmed data prepare` made.
            captions: JSON lines `{"video", "caption", "start_s"?, "end_s"?, "split"?}`, a video by its path, file name,
                or that without suffix; without a file only frames are written.
            within: Only videos that are one of these files or lie below one of these folders.

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
        records, settings = index.scan(), index.settings
        encoder = self._ready_encoder(settings.encoder_identity if settings else None)
        if within is not None:
            all_records = Records(records)
            chosen = {record.video_id for path in within for record in all_records.below(absolute(path))}
            records = [record for record in records if record.video_id in chosen]
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
            keep_laid_out(self.folder)
        return list(chosen.values())

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
        """The videos that fit a sentence, or a `Query` of several parts, best, each with its best moments.

        The list's `warnings` name words that the encoder does not know, and say where it stopped to read; of a sentence
        without a word that it knows there are no hits.

        Args:
            query: What is to be seen, in plain words; or a `Query`: what follows, what must not be seen, examples,
                filters, and what a hit is (docs/queries.md).
            limit: How many hits at most.
            moments: How many moments of each video at most.
            min_score: Leave out hits that score less. What is a good score depends on the encoder.
            min_confidence: Leave out hits whose chance to hold what was asked for is smaller, from 0 to 1: nothing may
                be left. Only for encoders on which chances were measured (docs/quality.md).
            within: Only videos below this folder, or this one file.
            on_hit: Told videos, best first, each when its moments are known; not where hits are moments or folded. What
                is returned counts: where the library changes meanwhile, some may be told anew.

        Raises:
            ConfigError: The sentence is empty or no text, or an option makes no sense.
            UnknownNameError: No video of the library lies in `within`, or a place of the query in none of its videos.
            IndexMismatchError: The library's encoder is not the one that can be loaded now.
            UntrimmedError: The library does not exist, or nothing was indexed yet.
        """
        asked = query if isinstance(query, Query) else Query(query)
        cutoff = Cutoff(limit=limit, moments=moments, min_score=min_score, min_confidence=min_confidence)
        return self.engine.answer(
            lambda view: answer(asked, view, self._reader(view), cutoff, within=within, on_hit=on_hit)
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


def open_library(
    folder: str | os.PathLike[str] | None = None,
    *,
    precision: Precision = "auto",
    ray: str | None = None,
    shards: int = 1,
    replicas: int = 1,
    recall: float = 1.0,
) -> Library:
    """The library in a folder, by default the user's own; it is made when something is first indexed into it.

    Args:
        precision: The format in which its encoder multiplies: auto, float32 or bfloat16 (`untrimmed.precision`).
        ray: The address of a Ray cluster on which searches run (`auto`, `HOST:PORT`; `local` starts one here). Its
            machines must see the library at the same path. They answer as one machine would.
        shards: How many processes of the cluster share the videos.
        replicas: How many of them have the same ones, so that one may die.
        recall: How many of the best videos a search has to find, in the mean of many, from 0.5 to 1. With less than 1
            a process that searches thousands of hours answers sooner; what it finds has its exact scores.

    Raises:
        ConfigError: An option makes no sense.
        UntrimmedError: No cluster answers at `ray`.
    """
    return Library(
        library_folder(folder), precision=precision, ray=ray, shards=shards, replicas=replicas, recall=recall
    )
