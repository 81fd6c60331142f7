"""How the files of a data set are arranged: the field's layout, JSG's, the plain one, and those that are registered."""

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
from untrimmed.data.sources import (
    BigFileFrames,
    FolderArrays,
    FolderVectors,
    Hdf5Vectors,
    JoinedFrames,
    JSGFrames,
    VectorSource,
)
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError, UntrimmedError, one_line
from untrimmed.plugins import load_installed


@runtime_checkable
class DataLayout(Protocol):
    """How the files of a data set lie in its folder.

    Mappings hold arrays or the data sets of an open HDF5 file; they may read an entry when it is asked for. A change to
    any file in the folder makes packed features stale.
    """

    def recognises(self, folder: Path) -> bool:
        """Whether the folder is in this layout; asked before the layouts of this package are tried."""

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """The captions of train, val or test, in order; none where the data set has no such split."""

    def frames(self, folder: Path) -> Mapping[str, Any] | VectorSource:
        """Frame vectors [frames, width] by video id."""

    def words(self, folder: Path) -> Mapping[str, Any] | VectorSource:
        """Word vectors [words, width] by caption id."""


class PlainLayout:
    """People's own data, see `untrimmed.data.plain`."""

    def recognises(self, folder: Path) -> bool:
        """Whether it has such captions, or frames without any."""
        if (folder / CAPTION_FILE).is_file():
            return True
        return _plain_place(folder, "frames") is not None and not (folder / "TextData").is_dir()

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """The captions of a split, in file order."""
        path = folder / CAPTION_FILE
        if not path.is_file():
            wanted = 'lines like {"video": "lake", "caption": "a dog jumps"}'
            step = "write it, or run untrimmed features --captions"
            raise FeatureError(f"{path}: no such file, wanted {wanted}; {step}")
        return read_plain(path)[split]

    def frames(self, folder: Path) -> VectorSource:
        """The frame vectors by video id."""
        return _open_plain(folder, "frames")

    def words(self, folder: Path) -> VectorSource:
        """The word vectors by caption id."""
        return _open_plain(folder, "words")


@dataclass(frozen=True)
class JSGLayout:
    """JSG's: lines that hold captions with their moments, frames in an HDF5 file, words as in the field's layout.

    `video_features` chooses among several frame features.
    """

    video_features: str | None = None

    def recognises(self, folder: Path) -> bool:
        """Whether it is one: the last layout that is tried takes every folder, and names what is missing."""
        return True

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """The captions of a split, in file order."""
        layout = Layout(folder.name, folder)
        if not layout.moments(split).is_file():
            raise FeatureError(_nothing_found(layout, split))
        return read_jsg(layout.moments(split))

    def frames(self, folder: Path) -> VectorSource:
        """The frame vectors by video id; BigFile folders of the field's layout count too."""
        layout = Layout(folder.name, folder)
        path = layout.frames(self.video_features)
        source: VectorSource = BigFileFrames(path) if path.is_dir() else JSGFrames(path)
        return JoinedFrames(source, layout.merged_videos) if layout.merged_videos.is_file() else source

    def words(self, folder: Path) -> VectorSource:
        """The word vectors by caption id."""
        return Hdf5Vectors(_existing(Layout(folder.name, folder).words, "word features"))


class FieldLayout(JSGLayout):
    """The field's: caption files without times, which JSG's lines add by caption id, else by video and text."""

    def recognises(self, folder: Path) -> bool:
        """Whether a caption file is there."""
        return any(folder.glob("TextData/*.caption.txt"))

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        """The captions of a split, in file order; those of JSG's lines if the split has no caption file."""
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
            found = by_id.get(caption.caption_id) or by_text.get((caption.video, caption.text))
            if found is not None:
                caption = replace(caption, moments=found.moments, duration_s=found.duration_s, kind=found.kind)
            joined.append(caption)
        return joined


T = TypeVar("T")
L = TypeVar("L", bound=type[DataLayout])
_LAYOUTS: dict[str, DataLayout] = {}


def register_layout(name: str) -> Callable[[L], L]:
    """Register a layout, whose class is created without arguments; raises ConfigError if the name is taken."""

    def add(cls: L) -> L:
        if name in _LAYOUTS:
            raise ConfigError(f"two layouts are named {name!r}; give yours another name")
        _LAYOUTS[name] = cls()
        return cls

    return add


class _Checked:
    """A registered layout; its errors, and answers of the wrong kind, become one line."""

    def __init__(self, name: str, layout: DataLayout):
        self._name = name
        self._layout = layout

    def recognises(self, folder: Path) -> bool:
        return bool(self._asked("recognises", lambda: self._layout.recognises(folder)))

    def captions(self, folder: Path, split: str) -> Sequence[Annotation]:
        captions = self._asked("captions", lambda: list(self._layout.captions(folder, split)))
        wrong = next((caption for caption in captions if not isinstance(caption, Annotation)), None)
        if wrong is not None:
            raise FeatureError(self._wrong("captions", f"holds a {type(wrong).__name__}, wanted Annotations"))
        return captions

    def frames(self, folder: Path) -> VectorSource:
        return self._source("frames", folder)

    def words(self, folder: Path) -> VectorSource:
        return self._source("words", folder)

    def _source(self, what: str, folder: Path) -> VectorSource:
        tables = self._asked(what, lambda: getattr(self._layout, what)(folder))
        if not hasattr(tables, "items") or not hasattr(tables, "get"):  # an open HDF5 file has both
            raise FeatureError(self._wrong(what, f"gave a {type(tables).__name__}, wanted a mapping of arrays by id"))
        return FolderArrays(tables, folder)

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except UntrimmedError:
            raise
        except Exception as error:
            raise FeatureError(self._wrong(what, f"{type(error).__name__}: {one_line(error)}")) from error

    def _wrong(self, what: str, found: str) -> str:
        return f"layout {self._name!r}, {what}: {found}; correct it"


def layout_of(folder: Path, video_features: str | None = None) -> _Checked | PlainLayout | JSGLayout:
    """Return the first layout that recognises the folder, registered ones first; `video_features` names the frames."""
    load_installed()
    for name, registered in _LAYOUTS.items():
        if (layout := _Checked(name, registered)).recognises(folder):
            return layout
    built_in: tuple[PlainLayout | JSGLayout, ...] = (PlainLayout(), FieldLayout(video_features))
    return next((layout for layout in built_in if layout.recognises(folder)), JSGLayout(video_features))


def read_split(name: str, root: Path, split: str) -> list[Annotation]:
    """Return the captions of one split of ROOT/NAME in file order.

    Raises: UnknownNameError for an unknown split, FeatureError for no captions or damaged files.
    """
    if split not in SPLITS:
        raise UnknownNameError(f"no split {split!r}; choose one of {', '.join(SPLITS)}")
    folder = Layout.at(root, name).folder
    annotations = list(layout_of(folder).captions(folder, split))
    if not annotations:
        raise FeatureError(f"{folder}: no caption for split {split}; add some")
    return annotations


def open_frames(layout: Layout, video_features: str | None = None) -> VectorSource:
    """Open the frame vectors of a data set in any layout; raises FeatureError if they are missing or damaged."""
    return layout_of(layout.folder, video_features).frames(layout.folder)


def open_words(layout: Layout) -> VectorSource:
    """Open the word vectors of a data set in any layout; raises FeatureError if they are missing or damaged."""
    return layout_of(layout.folder).words(layout.folder)


def open_teacher(layout: Layout) -> tuple[VectorSource, VectorSource]:
    """Open DL-DKD's CLIP frame and sentence vectors; raises FeatureError if a file is missing or damaged."""
    frames = Hdf5Vectors(_existing(layout.teacher_frames, "the frames of dl_dkd's teacher (CLIP)"))
    return frames, Hdf5Vectors(_existing(layout.teacher_sentences, "the sentences of dl_dkd's teacher (CLIP)"))


def _plain_place(folder: Path, what: str) -> Path | None:
    """The HDF5 file or the folder of numpy files."""
    return next((path for path in (folder / f"{what}.h5", folder / what) if path.exists()), None)


def _open_plain(folder: Path, what: str) -> VectorSource:
    place = _plain_place(folder, what)
    if place is None:
        raise FeatureError(f"{folder}: neither {what}.h5 nor a folder {what}/ with a .npy per entry; write one of them")
    return Hdf5Vectors(place) if place.suffix == ".h5" else FolderVectors(place)


def _existing(path: Path, what: str) -> Path:
    if not path.is_file():
        raise FeatureError(f"{path}: no such file, wanted {what}; extract them or correct --root")
    return path


def _nothing_found(layout: Layout, split: str) -> str:
    looked_for = f"{CAPTION_FILE}, TextData/{layout.captions(split).name} and {layout.moments(split).name}"
    if (benchmark := layout.benchmark) is not None:
        called = "" if benchmark.name == layout.name else f" --name {layout.name}"
        step = f"run: untrimmed data prepare {benchmark.name}{called} --annotations DIR --out {layout.folder.parent}"
    else:
        step = f"write one, or run: untrimmed data simulate {layout.name} --out {layout.folder.parent}"
    return f"{layout.folder}: no captions for split {split}, looked for {looked_for}; {step}"
