"""How much the readings of ProtoPRVR's prototypes differ, in each form of reading, before and after training.

    python benchmarks/prototype_readings.py [--root DIR --data tvr] [--iterations 1 6] [--train EPOCHS] [--dim 384]
    python benchmarks/prototype_readings.py --run RUN

Without `--root` 100 videos are simulated. For each branch: the cosine of what a prototype is after reading 1 and after
readings 2, 3, ... of the same video; the mean cosine of two prototypes of a video, and of one prototype in two videos,
both after reading 1 and after the last; how far the attention of two prototypes differs (half the sum of absolute
differences). Over 24 videos of the validation split. `--train` trains each form with the preset of TVR, changed by
KEY=VALUE, and prints SumR on the test split too; `--run` takes a finished run of `proto` as it is.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from torch import Tensor

import untrimmed
from untrimmed.batches import VideoBatch
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.models.proto import Proto
from untrimmed.moments.proposals import proposals
from untrimmed.nn.prototypes import Prototypes
from untrimmed.presets import load_preset
from untrimmed.running.batches import video_batch

FORMS: dict[str, dict[str, Any]] = {
    **{
        f"all, {scale:g}": {"model.prototype_residual": "all", "model.prototype_scale": scale}
        for scale in (0.5, 2.0, 6.0)
    },
    "anchored": {"model.prototype_residual": "anchored"},
    "none": {"model.prototype_residual": "none"},
}
COLUMNS = ("branch", "1 and 2, 3, ...", "in a video", "across videos", "attention", "SumR")


def alike(vectors: Float[Tensor, "N K D"]) -> float:
    """Mean cosine of two different vectors of a group; nan where a group has one."""
    unit, count = F.normalize(vectors, dim=-1), vectors.shape[1]
    return float(((unit @ unit.mT).sum((1, 2)) - count).mean()) / (count * (count - 1)) if count > 1 else float("nan")


def figures(readings: list[Prototypes]) -> list[str]:
    """The cells of a branch."""
    first, last = readings[0].vectors, readings[-1].vectors
    to_first = (F.cosine_similarity(first, later.vectors, dim=-1).mean().item() for later in readings[1:])
    looks = readings[-1].attention
    return [
        " ".join(f"{cosine:.3f}" for cosine in to_first),
        f"{alike(first):.3f} {alike(last):.3f}",
        f"{alike(first.transpose(0, 1)):.3f} {alike(last.transpose(0, 1)):.3f}",
        f"{0.5 * (looks[:, :, None] - looks[:, None]).abs().sum(-1).mean().item():.3f}",
    ]


@torch.inference_mode()
def rows_of(model: Proto, videos: VideoBatch) -> Iterator[list[str]]:
    """The row of each branch."""
    model.eval()
    clips = proposals(model.clip_tower(videos.clips))
    frames = model.frame_tower(videos.frames, videos.frame_mask)
    yield ["clips", *figures(list(model.clip_branch.builder.readings(clips)))]
    yield ["frames", *figures(list(model.frame_branch.builder.readings(frames, videos.frame_mask)))]


def compare(args: argparse.Namespace, root: Path, folder: Path, table: Table) -> None:
    """All forms, each as it starts and, if it is to be trained, as it ends."""
    sizes = {"model.dim": args.dim, "train.epochs": args.train} | dict(args.settings)
    for iterations in args.iterations:
        for name, form in FORMS.items():
            over = sizes | form | {"model.iterations": iterations}
            title, val = f"{name}, K = {iterations}", dataset_of(args.data, root, over)
            over |= {"model.query_dim": val.query_dim, "model.video_dim": val.video_dim}
            torch.manual_seed(0)
            preset = load_preset("proto", "tvr", over)
            add(table, title, type_of(untrimmed.create_model("proto", **preset.model)), val)
            if args.train:
                run = untrimmed.train(
                    "proto", data=args.data, root=root, out=folder / title, preset="tvr", seed=0, **over
                )
                sum_r = untrimmed.evaluate(run, moments=False).figures["SumR"]
                add(table, f"{title}, trained", type_of(run.load_model()), val, f"{sum_r:.1f}")


def dataset_of(data: str, root: Path, over: dict[str, Any]) -> RetrievalDataset:
    """The validation split as models of these settings want it."""
    model = load_preset("proto", "tvr", over).model
    sizes = {name: model[name] for name in ("num_clips", "max_frames", "max_words")}
    return untrimmed.load_dataset(data, root, "val", **sizes)


def type_of(model: object) -> Proto:
    """The model, which has to be ProtoPRVR's."""
    if not isinstance(model, Proto):
        raise SystemExit(f"the run is of {type(model).__name__}, wanted one of proto")
    return model


def add(table: Table, name: str, model: Proto, val: RetrievalDataset, sum_r: str = "") -> None:
    """The rows of a model."""
    for row in rows_of(model, video_batch(val, np.arange(min(24, len(val.video_ids))))):
        table.add_row(name, *row, sum_r)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--data", default="tvr")
    parser.add_argument("--iterations", type=int, nargs="*", default=[1, 6])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--train", type=int, default=0, metavar="EPOCHS")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", type=lambda text: setting(text))
    args = parser.parse_args()
    logging.getLogger("lightning").setLevel(logging.WARNING)
    table = Table("")
    for column in COLUMNS:
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        if args.run:
            loaded = untrimmed.load(args.run)
            add(table, str(args.run), type_of(loaded.model), loaded.load_dataset("val"))
        else:
            if args.root is None:
                untrimmed.simulate(args.data, folder, num_videos=100)
            compare(args, args.root or Path(folder), Path(folder), table)
    Console(width=130).print(table)


def setting(text: str) -> tuple[str, Any]:
    """A setting and its value."""
    name, _, value = text.partition("=")
    return name, cast(Any, yaml.safe_load(value))


if __name__ == "__main__":
    main()
