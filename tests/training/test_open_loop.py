"""The optimizer, the schedule, averages, batches and the metric are settings; a loop written by hand gives the same."""

import io
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.optim import SGD, AdamW, lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.refusals import refused
from untrimmed.data.dataset import load_dataset
from untrimmed.errors import CheckpointError, ConfigError, UnknownNameError
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import create_model
from untrimmed.presets import load_preset
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.batches import epoch_batches, training_batch
from untrimmed.running.run import open_run
from untrimmed.training import loop as loop_module
from untrimmed.training.loop import DRAWS, DROPOUT
from untrimmed.training.optim import BertAdam, parameter_groups, warmup_linear
from untrimmed.training.schedule import Schedule
from untrimmed.training.selection import Validation
from untrimmed.training.state import seed_of
from untrimmed.training.train import train

METHOD = "ms_sl"


@pytest.fixture
def run_with(data_root, small, tmp_path):
    """Train METHOD in a new folder, or in the one with this name."""
    settings = small | {"train.epochs": 3, "train.hard_negatives_from_epoch": 1}

    def run(name="run", callback=None, **changes):
        changes = {f"train.{key}": value for key, value in changes.items()}
        return train(METHOD, data="tvr", root=data_root, out=tmp_path / name, callback=callback, **(settings | changes))

    run.settings = settings
    run.root = data_root
    return run


def train_by_hand(run_with, *, optimizer, accumulate=1, before_update=None, after_update=None):
    """Train the model of `run_with` with a loop of a few lines; return the model."""
    preset = load_preset(METHOD, "tvr", run_with.settings)
    settings = preset.train
    torch.manual_seed(settings.seed)
    model = create_model(METHOD, **preset.settings).train()
    dataset = load_dataset("tvr", run_with.root, "train", max_frames=20)
    steps = optimizer(model)
    update = 0
    for epoch in range(settings.epochs):
        batches = epoch_batches(len(dataset.video_ids), settings.batch_size, seed=settings.seed, epoch=epoch)
        groups = [batches[start : start + accumulate] for start in range(0, len(batches), accumulate)]
        for group in groups:
            steps.zero_grad()
            for place, rows in enumerate(group):
                number = update * accumulate + place
                torch.manual_seed(seed_of(settings.seed, number, DROPOUT))
                draws = Draws(
                    hard_pool=settings.hard_pool if epoch >= settings.hard_negatives_from_epoch else None,
                    generator=torch.Generator().manual_seed(seed_of(settings.seed, number, DRAWS)),
                )
                terms = model(training_batch(dataset, rows), draws=draws, epoch=epoch, update=update)
                (total_loss(terms, preset.weights_in(model.config)) / len(group)).backward()
            if before_update:
                before_update(model, steps, update)
            steps.step()
            if after_update:
                after_update(model)
            update += 1
    return model


VALIDATIONS = itertools.count()


def later_is_better(validation):
    """A metric by which the last epoch is the best."""
    return next(VALIDATIONS)


def last_weights(run, prefix="model."):
    tensors = load_file(run.folder / "last.safetensors")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def largest_difference(weights, others):
    assert weights.keys() == others.keys()
    return max((weights[name] - others[name]).abs().max().item() for name in weights)


def test_the_defaults_equal_the_released_loop_to_the_bit(run_with):
    def set_rate(model, optimizer, update):
        for group in optimizer.param_groups:
            group["lr"] = 2.5e-4 * warmup_linear(update, total_steps=12, warmup_share=0.01)

    by_hand = train_by_hand(
        run_with, optimizer=lambda model: BertAdam(parameter_groups(model, 0.01), lr=1.0), before_update=set_rate
    )
    run = run_with(learning_rate=2.5e-4)
    assert largest_difference(last_weights(run), by_hand.state_dict()) == 0
    assert last_weights(run, "average.") == {}
    assert "others" not in load_file(run.folder / "last.safetensors")


@pytest.mark.parametrize("accumulate", [2, 3])  # 4 batches in an epoch: a last update of one batch, too
def test_another_optimizer_schedule_and_accumulation_equal_a_loop_written_by_hand(accumulate, run_with):
    num_updates = 3 * math.ceil(4 / accumulate)
    parts = {}

    def start(model):
        optimizer = AdamW(parameter_groups(model, 0.05), lr=2e-3, betas=(0.8, 0.99))
        parts["schedule"] = lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_updates, eta_min=1e-4)
        parts["average"] = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.6))
        return optimizer

    def clip(model, optimizer, update):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    def finish(model):
        parts["average"].update_parameters(model)
        parts["schedule"].step()

    by_hand = train_by_hand(run_with, optimizer=start, accumulate=accumulate, before_update=clip, after_update=finish)
    run = run_with(
        optimizer="AdamW",
        optimizer_settings={"betas": [0.8, 0.99]},
        learning_rate=2e-3,
        weight_decay=0.05,
        schedule="CosineAnnealingLR",
        schedule_settings={"eta_min": 1e-4},
        warmup_share=0.0,
        accumulate=accumulate,
        clip_norm=0.5,
        average="ema",
        average_settings={"decay": 0.6},
        select_by=later_is_better,
    )
    assert largest_difference(last_weights(run), by_hand.state_dict()) <= 1e-6
    average = parts["average"].module.state_dict()
    assert largest_difference(last_weights(run, "average.module."), average) <= 1e-6
    assert largest_difference(average, by_hand.state_dict()) > 1e-4
    assert [entry["updates"] for entry in run.history] == [num_updates // 3 * epoch for epoch in (1, 2, 3)]
    assert largest_difference(run.load_model().state_dict(), average) <= 1e-6


def test_the_run_keeps_the_averaged_model_from_its_epoch_on(run_with):
    run = run_with(average="swa", average_from_epoch=1, epochs=2, learning_rate=2e-3, select_by=later_is_better)
    average = last_weights(run, "average.")
    assert average["n_averaged"] == 4  # the updates of the second epoch
    kept = run.load_model().state_dict()
    module = {name.removeprefix("module."): t for name, t in average.items() if name != "n_averaged"}
    assert largest_difference(kept, module) == 0
    assert largest_difference(kept, last_weights(run)) > 0


def keep_nine_tenths(average, weights, num_averaged):
    return 0.9 * average + 0.1 * weights


def test_an_average_may_be_a_function(run_with):
    with_function = run_with("function", average=keep_nine_tenths)
    with_name = run_with("name", average="ema", average_settings={"decay": 0.9})
    assert with_function.config.train.average.endswith(":keep_nine_tenths")
    averages = [last_weights(run, "average.module.") for run in (with_function, with_name)]
    assert largest_difference(*averages) < 1e-6


def test_an_optimizer_may_be_a_class_or_a_name_of_a_module(run_with):
    settings = {"optimizer_settings": {"momentum": 0.9}, "learning_rate": 0.01, "epochs": 1}
    runs = [run_with(str(n), optimizer=choice, **settings) for n, choice in enumerate((SGD, "SGD", "torch.optim:SGD"))]
    assert runs[0].config.train.optimizer == "torch.optim.sgd:SGD"
    for run in runs[1:]:
        assert largest_difference(last_weights(runs[0]), last_weights(run)) == 0


@pytest.mark.check
@pytest.mark.parametrize("name", ["ASGD", "Adadelta", "Adafactor", "Adam", "NAdam", "RAdam", "RMSprop"])
def test_optimizers_of_torch_go_on_after_an_interruption(name, run_with, monkeypatch):
    require_same_after_interruption(run_with, monkeypatch, optimizer=name, epochs=2)


def test_a_parameter_that_matches_a_pattern_has_its_own_rate(run_with):
    run = run_with(learning_rates={"query_tower.*": 0.0}, epochs=1, optimizer="SGD", weight_decay=0.0)
    torch.manual_seed(run.config.train.seed)
    initial = create_model(METHOD, **load_preset(METHOD, "tvr", run_with.settings).settings).state_dict()
    moved = {name for name, weight in last_weights(run).items() if not torch.equal(weight, initial[name])}
    assert any(name.startswith("query_tower.") for name in initial)
    assert not any(name.startswith("query_tower.") for name in moved)
    assert len(moved) > len(initial) / 2
    groups = parameter_groups(torch.nn.Linear(2, 3), 0.1, {"w*": 0.5, "*": 0.25})
    assert [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups] == [
        (0.5, 0.1, 1),
        (0.25, 0.0, 1),
    ]


def rates_of(num_updates=8, selections=(), optimizer=SGD, **settings):
    """The rates of two groups over the updates of a run."""
    parameters = [
        {"params": [torch.nn.Parameter(torch.zeros(1))]},
        {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 2.0},
    ]
    steps = optimizer(parameters, lr=1.0)
    schedule = Schedule(steps, TrainSettings(**settings), num_updates)
    rates = []
    used = []
    steps.register_step_pre_hook(lambda *_: used.append([group["lr"] for group in steps.param_groups]))
    for update in range(num_updates):
        schedule.update(update)
        rates.append(schedule.rate)
        if update < len(selections):
            schedule.end_epoch(selections[update])
    assert [first for first, _ in used] == rates
    assert [second for _, second in used] == pytest.approx([2 * rate for rate in rates])
    return rates


def halve(update, *, base=2.0):
    return base**-update


def from_the_end(update, total_steps, warmup_share):
    return (total_steps - update) * warmup_share


def with_other_names(number, total):
    return (total - number) / total


def plain_cosine(optimizer, num_training_steps):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_training_steps)


def test_schedules_set_the_rates_of_all_groups():
    assert rates_of(warmup_share=0.25) == [warmup_linear(n, total_steps=8, warmup_share=0.25) for n in range(8)]
    assert rates_of(schedule="constant", warmup_share=0.5) == [0, 0.25, 0.5, 0.75, 1, 1, 1, 1]
    assert rates_of(3, schedule=halve, warmup_share=0.0, schedule_settings={"base": 4.0}) == [1, 1 / 4, 1 / 16]
    assert rates_of(3, schedule=from_the_end, warmup_share=0.5) == [1.5, 1, 0.5]
    assert rates_of(4, schedule=with_other_names, warmup_share=0.0) == [1, 0.75, 0.5, 0.25]
    cosine = [(1 + math.cos(math.pi * n / 8)) / 2 for n in range(8)]
    assert rates_of(schedule="CosineAnnealingLR", warmup_share=0.0) == pytest.approx(cosine)
    assert rates_of(schedule=plain_cosine, warmup_share=0.0) == pytest.approx(cosine)
    warm = [min(1, n / 4) * factor for n, factor in enumerate(cosine)]
    assert rates_of(schedule="CosineAnnealingLR", warmup_share=0.5) == pytest.approx(warm)
    steps = {"milestones": [2, 4], "gamma": 0.5}
    assert rates_of(6, schedule="MultiStepLR", schedule_settings=steps, warmup_share=0.0) == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.25,
    ]
    linear = {"start_factor": 1.0, "end_factor": 0.5}
    assert rates_of(4, schedule="LinearLR", schedule_settings=linear, warmup_share=0.0) == [1, 0.875, 0.75, 0.625]


def test_a_plateau_schedule_follows_the_metric_that_selects_epochs():
    settings = {"patience": 0, "factor": 0.5}
    rates = rates_of(
        5, [3.0, 4.0, 4.0, 5.0], schedule="ReduceLROnPlateau", schedule_settings=settings, warmup_share=0.0
    )
    assert rates == [1, 1, 1, 0.5, 0.5]


def test_a_one_cycle_schedule_reaches_the_rates_of_the_groups():
    rates = rates_of(10, schedule="OneCycleLR", schedule_settings={"cycle_momentum": False}, warmup_share=0.0)
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] < rates[0] < 0.1


def longest_first(dataset, batch_size, epoch):
    order = np.argsort(-dataset.features.frames.lengths, kind="stable")
    return np.array_split(np.roll(order, epoch), len(order) // batch_size)


def test_a_sampler_chooses_the_rows_of_each_batch(run_with, monkeypatch):
    seen = []
    read = loop_module.BatchSource.read
    monkeypatch.setattr(
        loop_module.BatchSource, "read", lambda source, rows: seen.append(rows.tolist()) or read(source, rows)
    )
    run = run_with(sampler=longest_first, epochs=2)
    dataset = load_dataset("tvr", run_with.root, "train", max_frames=20)
    expected = [batch.tolist() for epoch in (0, 1) for batch in longest_first(dataset, 4, epoch)]
    assert seen[1:] == expected  # the first is the rehearsal
    assert [entry["updates"] for entry in run.history] == [len(expected) // 2, len(expected)]


def shrinking(dataset, epoch):
    return [np.arange(2)] * (3 - epoch)


def with_size(dataset, size, seed, epoch):
    return [np.arange(size)]


def no_rows(dataset):
    return [[0, 1], [2, 10**6]]


def test_rows_of_a_sampler_that_do_not_fit_are_refused(run_with, tmp_path):
    with refused(ConfigError, "train.sampler", "2", "3"):
        run_with("shrinking", sampler=shrinking)
    with refused(ConfigError, "train.sampler", "[2, 1000000]"):
        run_with("no_rows", sampler=no_rows)
    assert not (tmp_path / "no_rows").exists()


class Neighbours:
    """Adds to each batch the next videos, and counts its batches."""

    contexts = []  # noqa: RUF012 - shared with the test

    def __init__(self, distance=1):
        self.distance = distance
        self.count = 0

    def __call__(self, batch, context):
        self.contexts.append(context)
        self.count += not context.is_rehearsal
        further = (context.rows + self.distance) % len(context.dataset.video_ids)
        kept = context.random.permutation(np.union1d(context.rows, further))
        return context.read(kept[:6])

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def double_words(batch, context, factor=2.0):
    words = batch.queries.words * factor
    return type(batch)(**(vars(batch) | {"queries": type(batch.queries)(**(vars(batch.queries) | {"words": words}))}))


def test_a_preparation_changes_batches_and_knows_the_progress(run_with):
    Neighbours.contexts.clear()
    run = run_with(prepare_batch=Neighbours, prepare_batch_settings={"distance": 3}, epochs=2, accumulate=2)
    assert run.config.train.prepare_batch.endswith(":Neighbours")
    rehearsal, *contexts = Neighbours.contexts
    assert rehearsal.is_rehearsal
    assert [(context.epoch, context.update) for context in contexts] == [(n // 4, n // 2) for n in range(8)]
    plain = run_with("plain", epochs=1)
    changed = run_with("changed", prepare_batch=double_words, epochs=1)
    same = run_with("same", prepare_batch=double_words, prepare_batch_settings={"factor": 1.0}, epochs=1)
    assert largest_difference(last_weights(plain), last_weights(same)) == 0
    assert largest_difference(last_weights(plain), last_weights(changed)) > 0


def returns_nothing(batch, context):
    return None


def test_a_preparation_that_returns_no_batch_is_refused_before_anything_is_written(run_with, tmp_path):
    with refused(ConfigError, "train.prepare_batch", "NoneType", "TrainingBatch"):
        run_with(prepare_batch=returns_nothing)
    assert not (tmp_path / "run").exists()


def first_rank_share(validation: Validation):
    truth = validation.opened.dataset.video_index
    assert validation.scores.shape == (len(truth), len(validation.opened.dataset.video_ids))
    return -validation.metrics["mean_rank"]


def test_the_best_epoch_is_chosen_by_any_metric(run_with):
    by_rank = run_with("rank", select_by="mean_rank", learning_rate=3e-3)
    assert by_rank.best["val"]["mean_rank"] == min(entry["val"]["mean_rank"] for entry in by_rank.history)
    by_function = run_with("function", select_by=first_rank_share, learning_rate=3e-3)
    assert by_function.best["epoch"] == by_rank.best["epoch"]
    values = [entry["val"]["first_rank_share"] for entry in open_run(by_function.folder).history]
    assert values == [-entry["val"]["mean_rank"] for entry in by_rank.history]
    kept = [load_file(run.folder / "model.safetensors") for run in (by_rank, by_function)]
    assert largest_difference(*kept) == 0
    seen = []
    run_with("events", callback=seen.append, select_by="R@10 IoU=0.3", epochs=1)
    assert (seen[-1].selects_by, seen[-1].sum_r) == ("R@10 IoU=0.3", seen[-1].results["R@10 IoU=0.3"])


def not_a_number(validation):
    return math.nan


def lost_order(dataset, batch_size):
    return np.load("/nowhere/order.npy")


def lost_negatives(batch, context):
    return np.load("/nowhere/negatives.npy")


def failing_metric(validation):
    return 1 / 0


def metric_of_two(metrics, scores):
    return metrics["SumR"]


def unknown_metric(validation):
    return validation.metrics["R@7"]


class Interruption(BaseException):
    """Ends a run like a kill."""


def interrupt_at(step):
    steps = []

    def callback(progress):
        steps.append(progress.stage == "training")
        if sum(steps) == step:
            raise Interruption

    return callback


def others_of(tensors):
    """Remove the state without tensors from those of a file, and return it."""
    content = tensors.pop("others", None)
    return None if content is None else torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def require_same_after_interruption(run_with, monkeypatch, **settings):
    monkeypatch.setattr(loop_module, "SAVE_EVERY_S", 0.0)
    whole = run_with("whole", **settings)
    for step in (3, 4, 3):  # in the first epoch, later in the second
        with pytest.raises(Interruption):
            run_with("cut", callback=interrupt_at(step), **settings)
    cut = run_with("cut", **settings)
    for file in ("last.safetensors", "model.safetensors"):
        expected = load_file(whole.folder / file)
        found = load_file(cut.folder / file)
        assert expected.keys() == found.keys()
        assert others_of(expected) == others_of(found)
        assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    for expected, found in zip(whole.history, cut.history, strict=True):
        assert {**expected, "seconds": 0} == {**found, "seconds": 0}


@pytest.mark.parametrize(
    "settings",
    [
        {
            "optimizer": "AdamW",
            "schedule": "OneCycleLR",
            "accumulate": 2,
            "average": "ema",
            "learning_rates": {"*bias": 1e-3},
        },
        {"optimizer": "SGD", "optimizer_settings": {"momentum": 0.9}, "schedule": "ReduceLROnPlateau"}
        | {"schedule_settings": {"patience": 0}},
        {
            "schedule": "MultiStepLR",
            "schedule_settings": {"milestones": [2, 6]},
            "average": "swa",
            "average_from_epoch": 1,
        },
        {"prepare_batch": Neighbours, "sampler": longest_first, "clip_norm": 0.1, "schedule": halve},
    ],
    ids=["one cycle", "plateau", "milestones", "own functions"],
)
def test_an_interrupted_run_with_other_settings_goes_on_to_the_same_result(settings, run_with, monkeypatch):
    require_same_after_interruption(run_with, monkeypatch, **settings)


class Unsaveable(Neighbours):
    def state_dict(self):
        return {"path": Path("x")}


def one_argument(groups):
    return SGD(groups, lr=0.1)


def no_optimizer(groups, lr):
    return None


def text_factor(update):
    return "half"


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"optimizer": "AdamWW"}, UnknownNameError, ("train.optimizer", "'AdamWW'", "'AdamW'")),
        ({"optimizer": "no_such_module_here:X"}, ConfigError, ("train.optimizer", "no_such_module_here")),
        ({"optimizer": "torch.optim:AdamWW"}, ConfigError, ("train.optimizer", "'AdamWW'", "'AdamW'")),
        ({"optimizer": "torch.optim:__doc__"}, ConfigError, ("train.optimizer", "torch.optim:__doc__")),
        ({"optimizer": lambda groups, lr: None}, ConfigError, ("train.optimizer",)),
        ({"optimizer": one_argument}, ConfigError, ("train.optimizer", "one_argument", "'lr'")),
        ({"optimizer": no_optimizer}, ConfigError, ("train.optimizer", "NoneType")),
        ({"optimizer": "AdamW", "optimizer_settings": {"beta": 1}}, ConfigError, ("AdamW", "'beta'")),
        ({"optimizer": "AdamW", "optimizer_settings": {"lr": 1}}, ConfigError, ("train.learning_rate",)),
        ({"optimizer": "Rprop"}, ConfigError, ("train.weight_decay", "0.01", "Rprop", "0")),
        ({"optimizer": "Muon"}, ConfigError, ("train.optimizer", "Muon", "2D")),
        ({"learning_rates": {"tower.*": 0.1}}, ConfigError, ("train.learning_rates", "'tower.*'")),
        ({"learning_rates": {"*": -0.1}}, ConfigError, ("train.learning_rates['*']", "-0.1")),
        ({"schedule": "CosineAnealingLR"}, UnknownNameError, ("train.schedule", "'CosineAnnealingLR'")),
        ({"schedule": "StepLR"}, ConfigError, ("train.schedule", "StepLR", "'step_size'")),
        ({"schedule": text_factor}, ConfigError, ("train.schedule", "'half'")),
        ({"schedule": halve, "schedule_settings": {"speed": 2}}, ConfigError, ("halve", "'speed'")),
        ({"average": "emma"}, UnknownNameError, ("train.average", "'ema'")),
        ({"average": "ema", "average_settings": {"decay": 2.0}}, ConfigError, ("train.average", "2.0")),
        ({"prepare_batch": Unsaveable}, ConfigError, ("train.prepare_batch", "state_dict")),
        ({"sampler": with_size}, ConfigError, ("train.sampler", "'size'", "batch_size")),
        ({"prepare_batch": Neighbours, "prepare_batch_settings": {"far": 1}}, ConfigError, ("Neighbours", "'far'")),
        ({"accumulate": 0}, ConfigError, ("train.accumulate", "0")),
        ({"clip_norm": 0.0}, ConfigError, ("train.clip_norm", "0.0")),
        (
            {"optimizer_settings": {"dtype": torch.float32}},
            ConfigError,
            ("train.optimizer_settings.dtype", "torch.float32"),
        ),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_written(settings, error, words, run_with, tmp_path):
    with refused(error, *words):
        run_with(**settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("metric", "error", "words"),
    [
        (not_a_number, ConfigError, ("nan",)),
        (failing_metric, ConfigError, ("test_open_loop.py", "ZeroDivisionError")),
        (metric_of_two, ConfigError, ("'scores'",)),
        (unknown_metric, UnknownNameError, ("'R@7'", "'R@5'", "SumR")),
    ],
)
def test_a_wrong_metric_is_refused_before_anything_is_written(metric, error, words, run_with, tmp_path):
    with refused(error, "train.select_by", *words):
        run_with(select_by=metric)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("setting", "function"), [("sampler", lost_order), ("prepare_batch", lost_negatives)])
def test_a_missing_file_is_reported_with_the_line_of_the_function(setting, function, run_with):
    with refused(ConfigError, "test_open_loop.py", "FileNotFoundError", f"train.{setting}"):
        run_with(**{setting: function})


def test_other_choices_do_not_continue_a_run(run_with):
    run_with(optimizer="AdamW", epochs=1)
    with refused(ConfigError, "train.optimizer", "AdamW", "SGD"):
        run_with(optimizer="SGD", epochs=1)


def test_a_damaged_state_of_another_optimizer_is_named(run_with):
    run = run_with(optimizer="AdamW", epochs=1)
    path = run.folder / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with refused(CheckpointError, str(path)):
        run_with(optimizer="AdamW", epochs=1)
