"""The raw toy corpus of a case, from its arrays or from files in the field's layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from untrimmed.data.bigfile import BigFile, read_captions, read_video2frames
from untrimmed.data.collate import CaptionItem, VideoItem
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import FeatureError
from untrimmed.parity.case import Case


@dataclass(frozen=True)
class Corpus:
    """Raw features by id; `caption_ids` in file order, videos in order of first appearance there."""

    frames: dict[str, np.ndarray]
    words: dict[str, np.ndarray]
    caption_ids: list[str]

    @property
    def video_ids(self) -> list[str]:
        """Videos in order of first appearance in the captions."""
        return list(dict.fromkeys(video_of(caption_id) for caption_id in self.caption_ids))

    def video_item(self, case: Case, video_id: str) -> VideoItem:
        """A video as the models read it."""
        clips, frames = prepare_video(
            self.frames[video_id], num_clips=case.setting("map_size"), max_frames=case.setting("max_ctx_l")
        )
        return VideoItem(video_id, clips, frames)

    def caption_item(self, case: Case, caption_id: str) -> CaptionItem:
        """A caption as the models read it."""
        words = prepare_words(self.words[caption_id], max_words=case.setting("max_desc_l"))
        return CaptionItem(caption_id, words)


def video_of(caption_id: str) -> str:
    """The video id at the front of a caption id."""
    return caption_id.partition("#")[0]


def read_corpus(case: Case, split: str) -> Corpus:
    """The corpus of a case; one stored as files has splits, one stored as arrays is the same for all."""
    return _from_store(case, split) if "store" in case.config else _from_arrays(case)


def store_folders(case: Case) -> tuple[Path, Path]:
    """Where the files of a case's toy data set lie: frame features and texts."""
    root = case.folder / case.setting("store") / case.setting("collection")
    if not root.is_dir():
        raise FeatureError(f"{root}: no such folder; the case keeps its data set there, run it where it lies")
    return root / "FeatureData" / case.setting("visual_feature"), root / "TextData"


def _from_store(case: Case, split: str) -> Corpus:
    features, texts = store_folders(case)
    name = case.setting("collection")
    bigfile = BigFile(features)
    video2frames = read_video2frames(features / "video2frames.txt")
    captions = read_captions(texts / f"{name}{split}.caption.txt")
    with h5py.File(texts / f"roberta_{name}_query_feat.hdf5") as file:
        words = {caption.caption_id: file[caption.caption_id][()] for caption in captions}
    videos = dict.fromkeys(caption.video_id for caption in captions)
    frames = {video: bigfile.read_sequence(video2frames[video]) for video in videos}
    return Corpus(frames, words, [caption.caption_id for caption in captions])


def _from_arrays(case: Case) -> Corpus:
    case.require(("video_ids", "frame_counts", "frames", "caption_ids", "word_counts", "words"))
    arrays = case.batch
    frames = np.split(arrays["frames"], np.cumsum(arrays["frame_counts"])[:-1])
    words = np.split(arrays["words"], np.cumsum(arrays["word_counts"])[:-1])
    caption_ids = [str(caption_id) for caption_id in arrays["caption_ids"]]
    videos = dict(zip(map(str, arrays["video_ids"]), frames, strict=True))
    return Corpus(videos, dict(zip(caption_ids, words, strict=True)), caption_ids)


def in_batches(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    """Consecutive groups of at most `size`."""
    return [ids[start : start + size] for start in range(0, len(ids), size)]
