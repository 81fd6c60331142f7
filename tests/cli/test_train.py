"""The commands `train`, `models`, `import-checkpoint` and `evaluate RUN`."""

import csv
import io
import json
import shutil

import h5py
import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file, save_file

from tests.cli.conftest import invoke
from tests.refusals import refused
from tests.run_world import SMALL
from untrimmed.cli import app as app_module
from untrimmed.cli.models import import_checkpoint, models
from untrimmed.cli.run_evaluation import Opening, evaluate_run, is_model_folder
from untrimmed.cli.train import train
from untrimmed.data.layouts import read_split
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError, UntrimmedError
from untrimmed.models.registry import create_model
from untrimmed.models.released import export_released
from untrimmed.models.storage import load_model, save_model
from untrimmed.presets import load_preset
from untrimmed.training.loop import TrainingLoop

app = typer.Typer()
for command in (train, models, import_checkpoint):
    app.command()(command)
SETTINGS = ["model.query_dim=12", "model.video_dim=10", "model.dim=8", "model.max_frames=20"]


def run(*words):
    return invoke(app, words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A root with a data set, and a run of two epochs from the command."""
    root = tmp_path_factory.mktemp("cli")
    simulate("tvr", root, num_videos=24, settings=SMALL)
    words = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", root / "run", "--seed", 3]
    result = run(*words, *SETTINGS, "train.epochs=2", "train.batch_size=8")
    assert result.exit_code == 0, result.output
    return root, result


def test_compile_is_stored_in_the_settings_of_a_run(trained, monkeypatch):
    root, _ = trained
    encoders = []
    monkeypatch.setattr(torch, "compile", lambda encoder, dynamic: encoders.append(encoder.__name__) or encoder)
    words = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", root / "compiled", *SETTINGS, "train.epochs=1"]
    assert run(*words, "--compile").exit_code == 0
    assert encoders == ["encode_queries", "encode_videos"]  # each once, for any number of steps
    assert "compile: true" in (root / "compiled" / "config.yaml").read_text()
    assert isinstance(run(*words).exception, ConfigError)


def test_train_prints_the_best_epoch_and_the_next_command(trained):
    root, result = trained
    assert f"untrimmed evaluate {root / 'run'}" in result.stdout
    metrics = [json.loads(line) for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]
    for epoch, line in enumerate(result.stderr.strip().splitlines()[-2:]):
        assert f"{epoch + 1}/2" in line
        assert f"SumR {metrics[epoch]['val']['SumR']:.1f}" in line  # of this epoch, not of the previous one
    assert "clip_triplet" in result.stderr
    assert json.loads((root / "run" / "metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1


def test_train_as_json_after_the_run_is_finished(trained):
    root, _ = trained
    words = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", root / "run", "--seed", 3, "--json"]
    result = run(*words, *SETTINGS, "train.epochs=2", "train.batch_size=8")
    document = json.loads(result.stdout)
    assert document["epochs"] == 2
    assert f"epoch {document['best']['epoch']}, " in trained[1].stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ms_sl", "train.epochz=2"], "'epochs'"),
        (["ms_sl", "train.epochs"], "train.epochs"),
        (["gmmformer_v2+ral", "temperature=0.3"], "model.temperature="),
        (["gmmformer_v2+ral", "num_proxies=3"], "model.ral.num_proxies="),
        (["ms_sll"], "'ms_sl'"),
        (["ms_sl", "--device", "tpu"], "tpu"),
        (["ms_sl"], "model.video_dim=10"),
    ],
)
def test_a_wrong_command_is_one_line_with_exit_code_2(words, message, trained, refusal, tmp_path):
    root, _ = trained
    sized = SETTINGS if len(words) > 1 else []
    places = ["--data", "tvr", "--root", root, "--out", tmp_path / "r"]
    assert message in refusal("train", *words[:1], *places, *words[1:], *sized)
    assert not (tmp_path / "r").exists()


def test_a_run_is_evaluated_as_table_json_csv_and_latex(trained, capsys):
    root, _ = trained
    printed = {}
    for output in ("table", "json", "csv", "latex"):
        evaluate_run(root / "run", output=output)
        printed[output] = capsys.readouterr().out
    document = json.loads(printed["json"])
    assert len(document["ranks"]) == len((root / "tvr/TextData/tvrtest.caption.txt").read_text().splitlines())
    rows = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert float(rows[0]["SumR"]) == document["rows"]["fused"]["SumR"]
    assert r"\toprule" in printed["latex"]
    assert f"{document['rows']['fused']['SumR']:.1f}" in printed["table"]
    assert "…" not in printed["table"]  # no number is cut off at 80 columns
    assert max(map(len, printed["table"].splitlines())) <= 80
    with pytest.raises(ConfigError, match="xml"):
        evaluate_run(root / "run", output="xml")


def test_moments_can_be_left_out(trained, capsys, monkeypatch):
    root, _ = trained
    monkeypatch.setattr("sys.argv", ["untrimmed", "evaluate", str(root / "run"), "--no-moments", "--format", "json"])
    with pytest.raises(SystemExit, match="0"):
        app_module.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert "fused" in rows
    assert not any(name.startswith("event") for name in rows)


def test_a_run_is_evaluated_with_changed_settings(trained, typed):
    root, _ = trained
    words = ["evaluate", root / "run", "--no-moments", "--format", "json"]
    unchanged, changed = (
        json.loads(typed(*words, *more)[1]) for more in ([], ["model.clip_weight=1", "model.frame_weight=0"])
    )
    assert changed["title"] == f"{unchanged['title']}, model.clip_weight=1, model.frame_weight=0"
    assert changed["rows"]["fused"] == unchanged["rows"]["clip only"] != unchanged["rows"]["fused"]


def test_wrong_runs_data_sets_and_settings_are_refused(trained, refusal):
    root = trained[0]
    assert "untrimmed train ms_sl" in refusal("evaluate", "ms_sl", "--data", "tvr")
    assert "'tvr'" in refusal("train", "ms_sl", "--data", "tvrr", "--root", root, "--out", root / "x")
    assert "'five'" in refusal(
        "train", "ms_sl", "--data", "tvr", "--root", root, "--out", root / "x", "train.epochs=five"
    )


def test_settings_of_training_do_not_change_in_evaluation(trained, refusal):
    assert "epochs" in refusal("evaluate", trained[0] / "run", "train.epochs=3")
    assert "KEY=VALUE" in refusal("evaluate", trained[0] / "tvr", "--queries", "labels.jsonl", "model.dim=3")


def test_the_number_of_annotators_comes_from_the_run_or_a_changed_setting(tmp_path, typed):
    simulate("didemo", tmp_path, num_videos=24, settings=SMALL)
    for split in ("val", "test"):  # a window of the whole video matches one of four annotators
        path = tmp_path / "didemo" / "TextData" / f"prvr_vcmr_{split}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        spans = [[[0, row["duration"]], *([[0, 0.01]] * 3)] for row in rows]
        path.write_text("".join(json.dumps(row | {"ts": ts}) + "\n" for row, ts in zip(rows, spans, strict=True)))
    common = ["--data", "didemo", "--root", tmp_path, "--preset", "tvr", *SETTINGS, "train.epochs=0"]
    recall = {}
    for name, setting in (("two", []), ("one", ["train.annotators=1"])):
        result = run("train", "ms_sl", "--out", tmp_path / name, *common, "train.select_by=event SumR", *setting)
        assert result.exit_code == 0
        assert "event SumR" in result.stderr
        for annotators in (None, 1, 2):
            option = [] if annotators is None else [f"train.annotators={annotators}"]
            code, out, _ = typed("evaluate", tmp_path / name, "--format", "json", *option)
            assert code == 0
            recall[name, annotators] = json.loads(out)["rows"]["event IoU=0.3"]["R@100"]
    assert recall["two", None] == recall["two", 2] == recall["one", 2] == 0
    assert recall["one", None] == recall["one", 1] == recall["two", 1] > 0


def test_data_without_moments_are_evaluated_without_event_recall(trained, capsys):
    root, _ = trained
    simulate("mine", root, num_videos=24, settings=SMALL, layout="plain")
    captions = root / "mine" / "captions.jsonl"
    rows = [json.loads(line) for line in captions.read_text().splitlines()]
    for row in rows:
        del row["start_s"], row["end_s"]
    captions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluate_run(root / "run", Opening(data="mine", root=root), output="csv")
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert "mine" in printed.err
    assert "event" not in printed.out
    assert float(next(csv.DictReader(io.StringIO(printed.out)))["R@100"]) == 100.0


DIVERGING = ["train.learning_rate=1e30", "train.warmup_share=0.5", "train.epochs=2"]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [(4, "epoch 1, step 3"), (8, "epoch 1, step 2")],
)
def test_a_run_that_diverges_before_its_first_save_leaves_its_folder_free(
    batch, expected, trained, typed, refusal, tmp_path
):
    root, _ = trained
    words = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", tmp_path / "run", *SETTINGS]
    error = refusal(*words, *DIVERGING, f"train.batch_size={batch}")
    assert expected in error
    assert all(value in error for value in ("train.learning_rate", "1e+30", "untrimmed data check tvr"))
    assert not (tmp_path / "run").exists()
    code, out, _ = typed(*words, "train.epochs=1", f"train.batch_size={batch}")
    assert (code, "epoch 1" in out) == (0, True)


def test_a_run_that_diverges_later_keeps_its_best_model_and_names_the_epoch(trained, typed, tmp_path, monkeypatch):
    root, _ = trained
    words = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", tmp_path / "run", *SETTINGS]
    real = TrainingLoop._add_terms

    def spoil(loop, values):
        real(loop, {name: value * float("nan") if loop.state.updates == 3 else value for name, value in values.items()})

    monkeypatch.setattr(TrainingLoop, "_add_terms", spoil)
    code, _, error = typed(*words, "train.batch_size=8", "train.epochs=3")
    assert code == 2
    assert all(value in error for value in ("nan", "epoch 2, step 2", "train.learning_rate", "--out"))
    assert {path.name for path in (tmp_path / "run").iterdir()} > {"last.safetensors", "model.safetensors"}


def truncate(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def overwrite(folder):
    (folder / "model.safetensors").write_bytes(b"x" * (folder / "model.safetensors").stat().st_size)


def spoil(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors[min(tensors)][0] = float("nan")
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("damage", [truncate, overwrite, spoil])
def test_a_damaged_model_of_a_finished_run_is_reported(damage, trained, typed, refusal, tmp_path):
    root, _ = trained
    folder = tmp_path / "run"
    shutil.copytree(root / "run", folder)
    assert typed("doctor", "--model", folder)[0] == 0
    damage(folder)
    again = ["train", "ms_sl", "--data", "tvr", "--root", root, "--out", folder, "--seed", 3, *SETTINGS]
    for words in ([*again, "train.epochs=2", "train.batch_size=8"], ["evaluate", folder]):
        assert "model.safetensors" in refusal(*words)
    assert typed("doctor", "--model", folder)[0] == 2


def test_a_model_with_nan_scores_is_refused(trained, refusal, tmp_path):
    root, _ = trained
    shutil.copytree(root / "run", tmp_path / "run")
    model = load_model(tmp_path / "run")
    for weight in model.parameters():
        weight.data.mul_(1e30)
    save_model(model, tmp_path / "run")
    assert "nan" in refusal("evaluate", tmp_path / "run")


def test_two_runs_are_compared_query_by_query(trained, capsys):
    root, _ = trained
    evaluate_run(root / "run", against=root / "run", output="json")
    comparisons = json.loads(capsys.readouterr().out)["against"]["comparisons"]
    assert {c["metric"]: c["fisher_p"] for c in comparisons}["mAP"] == 1.0


def test_evaluating_the_validation_split_gives_the_results_of_training(trained, capsys):
    root, _ = trained
    evaluate_run(root / "run", Opening(split="val"), output="json")
    figures = json.loads(capsys.readouterr().out)["rows"]["fused"]
    epochs = [json.loads(line)["val"] for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]
    assert figures["SumR"] == max(epoch["SumR"] for epoch in epochs)


def test_models_lists_methods_and_attachments_with_papers_and_combinations():
    listed = run("models").stdout
    for word in ("gmmformer_v2", "2405.13824", "ACM MM 2022", "optimal_matching", "2509.01383"):
        assert word in listed
    document = json.loads(run("models", "--json").stdout)
    assert document["methods"]["gmmformer_v2"]["presets"]["tvr"]["SumR"] == 189.1
    assert document["combinations"]["gmmformer_v2+ral"]["tvr"]["SumR"] == 198.8
    assert document["attachments"]["registers"]["attaches_to"] == ["gmmformer_v2", "holmes"]
    hosts = ["clip4clip", "dreamprvr", "gmmformer", "gmmformer_v2", "hlformer", "holmes", "ms_sl"]
    assert document["attachments"]["ral"]["attaches_to"] == hosts
    assert "2509.01383" in document["attachments"]["ral"]["paper"]
    assert "ms_sl+optimal_matching" in document["compositions"]
    assert "jsg+ral" in document["refused"]
    pairs = len(document["methods"]) * len(document["attachments"])
    assert len(document["compositions"]) + len(document["refused"]) == pairs


def test_an_authors_checkpoint_becomes_a_model_that_is_evaluated(trained, capsys):
    root, _ = trained
    overrides = dict(setting.split("=") for setting in SETTINGS)
    settings = load_preset("gmmformer_v2", "tvr", {key: int(value) for key, value in overrides.items()}).settings
    theirs = create_model("gmmformer_v2", **settings)
    released = export_released(theirs.released_names(), theirs.state_dict())
    content = {
        "state_dict": {name: tensor.clone() for name, tensor in released.items()},
        "config": {"collection": "tvr", "sft_factor": 0.6, "novelty": 3},
        "model_val": [10.0, 20.0, 30.0, 40.0, 100.0],
        "epoch": 7,
    }
    torch.save(content, root / "v2.ckpt")
    out = root / "imported"
    result = run("import-checkpoint", "gmmformer_v2", root / "v2.ckpt", "-o", out)
    assert result.exit_code == 0, result.output
    assert is_model_folder(out)
    assert load_model(out).config.temperature == 0.6
    for word in ("model.temperature", "0.09", "0.6 (sft_factor)", "novelty=3", "SumR 100.0", "epoch 7", "--split val"):
        assert word in result.stdout
    result = run("import-checkpoint", "gmmformer_v2", root / "v2.ckpt", "-o", root / "again", "--json")
    document = json.loads(result.stdout)
    assert document["validation"]["SumR"] == 100.0
    assert document["unknown"] == {"novelty": "3"}
    assert {"setting": "model.temperature", "preset": 0.09, "checkpoint": 0.6, "key": "sft_factor", "used": 0.6} in (
        document["differences"]
    )
    evaluate_run(out, Opening(data="tvr", root=root), output="json")
    assert json.loads(capsys.readouterr().out)["title"] == "gmmformer_v2 on tvr, test"
    with refused(ConfigError, "(data)", "(root)"):
        evaluate_run(out)


def test_an_import_does_not_overwrite_a_model(trained):
    root, _ = trained
    before = (root / "run" / "model.safetensors").read_bytes()
    result = run("import-checkpoint", "ms_sl", root / "any.ckpt", "-o", root / "run", "--data", "tvr")
    assert str(root / "run") in str(result.exception)
    assert (root / "run" / "model.safetensors").read_bytes() == before


def test_a_checkpoint_that_fits_several_data_sets_or_none_is_refused(tmp_path):
    torch.save({"state_dict": {"a": torch.zeros(1024, 4)}}, tmp_path / "several.ckpt")
    result = run("import-checkpoint", "ms_sl", tmp_path / "several.ckpt", "-o", tmp_path / "x")
    assert all(name in str(result.exception) for name in ("activitynet", "charades"))
    torch.save({"state_dict": {"a": torch.zeros(7, 4)}}, tmp_path / "none.ckpt")
    result = run("import-checkpoint", "ms_sl", tmp_path / "none.ckpt", "-o", tmp_path / "x")
    assert isinstance(result.exception, UntrimmedError)
    result = run("import-checkpoint", "ms_sl+transport", tmp_path / "none.ckpt", "-o", tmp_path / "x")
    assert "activitynet 1024/1024" in str(result.exception)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("word", ["data=jsg", "root=x", "epochs=3", "method=jsg", "dataset=jsg"])
def test_a_setting_without_its_section_is_refused(trained, word):
    root, _ = trained
    result = run("train", "ms_sl", "--data", "tvr", "--root", root, "--out", root / "other", *SETTINGS, word)
    assert isinstance(result.exception, ConfigError)
    assert word.partition("=")[0] in str(result.exception)
    assert result.output == ""


def test_evaluation_of_a_run_refuses_library_options_and_a_wrong_second_run(trained, monkeypatch, capsys):
    root, _ = trained
    for words, message in (
        (["--details"], "--details"),
        (["--queries", "q.jsonl"], "--queries"),
        (["--against", str(root / "nowhere")], str(root / "nowhere")),
    ):
        monkeypatch.setattr("sys.argv", ["untrimmed", "evaluate", str(root / "run"), *words])
        with pytest.raises(SystemExit, match="2"):
            app_module.main()
        assert message in capsys.readouterr().err


def change_features(root, what, change):
    """`change` gets the rows of each video or caption of a data set in the plain layout, and its number."""
    if what == "frames":
        for number, path in enumerate(sorted((root / "mine" / "frames").glob("*.npy"))):
            np.save(path, change(np.load(path), number))
        return
    with h5py.File(root / "mine" / "words.h5", "r+") as file:
        for number, name in enumerate(file):
            rows = change(file[name][...], number)
            del file[name]
            file[name] = rows


NOTHING = [
    lambda rows, number: 0 * rows,
    lambda rows, number: 0 * rows + 3,
    lambda rows, number: 0 * rows + 3 * number + 3,
    lambda rows, number: 0 * rows[:1] + np.eye(3, rows.shape[1]),
    lambda rows, number: rows * (number % 2),
]


@pytest.mark.parametrize("what", ["frames", "words"])
@pytest.mark.parametrize("change", NOTHING)
def test_constant_features_are_refused_by_training_and_reported_by_check(what, change, refusal, typed, tmp_path):
    simulate("mine", tmp_path, num_videos=24, settings=SMALL, layout="plain")
    change_features(tmp_path, what, change)
    kind = {"frames": "video", "words": "caption"}[what]
    words = ["--data", "mine", "--root", tmp_path, "--out", tmp_path / "run"]
    error = refusal("train", "ms_sl", *words, "model.dim=8", "model.max_frames=20", "train.epochs=1")
    assert all(word in error for word in ("mine", "train", kind))
    assert not (tmp_path / "run").exists()
    assert typed("data", "check", "mine", "--root", tmp_path)[0] == 2


def test_one_video_of_zeros_is_reported_but_does_not_stop_training(tmp_path, caplog):
    simulate("mine", tmp_path, num_videos=200, settings=SMALL, layout="plain")
    train_videos = {annotation.video for annotation in read_split("mine", tmp_path, "train")}
    path = tmp_path / "mine" / "frames" / f"{min(train_videos)}.npy"
    np.save(path, 0 * np.load(path))
    words = ["train", "ms_sl", "--data", "mine", "--root", tmp_path, "--out", tmp_path / "run", "model.dim=8"]
    assert run(*words, "model.max_frames=20", "train.epochs=1").exit_code == 0
    (message,) = [record.getMessage() for record in caplog.records if "zeros" in record.getMessage()]
    assert min(train_videos) in message
