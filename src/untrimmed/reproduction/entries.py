"""What the tables of several papers have in common: data sets, methods, notes, commands."""

from dataclasses import replace

from untrimmed.reproduction.tables import Column, NotCovered, Row

METHODS = {
    "CLIP4Clip": "clip4clip",
    "MS-SL": "ms_sl",
    "JSG": "jsg",
    "GMMFormer": "gmmformer",
    "DL-DKD": "dl_dkd",
    "GMMFormer v2": "gmmformer_v2",
    "ProtoPRVR": "proto",
    "HLFormer": "hlformer",
}
TVR, ACTIVITYNET, CHARADES = Column(name="tvr"), Column(name="activitynet"), Column(name="charades")
ON_VALIDATION = tuple(replace(each, split="val") for each in (TVR, ACTIVITYNET, CHARADES))
BY_RATIO = ("SumR M/V (0,0.2]", "SumR M/V (0.2,0.4]", "SumR M/V (0.4,1]", "SumR")
CORPUS_SIZES = (500, 1000, 1500, 2000, 2500)
CURVES = "The paper prints curves without figures; the points are ours."
BARS = "The paper prints bars without figures."
WINDOWS = "No formula of the other windows is printed; ours have the variance of the Gaussian they replace."
WORDS = (
    "On ActivityNet Captions the released program reads 30 words and so does the preset; for the paper's append "
    "model.max_words=64."
)
VIDEOS = (
    "First videos: ID and ID2 are captions of the test split; --videos DIR, the folder of the video files, adds frames."
)
CLIP_NOTE = (
    "CLIP-L/14: tvr_clip and activitynet_clip are folders with frames and words of that network beside the captions of "
    "untrimmed data prepare tvr --name tvr_clip, and of activitynet likewise; docs/data.md says where files lie."
)


def methods(*names: str) -> dict[str, str]:
    """The methods that papers call so."""
    return {name: METHODS[name] for name in names}


def rows_of(*names: str) -> tuple[Row, ...]:
    """A row for each method as its preset has it."""
    return tuple(Row(name, method) for name, method in methods(*names).items())


def drawings(**titles: str) -> tuple[NotCovered, ...]:
    """Figures in which nothing is measured, by name."""
    reason = "a drawing of the idea, nothing is measured"
    return tuple(NotCovered(name=name, title=title, reason=reason) for name, title in titles.items())


def top(name: str, *runs: str, queries: int = 2) -> tuple[str, str]:
    """The commands that list and draw the first videos of some captions, the same ones."""
    runs, ids = runs or ("RUN",), ("ID", "ID2")[:queries]
    asked = " ".join(f"--query {each}" for each in ids)
    listed = f"untrimmed evaluate {runs[0]} --top 3 --queries {','.join(ids)}"
    return listed, f"untrimmed plot top {' '.join(runs)} {asked} -o {name}.png"


def training(method: str, data: str, out: str = "RUN") -> str:
    """The command that trains a method."""
    return f"untrimmed train {method} --data {data} --root DIR --out {out}"
