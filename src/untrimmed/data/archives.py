"""Where the files of each benchmark are published, according to papers, releases and annotation repositories.

Unknown facts are None. Their names are printed as "not known".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from untrimmed.data.benchmarks.registry import get_benchmark, list_benchmarks


@dataclass(frozen=True, kw_only=True)
class Archive:
    """Files that a benchmark needs.

    - `place` is the URL of the repository that contains the files, or None if no public copy is known.
    - `commit` is the version of the repository that we read.
    - `size` is a text such as "2 GB", and `sha256` is a checksum.
    - `command` is the command or instruction that moves the files from the folder DOWNLOADS into ROOT, the parent
      folder of all data sets.
    - `note` contains further advice, such as where to ask for the files.
    """

    benchmark: str
    content: str
    files: tuple[str, ...]
    place: str | None
    commit: str | None = None
    size: str | None = None
    sha256: str | None = None
    licence: str | None = None
    command: str
    note: str = ""


def list_archives(benchmark: str | None = None) -> list[Archive]:
    """Return the published files of one benchmark, or of all benchmarks.

    Raises: UnknownNameError for an unknown benchmark.
    """
    names = list_benchmarks() if benchmark is None else [get_benchmark(benchmark).name]
    return [archive for name in names for archive in _archives_of(name)]


_UNSEEN = "we have not seen the train file and derived its path from the paths of the other files"
_TAN = {"commit": "2f7410f0de5e", "licence": "MIT for the repository; not stated for the texts"}
# the original files of a benchmark, their repository on GitHub, and facts about them
_ANNOTATIONS: dict[str, tuple[tuple[str, ...], str, dict[str, Any]]] = {
    "tvr": (
        ("data/tvr_val_release.jsonl", "data/tvr_train_release.jsonl"),
        "jayleicn/TVRetrieval",
        {
            "commit": "d99a9ea7e724",
            "licence": "MIT",
            "size": "train: about 17 MB; val: not known",
            "note": f"{_UNSEEN}; the times of the test set are not public",
        },
    ),
    "activitynet": (
        ("data/ActivityNet/train.json", "data/ActivityNet/val.json", "data/ActivityNet/test.json"),
        "microsoft/2D-TAN",
        _TAN | {"note": "rename val.json to val_1.json and test.json to val_2.json"},
    ),
    "charades": (
        (
            "data/Charades-STA/charades_sta_train.txt",
            "data/Charades-STA/charades_sta_test.txt",
            "data/Charades-STA/Charades_v1_train.csv",
            "data/Charades-STA/Charades_v1_test.csv",
        ),
        "microsoft/2D-TAN",
        _TAN | {"licence": "Charades: non-commercial use licence of the Allen Institute for AI"},
    ),
    "didemo": (
        ("data/train_data.json", "data/val_data.json", "data/test_data.json"),
        "LisaAnne/LocalizingMoments",
        {"commit": "b6a555c81345", "licence": "BSD 2-Clause", "note": _UNSEEN},
    ),
    "qvhighlights": (
        ("data/highlight_train_release.jsonl", "data/highlight_val_release.jsonl"),
        "jayleicn/moment_detr",
        {"commit": "b7e553ac3b0c", "licence": "CC BY-NC-SA 4.0"},
    ),
}
# for each benchmark: folder of the released frame features, their networks and width, and the width of word features
_FEATURES = {
    "tvr": ("i3d_resnet", "ResNet-152 and I3D, 3,072 wide", 768),
    "activitynet": ("i3d", "I3D, 1,024 wide", 1024),
    "charades": ("i3d_rgb_lgi", "I3D, 1,024 wide", 1024),
}
_MS_SL = "https://github.com/HuiGuanLab/ms-sl"
_OTHER_FILES = {"msrvtt": ("MSRVTT_data.json",)}
_DENSE_LABELS = {
    "activitynet": "activitynetdenseval.gt.jsonl",
    "charades": "charadesdenseval.gt.jsonl",
    "msrvtt": "msrvttdenseval.gt.jsonl",
    "tvr": "tvrdenseval_v.gt.jsonl",
}


def _archives_of(name: str) -> Iterator[Archive]:
    prepare = f"untrimmed data prepare {name} --annotations DOWNLOADS --out ROOT"
    if name in _ANNOTATIONS:
        files, repository, facts = _ANNOTATIONS[name]
        place = f"https://github.com/{repository}"
        yield Archive(
            benchmark=name, content="captions and moments", files=files, place=place, command=prepare, **facts
        )
    else:
        named = (names[0] for names in get_benchmark(name).files.values())
        files = tuple(dict.fromkeys((*named, *_OTHER_FILES.get(name, ()))))
        yield Archive(benchmark=name, content="captions", files=files, place=None, command=prepare)
    if name in _FEATURES:
        yield from _features_of(name)
    if name in _DENSE_LABELS:
        yield Archive(
            benchmark=name,
            content="dense labels of the test split: all videos that a caption fits",
            files=(_DENSE_LABELS[name],),
            place="https://github.com/CELL-POSTECH/prvr-ea",
            command=f"untrimmed evaluate RUN --data {name} --root ROOT --truths DOWNLOADS/{_DENSE_LABELS[name]}",
        )


def _features_of(name: str) -> Iterator[Archive]:
    folder, network, words = _FEATURES[name]
    check = f"untrimmed data check {name} --root ROOT"
    data = f"ROOT/{name}"
    files = ("feature.bin", "id.txt", "shape.txt", "video2frames.txt")
    yield Archive(
        benchmark=name,
        content=f"frame features of MS-SL and its successors ({network}), with captions",
        files=(
            *(f"FeatureData/{folder}/{file}" for file in files),
            *(f"TextData/{name}{split}.caption.txt" for split in ("train", "val", "test")),
            f"TextData/roberta_{name}_query_feat.hdf5",
        ),
        place=None,
        command=f"unpack so that {data}/FeatureData and {data}/TextData exist; {check}",
        note=f"start at {_MS_SL}, whose program introduced this layout; words: RoBERTa, {words:,} wide",
    )
    yield Archive(
        benchmark=name,
        content="the same frame features in the HDF5 format of Holmes and DreamPRVR",
        files=(f"FeatureData/{folder}/feature.hdf5",),
        place=None,
        command=f"put it into {data}/FeatureData/{folder}, or into a folder of any name beside it; {check}",
        note="an export of feature.bin, one data set per video (frames, width); start at "
        "https://github.com/lijun2005/ICML26-Holmes and https://github.com/lijun2005/CVPR26-DreamPRVR",
    )
    yield Archive(
        benchmark=name,
        content="features of the teacher, needed only to train dl_dkd (CLIP ViT-B/32, 512 wide)",
        files=(
            f"FeatureData/new_clip_vit_32_{name}_vid_features.hdf5",
            f"TextData/clip_ViT_B_32_{name}_query_feat.hdf5",
        ),
        place=None,
        command=f"put them into {data}/FeatureData and {data}/TextData; {check}",
        note="start at https://github.com/HuiGuanLab/DL-DKD, whose program reads them",
    )
