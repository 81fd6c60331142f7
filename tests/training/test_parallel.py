"""Several processes give the same result as one. Also devices and number formats."""

import json
import socket

import pytest
import torch
from safetensors.torch import load_file

from tests.refusals import refused
from tests.retrieval_world import SIZES, make_batch
from tests.training.test_resume import PROCESSES
from tests.training.train_child import train_as_one_of, train_here
from untrimmed.devices import choose_device
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import create_model, list_compositions, list_models
from untrimmed.running.encoding import Encoding

LARGE = {"jsg": {"max_frames": 40, "num_centers": 5, "num_widths": 4}}  # enough rows for its convolution
FITTING = [name for name, problem in list_compositions().items() if not problem]
NO_DROPOUT = {"model.dropout": 0.0, "model.input_dropout": 0.0}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def finish(processes):
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


@pytest.mark.check
@pytest.mark.parametrize(
    ("method", "batch_of"),
    [("gmmformer", "videos"), ("gmmformer_v2", "videos"), ("ms_sl", "videos"), ("ms_sl", "captions")],
)
def test_two_processes_train_as_one_does(method, batch_of, data_root, small, tmp_path):
    """Dropout is off, because its draws differ. Batches of 5, and a last one of 1, are not divisible by two.

    JSG is left out, because rounding decides which of its equal proposals is the focus, and so changes the losses.
    """
    options = {
        "data": "tvr",
        "root": data_root,
        **small,
        **NO_DROPOUT,
        "train.batch_of": batch_of,
        "train.batch_size": 5,
    }
    port = free_port()
    options["train.hard_negatives_from_epoch"] = 1
    alone, together = options | {"out": tmp_path / "one"}, options | {"out": tmp_path / "two"}
    finish(
        [PROCESSES.Process(target=train_here, args=(method, alone))]
        + [PROCESSES.Process(target=train_as_one_of, args=(rank, 2, port, method, together)) for rank in range(2)]
    )
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    assert len(lines[0]) == len(lines[1]) == 2
    for one, two in zip(*lines, strict=True):
        one, two = json.loads(one), json.loads(two)
        assert one.pop("val") == two.pop("val")
        del one["seconds"], two["seconds"]
        assert two == pytest.approx(one, rel=1e-5)


OTHER_UPDATES = {
    "train.optimizer": "AdamW",
    "train.schedule": "CosineAnnealingLR",
    "train.accumulate": 2,
    "train.average": "ema",
    "train.clip_norm": 0.5,
    "train.epochs": 3,
}


@pytest.mark.check
def test_two_processes_accumulate_and_average_as_one_does(data_root, small, tmp_path):
    options = {"data": "tvr", "root": data_root} | small | NO_DROPOUT | OTHER_UPDATES
    port = free_port()
    alone, together = options | {"out": tmp_path / "one"}, options | {"out": tmp_path / "two"}
    finish(
        [PROCESSES.Process(target=train_here, args=("ms_sl", alone))]
        + [PROCESSES.Process(target=train_as_one_of, args=(rank, 2, port, "ms_sl", together)) for rank in range(2)]
    )
    one, two = (load_file(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    del one["others"], two["others"]
    assert one.keys() == two.keys()
    assert max((one[name] - two[name]).abs().max().item() for name in one) <= 1e-5


@pytest.mark.parametrize("name", list_models() + FITTING)
def test_every_method_trains_under_bf16_near_float32(name):
    """A bfloat16 has a relative error of at most 2^-8, and of 0.4 * 2^-8 in the root mean square.

    A product rounds two factors and its result: sqrt(3) * 0.4 * 2^-8. Thirty in a row, each independent of the one
    before, add up to sqrt(30) times that: 2^-6.
    """
    batch = make_batch()
    torch.manual_seed(0)
    model = create_model(name, **(SIZES | LARGE.get(ModelName.of(name).method, {})), init_std=0.3).eval()
    exact = model.encode_queries(batch.queries).sentence
    encoding = Encoding(torch.device("cpu"), "bfloat16")
    encoded = encoding(model.encode_queries, batch.queries).sentence
    assert encoded.dtype == torch.float32
    assert not torch.equal(encoded, exact)
    assert (encoded - exact).norm() <= 2**-6 * exact.norm()
    terms = model.train()(batch, draws=Draws(hard_pool=1), encode=encoding)
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    for parameter in model.parameters():
        assert parameter.grad is None or (parameter.grad.dtype == torch.float32 and parameter.grad.isfinite().all())


def test_an_unknown_or_missing_device_is_refused():
    with pytest.raises(ConfigError, match="tpu"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        assert choose_device("auto") == torch.device("cpu")
        with refused(ConfigError, "CUDA"):
            choose_device("cuda")
