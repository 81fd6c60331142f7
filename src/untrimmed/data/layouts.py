"""Read a data set in the standard layout, JSG's layout, the plain layout or a registered layout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from untrimmed.data.annotations import Annotation
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.bigfile import read_captions
from untrimmed.data.jsg import read_jsg
from untrimmed.data.layout import Layout
from untrimmed.data.plain import CAPTION_FILE, read_plain
from untrimmed.data.sources import BigFileFrames, FolderArrays, FolderVectors, JoinedFrames, VectorSource
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError, UntrimmedError, one_line
from untrimmed.plugins import load_installed


@runtime_checkable
class DataLayout(Protocol):
    """How the files of a data set are arranged in its folder.

    `frames` and `words` return mappings of arrays or of HDF5 data sets, which may be read lazily. Whenever a file of
    the folder changes, the features are packed again.
    """

    def recognises(self, folder: Path) -> bool:
        """Whether the folder is in this layout. Registered layouts are tried before those of this package."""

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """Return the captions of train, val or test in order, or an empty sequence if there is no such split."""

    def frames(self, folder: Path) -> Mapping[str, Any] | VectorSource:
        """Return frame vectors [frames, width] by video id."""

    def words(self, folder: Path) -> Mapping[str, Any] | VectorSource:
        """Return word vectors [words, width] by caption id."""


class PlainLayout:
    """The layout for your own data, see `untrimmed.data.plain`."""

    def recognises(self, folder: Path) -> bool:
        """Whether the folder has plain captions, or plain frames and no `TextData`."""
        if (folder / CAPTION_FILE).is_file():
            return True
        return _plain_place(folder, "frames") is not None and not (folder / "TextData").is_dir()

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """Return the captions of a split in file order."""
        path = folder / CAPTION_FILE
        if not path.is_file():
            expected = 'lines like {"video": "lake", "caption": "a dog jumps"}'
            step = "write it, or run untrimmed features --captions"
            raise FeatureError(f"{path}: no such file, expected {expected}; {step}")
        return read_plain(path)[split]

    def frames(self, folder: Path) -> VectorSource:
        """Open the frame vectors by video id."""
        return _open_plain(folder, "frames")

    def words(self, folder: Path) -> VectorSource:
        """Open the word vectors by caption id."""
        return _open_plain(folder, "words")


@dataclass(frozen=True)
class JSGLayout:
    """JSG's layout: JSON lines with captions and moments, frames in an HDF5 file, words as in the standard layout.

    `video_features` names the frame features to read, if the data set has several.
    """

    video_features: str | None = None

    def recognises(self, folder: Path) -> bool:
        """Return True, because this layout is tried last. The errors of this layout name the missing files."""
        return True

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """Return the captions of a split in file order."""
        layout = Layout(folder.name, folder)
        if not layout.moments(split).is_file():
            raise FeatureError(_no_captions(layout, split))
        return read_jsg(layout.moments(split))

    def frames(self, folder: Path) -> VectorSource:
        """Open the frame vectors by video id, in any of the forms that `Layout.frame_sources` lists."""
        layout = Layout(folder.name, folder)
        source = _open_frames(layout, layout.frames(self.video_features))
        return JoinedFrames(source, layout.merged_videos) if layout.merged_videos.is_file() else source

    def words(self, folder: Path) -> VectorSource:
        """Open the word vectors by caption id."""
        words = Layout(folder.name, folder).words
        if not words.is_file() and (place := _plain_place(folder, "words")) is not None:
            return _open_place(place)
        return open_hdf5(_existing(words, "word features"))


class FieldLayout(JSGLayout):
    """The standard layout. Its caption files contain no times.

    Times come from JSG's caption file, if that file exists. A caption is looked up there by its id, then by its video
    and text.
    """

    def recognises(self, folder: Path) -> bool:
        """Whether the folder has a caption file."""
        return any(folder.glob("TextData/*.caption.txt"))

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """Return the captions of a split in file order. Without a caption file, JSG's caption file is read instead."""
        layout = Layout(folder.name, folder)
        if not layout.captions(split).is_file():
            return super().captions(folder, split)
        captions = read_captions(layout.captions(split))
        if not layout.moments(split).is_file():
            return captions
        timed = read_jsg(layout.moments(split))
        by_id = {annotation.caption_id: annotation for annotation in timed}
        by_text = {(annotation.video, annotation.text): annotation for annotation in timed}
        joined = []
        for caption in captions:
            match = by_id.get(caption.caption_id) or by_text.get((caption.video, caption.text))
            if match is not None:
                caption = replace(caption, moments=match.moments, duration_s=match.duration_s, kind=match.kind)
            joined.append(caption)
        return joined


T = TypeVar("T")
L = TypeVar("L", bound=type[DataLayout])
_LAYOUTS: dict[str, DataLayout] = {}


def register_layout(name: str) -> Callable[[L], L]:
    """Register a layout class, which takes no arguments; raises ConfigError if the name is taken."""

    def add(cls: L) -> L:
        if name in _LAYOUTS:
            raise ConfigError(f"two layouts are named {name!r}; give yours another name")
        _LAYOUTS[name] = cls()
        return cls

    return add


class _CheckedLayout:
    """Wraps a registered layout.

    Exceptions and results of a wrong type become FeatureErrors with a message on one line.
    """

    def __init__(self, name: str, layout: DataLayout):
        self._name = name
        self._layout = layout

    def recognises(self, folder: Path) -> bool:
        return bool(self._call("recognises", lambda: self._layout.recognises(folder)))

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        captions = self._call("captions", lambda: list(self._layout.captions(folder, split)))
        wrong = next((caption for caption in captions if not isinstance(caption, Annotation)), None)
        if wrong is not None:
            raise FeatureError(self._message("captions", f"contains a {type(wrong).__name__}, expected Annotations"))
        return captions

    def frames(self, folder: Path) -> VectorSource:
        return self._source("frames", folder)

    def words(self, folder: Path) -> VectorSource:
        return self._source("words", folder)

    def _source(self, what: str, folder: Path) -> VectorSource:
        tables = self._call(what, lambda: getattr(self._layout, what)(folder))
        # an open HDF5 file is no Mapping, but has these methods
        if not hasattr(tables, "items") or not hasattr(tables, "get"):
            problem = f"returned a {type(tables).__name__}, expected a mapping of arrays by id"
            raise FeatureError(self._message(what, problem))
        return FolderArrays(tables, folder)

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except UntrimmedError:
            raise
        except Exception as error:
            raise FeatureError(self._message(method, f"{type(error).__name__}: {one_line(error)}")) from error

    def _message(self, method: str, problem: str) -> str:
        return f"layout {self._name!r}, {method}: {problem}; fix it"


def layout_of(folder: Path, video_features: str | None = None) -> _CheckedLayout | PlainLayout | JSGLayout:
    """Return the first layout that recognises the folder.

    `video_features` names the frame features to read, if the data set has several.
    """
    load_installed()
    for name, registered in _LAYOUTS.items():
        if (layout := _CheckedLayout(name, registered)).recognises(folder):
            return layout
    built_in: tuple[PlainLayout | JSGLayout, ...] = (PlainLayout(), FieldLayout(video_features))
    return next((layout for layout in built_in if layout.recognises(folder)), JSGLayout(video_features))


def read_split(name: str, root: Path, split: str) -> list[Annotation]:
    """Return the captions of one split of ROOT/NAME in file order.

    Raises: UnknownNameError for an unknown split, FeatureError for missing captions or damaged files.
    """
    if split not in SPLITS:
        raise UnknownNameError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    folder = Layout.at(root, name).folder
    annotations = list(layout_of(folder).captions(folder, split))
    if not annotations:
        raise FeatureError(f"{folder}: no captions for split {split}; add some")
    return annotations


def open_frames(layout: Layout, video_features: str | None = None) -> VectorSource:
    """Open the frame vectors of a data set in any layout; raises FeatureError if they are missing or damaged."""
    return layout_of(layout.folder, video_features).frames(layout.folder)


def open_words(layout: Layout) -> VectorSource:
    """Open the word vectors of a data set in any layout; raises FeatureError if they are missing or damaged."""
    return layout_of(layout.folder).words(layout.folder)


def open_teacher(layout: Layout) -> tuple[VectorSource, VectorSource]:
    """Open DL-DKD's CLIP frame and sentence vectors; raises FeatureError if a file is missing or damaged."""
    frames = open_hdf5(_existing(layout.teacher_frames, "the frames of dl_dkd's teacher (CLIP)"))
    return frames, open_hdf5(_existing(layout.teacher_sentences, "the sentences of dl_dkd's teacher (CLIP)"))


def open_subtitles(layout: Layout) -> VectorSource:
    """Open the subtitle vectors by video id; raises FeatureError if the file is missing or damaged."""
    path = layout.subtitle_vectors
    if path.is_file():
        return open_hdf5(path)
    if layout.subtitles.is_file():
        step = "add them with untrimmed data prepare --subtitle-features FILE, or make them with untrimmed features"
        raise FeatureError(f"{path}: no such file, expected the vectors of the passages in {layout.subtitles}; {step}")
    raise FeatureError(
        f"{layout.folder}: has no subtitles, expected {path.name}; add them with untrimmed data prepare --subtitles "
        "FILE --subtitle-features FILE, or train without +subtitles"
    )


def _plain_place(folder: Path, what: str) -> Path | None:
    """Return the path of the HDF5 file, or of the folder of numpy files, that contains these features, or None."""
    return next((path for path in (folder / f"{what}.h5", folder / what) if path.exists()), None)


def _open_plain(folder: Path, what: str) -> VectorSource:
    place = _plain_place(folder, what)
    if place is None:
        raise FeatureError(f"{folder}: no {what}.h5 and no folder {what}/ with one .npy per entry; write one")
    return _open_place(place)


def _open_place(place: Path) -> VectorSource:
    return open_hdf5(place) if place.suffix == ".h5" else FolderVectors(place)


def open_hdf5(path: Path) -> VectorSource:
    """Open an HDF5 file with one data set per name; raises FeatureError if it is missing or damaged."""
    from untrimmed.data.hdf5 import Hdf5Vectors  # imports h5py, which a search does not need

    return Hdf5Vectors(path)


def _open_frames(layout: Layout, path: Path) -> VectorSource:
    """Open frame features by their path, in the standard layout or in JSG's layout."""
    is_in_folder = path.parent.parent == layout.folder / "FeatureData"
    if not is_in_folder and (path / "shape.txt").is_file():
        return BigFileFrames(path)
    if not is_in_folder and path.stem == "frames":
        return _open_place(path)
    from untrimmed.data.hdf5 import FeatureFolderFrames, JSGFrames

    return FeatureFolderFrames(path) if is_in_folder else JSGFrames(path)


def _existing(path: Path, what: str) -> Path:
    if not path.is_file():
        raise FeatureError(
            f"{path}: no such file, expected {what}; extract them or correct the folder of data sets (root)"
        )
    return path


def _no_captions(layout: Layout, split: str) -> str:
    if not layout.folder.is_dir():
        return f"{layout.folder}: no such data set; {layout.next_step}"
    expected = f"{CAPTION_FILE}, TextData/{layout.captions(split).name} or {layout.moments(split).name}"
    return f"{layout.folder}: no captions for split {split}, expected {expected}; {layout.next_step}"
