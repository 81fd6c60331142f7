"""Imports point one way, the package opens quickly, and heavy packages stay out until they are used."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "untrimmed"

# What may be imported of ours, by first folder or file. `cli` may import anything; nobody imports it.
VALUES = {"types", "batches", "errors", "config", "files", "devices", "precision"}
MODELS = VALUES | {"nn", "losses", "scores", "moments", "models"}
RUNNING = MODELS | {"data", "evaluation", "presets", "running"}
ALLOWED = {
    "errors": set(),
    "types": {"errors"},
    "config": {"errors"},
    "files": {"errors"},
    "devices": {"errors"},
    "precision": {"errors"},
    "batches": {"types", "errors"},
    "nn": VALUES,
    "losses": VALUES,
    "scores": VALUES | {"nn"},
    "moments": VALUES | {"scores"},
    "models": MODELS,
    "evaluation": {"errors", "moments"},
    "video": VALUES,
    "encoders": VALUES,
    "data": VALUES,
    "presets": MODELS,
    "running": RUNNING,
    "training": RUNNING,
    "plots": RUNNING,
    "search": MODELS | {"video", "encoders", "data", "evaluation"},
    "parity": RUNNING | {"training"},
    "reproduction": RUNNING | {"training"},
    "demo": VALUES | {"moments", "search", "video", "encoders", "evaluation"},
}


def imported(path):
    """The first folders or files of ours that a module imports, inside functions too, but not for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("untrimmed."))


def test_imports_point_one_way():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__", "cli"):
            continue
        wrong += [f"{own} -> {other} ({path.name})" for other in imported(path) if other not in ALLOWED[own] | {own}]
    assert wrong == []


def test_no_module_is_named_for_nothing():
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert not names & {"utils", "util", "common", "misc", "helpers"}


def test_importing_the_package_is_quick_and_imports_no_torch():
    code = (
        "import time, sys; start = time.perf_counter(); import untrimmed; "
        "print(time.perf_counter() - start, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    seconds, torch, numpy = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
    assert (torch, numpy) == ("False", "False")
    assert float(seconds) < 0.15


def test_every_public_name_can_be_had():
    import untrimmed

    assert {name for name in untrimmed.__all__ if getattr(untrimmed, name) is None} == set()
