"""How much the iterations of ProtoPRVR's prototypes differ, before and after training.

    python benchmarks/prototype_readings.py [--root DIR --data tvr] [--iterations 1 3 6] [--dims 384] [--sharpness 4]
    python benchmarks/prototype_readings.py --runs FOLDER...

Without `--runs`: untrained models with the preset of TVR, `--seeds` of each; without `--root`, 100 videos are
simulated. With `--runs`: runs, or folders of runs named NAME-SEED as `untrimmed study` writes them into OUT/DATA, each
before and after training, with SumR on the test split. Runs of other methods are skipped. The results are means and
standard deviations over seeds, on 24 videos of the validation split, for each branch: the cosine of a prototype after
the first reading with the same prototype after the last; the mean cosine of two prototypes of a video, and of one
prototype in two videos, after the first and after the last reading; and the difference of two prototypes' attention
(half the sum of absolute differences).
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

import untrimmed
from untrimmed.batches import VideoBatch
from untrimmed.models.proto import Proto
from untrimmed.models.registry import build_model
from untrimmed.moments.proposals import proposals
from untrimmed.nn.prototypes import Prototypes
from untrimmed.presets import load_preset
from untrimmed.reproduction.render import mean_and_deviation
from untrimmed.running.batches import video_batch
from untrimmed.running.run import Run, is_model, is_run, open_run

COLUMNS = (
    *("form", "", "branch", "seeds", "first and last", "in a video: first", "last", "across videos: first", "last"),
    *("attention", "SumR"),
)


def alike(vectors: Float[Tensor, "N K D"]) -> float:
    """Mean cosine of two different vectors of a group; nan where a group has one."""
    unit, count = F.normalize(vectors, dim=-1), vectors.shape[1]
    return float(((unit @ unit.mT).sum((1, 2)) - count).mean()) / (count * (count - 1)) if count > 1 else float("nan")


def figures(readings: list[Prototypes]) -> list[float]:
    """Those of a branch, in the order of the columns."""
    first, last = readings[0].vectors, readings[-1].vectors
    looks = readings[-1].attention
    return [
        F.cosine_similarity(first, last, dim=-1).mean().item(),
        alike(first),
        alike(last),
        alike(first.transpose(0, 1)),
        alike(last.transpose(0, 1)),
        0.5 * (looks[:, :, None] - looks[:, None]).abs().sum(-1).mean().item(),
    ]


@torch.inference_mode()
def branches(model: Proto, videos: VideoBatch) -> dict[str, list[float]]:
    """The figures of each branch."""
    model.eval()
    clips = proposals(model.clip_tower(videos.clips))
    frames = model.frame_tower(videos.frames, videos.frame_mask)
    return {
        "clips": figures(list(model.clip_branch.builder.readings(clips))),
        "frames": figures(list(model.frame_branch.builder.readings(frames, videos.frame_mask))),
    }


@dataclass
class Rows:
    """The two rows of a form in one state: results per seed by branch, and SumR of evaluated seeds."""

    by_branch: dict[str, list[list[float]]] = field(default_factory=lambda: {"clips": [], "frames": []})
    sum_r: list[float] = field(default_factory=list)

    def add(self, model: Proto, videos: VideoBatch) -> None:
        """What another seed gave."""
        for branch, found in branches(model, videos).items():
            self.by_branch[branch].append(found)

    def lines(self, form: str, state: str) -> Iterator[str]:
        """Markdown."""
        for branch, seeds in self.by_branch.items():
            cells = [mean_and_deviation(values, 3) for values in zip(*seeds, strict=True)]
            sum_r = mean_and_deviation(self.sum_r) if self.sum_r else ""
            yield "| " + " | ".join((form, state, branch, str(len(seeds)), *cells, sum_r)) + " |"


def starts(args: argparse.Namespace, root: Path) -> Iterator[str]:
    """The lines of all forms as they start."""
    model = load_preset("proto", "tvr").model
    sizes = {name: model[name] for name in ("num_clips", "max_frames", "max_words")}
    val = untrimmed.load_dataset(args.data, root, "val", **sizes)
    videos = video_batch(val, np.arange(min(24, len(val.video_ids))))
    widths = {"model.query_dim": val.query_dim, "model.video_dim": val.video_dim}
    for dim, iterations, sharpness in itertools.product(args.dims, args.iterations, args.sharpness):
        rows = Rows()
        form = {"model.dim": dim, "model.iterations": iterations, "model.prototype_sharpness": sharpness}
        settings = load_preset("proto", "tvr", widths | form).model
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            rows.add(of_proto(untrimmed.create_model("proto", **settings)), videos)
        yield from rows.lines(f"K = {iterations}, sharpness {sharpness:g}, width {dim}", "start")


def trained(folders: list[Path]) -> Iterator[str]:
    """The lines of all runs of ProtoPRVR, those of the same form together."""
    for form, runs in by_form(folders).items():
        start, end = Rows(), Rows()
        for run in runs:
            loaded = untrimmed.load(run.folder)
            val = loaded.load_dataset("val")
            videos, model = video_batch(val, np.arange(min(24, len(val.video_ids)))), of_proto(loaded.model)
            torch.manual_seed(run.config.train.seed)  # as training does before it makes the model
            start.add(of_proto(build_model(type(model), model.config)), videos)
            end.add(model, videos)
            end.sum_r.append(untrimmed.evaluate(run, moments=False).figures["SumR"])
        yield from start.lines(form, "start")
        yield from end.lines(form, "trained")


def by_form(folders: list[Path]) -> dict[str, list[Run]]:
    """The finished runs of ProtoPRVR in the folders, or that the folders are, by their names without the seed."""
    forms: dict[str, list[Run]] = {}
    for folder in folders:
        for path in [folder] if is_run(folder) else sorted(folder.iterdir()):
            run = open_run(path) if is_run(path) and is_model(path) else None
            if run is None or run.config.method != "proto":
                continue
            if len(run.history) < run.config.train.epochs:
                print(f"{path.name}: {len(run.history)} of {run.config.train.epochs} epochs, skipped", file=sys.stderr)
                continue
            forms.setdefault(path.name.rpartition("-")[0] or path.name, []).append(run)
    return forms


def of_proto(model: object) -> Proto:
    """The model, which has to be ProtoPRVR's."""
    if not isinstance(model, Proto):
        raise SystemExit(f"the model is of {type(model).__name__}, expected a run of proto")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--data", default="tvr")
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 3, 6])
    parser.add_argument("--dims", type=int, nargs="+", default=[384])
    parser.add_argument("--sharpness", type=float, nargs="+", default=[4.0])
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|", sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        if args.runs is None and args.root is None:
            untrimmed.simulate(args.data, folder, num_videos=100)
        for line in trained(args.runs) if args.runs else starts(args, args.root or Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
