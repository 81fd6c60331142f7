"""docs/research.md shows the commands of examples/research.sh and their output; its training procedure runs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import research  # noqa: E402


def commands_of_the_script(folder):
    """The commands that the script prints, without running them."""
    script = (ROOT / "examples" / "research.sh").read_text(encoding="utf-8")
    call = '    "$@"\n'
    assert script.count(call) == 1, "run() prints a command, then calls it"
    printed = subprocess.run(
        ["bash", "-c", script.replace(call, ""), "research.sh", str(folder)], capture_output=True, text=True, check=True
    ).stdout
    return [line.removeprefix("$ ") for line in printed.splitlines() if line.startswith("$ ")]


def commands_of_the_page():
    page = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```", page)
    text = "".join(block for language, block in blocks if not language and "$ untrimmed" in block).replace("\\\n", "")
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def test_the_page_shows_the_commands_of_the_script(tmp_path):
    # The script prints arguments without quotes, so the page's are compared without them, too.
    page = [" ".join(shlex.split(command)) for command in commands_of_the_page()]
    assert page == commands_of_the_script(tmp_path / "new")
    assert len(page) > 10


def transcripts():
    """The transcripts of the page, as if the script had printed them."""
    page = research.PAGE.read_text(encoding="utf-8")
    return "".join(match["lines"].replace("\\\n", "") for match in research.TRANSCRIPT.finditer(page))


def test_figures_of_the_page_are_replaced_by_those_of_the_script():
    page = research.PAGE.read_text(encoding="utf-8")
    assert research.with_output(page, transcripts()) == page
    output = (
        transcripts().replace("test  100 videos, 433", "train 400 videos\ntest  90 videos, 7").replace("+0.0 ", "-12.5")
    )
    changed = research.with_output(page, output)
    assert "\ntest  90 videos, 7 captions\n" in changed
    assert "train 400 videos" not in changed
    assert len(changed.splitlines()) == len(page.splitlines())


def test_a_line_of_the_page_that_the_script_does_not_print_is_named():
    page = research.PAGE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="zero-shot"):
        research.with_output(page, transcripts().replace("zero-shot", "zero-shots"))


@pytest.mark.slow
def test_the_script_prints_the_lines_of_the_page():
    """Figures vary with the processor and the number of threads; to update them, run docs/site/research.py."""
    page = research.PAGE.read_text(encoding="utf-8")
    assert len(research.with_output(page, research.run_script()).splitlines()) == len(page.splitlines())


SMALL = ["model.query_dim=12", "model.video_dim=10", "model.dim=8", "model.max_frames=20", "train.epochs=2"]


@pytest.mark.check
def test_the_training_procedure_of_the_page_runs(data_root, tmp_path):
    page = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    (ideas,) = re.findall(r"(?ms)^```python\n(# ideas\.py\n.*?)^```", page)
    (tmp_path / "ideas.py").write_text(ideas)
    (block,) = re.findall(r"(?ms)^```sh\n(untrimmed train .*?--callback.*?)^```", page)
    for number, command in enumerate(block.replace("\\\n", "").strip().splitlines()):
        words = shlex.split(command.replace("--data toy --root data", f"--data tvr --root {data_root}"))
        more = ["--out", f"run{number}", *SMALL, "train.batch_size=6"]
        done = subprocess.run([sys.executable, "-m", *words, *more], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / f"run{number}" / "metrics.jsonl").read_text().splitlines()) == 2
    config = yaml.safe_load((tmp_path / "run0" / "config.yaml").read_text())
    assert config["train"]["learning_rates"] == {"query_tower.*": 1e-4}
    assert list((tmp_path / "run0" / "tensorboard").iterdir())
    entries = [json.loads(line) for line in (tmp_path / "run1" / "metrics.jsonl").read_text().splitlines()]
    assert entries[0]["val"]["first_and_tenth"] == pytest.approx(entries[0]["val"]["R@1"] + entries[0]["val"]["R@10"])
    assert entries[0]["overlap"] > 0
