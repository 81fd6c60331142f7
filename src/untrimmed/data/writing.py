"""Write a data set's captions and vectors in one of the layouts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import Annotation
from untrimmed.data.bigfile import write_bigfile
from untrimmed.data.bigfile import write_captions as write_caption_file
from untrimmed.data.jsg import write_jsg
from untrimmed.data.layout import Layout
from untrimmed.data.plain import CAPTION_FILE, write_plain
from untrimmed.files import whole_file

LayoutName = Literal["field", "jsg", "plain"]


def write_captions(target: Layout, layout: LayoutName, splits: Mapping[str, list[Annotation]]) -> None:
    """Write the captions of all splits. A split without captions gets no file."""
    if layout == "plain":
        write_plain(target.folder / CAPTION_FILE, splits)
        return
    for split, captions in splits.items():
        if captions and layout == "field":
            write_annotations(target, split, captions)
        elif captions:
            write_jsg(target.moments(split), captions)


def write_annotations(layout: Layout, split: str, annotations: list[Annotation]) -> None:
    """Write the caption file of a split, and JSG's file of captions with times."""
    with whole_file(layout.captions(split)) as temporary:
        write_caption_file(temporary, annotations)
    write_jsg(layout.moments(split), annotations)


def write_frames(
    target: Layout, layout: LayoutName, name: str, frames: Iterable[tuple[str, Float[np.ndarray, "_ D"]]]
) -> None:
    """Write the frame vectors of all videos, one video at a time. `name` is the name of the features."""
    if layout == "field":
        write_bigfile(target.folder / "FeatureData" / name, frames)
    elif layout == "jsg":
        write_tables(target.folder / f"{target.name}_{name}.hdf5", frames)
    else:
        for video, vectors in frames:
            path = target.folder / "frames" / f"{video}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, vectors)


def write_words(target: Layout, layout: LayoutName, words: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write the word vectors by caption id."""
    write_tables(target.folder / "words.h5" if layout == "plain" else target.words, words)


def write_tables(path: Path, tables: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write an HDF5 file with one data set per name."""
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, table in tables:
            file[name] = table
