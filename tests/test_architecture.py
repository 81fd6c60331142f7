"""Packages import only lower ones, and importing untrimmed is quick and loads no heavy package."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "untrimmed"

# The packages that each package may import. `cli` may import all of them, and none may import `cli`.
BASE = {"types", "span", "batches", "errors"}
VALUES = BASE | {"config", "files", "devices", "precision", "plugins"}
RUNNING = VALUES | {"models", "data", "evaluation", "moments", "presets"}
TRAINING = RUNNING | {"running", "losses", "nn"}
ALLOWED = {
    "errors": set(),
    "version": set(),
    "span": set(),
    "types": {"errors", "span"},
    "config": {"errors"},
    "files": {"errors"},
    "plugins": {"errors", "files"},
    "devices": {"errors"},
    "precision": {"errors"},
    "batches": {"types", "errors"},
    "nn": BASE,
    "losses": BASE,
    "scores": BASE | {"nn"},
    "moments": {"types", "errors", "scores"},
    "models": VALUES | {"nn", "losses", "scores", "moments"},
    "evaluation": {"errors", "moments"},
    "video": {"types", "errors", "files"},
    "passages": {"types", "span", "errors", "files", "plugins", "devices", "video", "encoders"},
    "encoders": {"types", "errors", "files", "devices", "precision"},
    "data": {"types", "errors", "config", "files", "plugins", "passages"},
    "presets": {"config", "errors", "models"},
    "running": RUNNING | {"scores", "version"},
    "training": TRAINING,
    "plots": RUNNING | {"running", "nn", "scores", "video"},
    "search": VALUES | {"models", "moments", "scores", "video", "encoders", "data", "evaluation", "passages"},
    "exports": {"errors", "search", "video"},
    "retrievers": {"search", "server"},
    "server": {"errors", "exports", "files", "passages", "span", "types", "search", "video", "version"},
    "parity": TRAINING | {"training", "scores"},
    "reproduction": TRAINING | {"training", "version"},
    "study": TRAINING | {"training", "reproduction"},
    "demo": {"types", "errors", "files", "moments", "search", "video", "encoders", "evaluation"},
}
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree):
    """The modules of untrimmed that a module imports, e.g. `untrimmed.nn.attention`; not those only for types.

    The package itself is `untrimmed`. A name imported from it is `untrimmed.name`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names = [f"untrimmed.{alias.name}" for alias in node.names] if names == ["untrimmed"] else names
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.partition(".")[0] == "untrimmed")


def test_imports_point_one_way():
    wrong = []
    for path, tree in TREES.items():
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if package in ("__init__", "__main__", "cli"):
            continue
        rooms = {name.partition(".")[2].partition(".")[0] or name for name in imported(tree)}
        wrong += [f"{package} -> {room} ({path.name})" for room in sorted(rooms - ALLOWED[package] - {package})]
    assert wrong == []


def test_the_import_check_sees_imports_of_the_package_itself():
    tree = ast.parse("import untrimmed\nfrom untrimmed import open, errors\nimport untrimmed.types as t\nimport ast")
    assert list(imported(tree)) == ["untrimmed", "untrimmed.open", "untrimmed.errors", "untrimmed.types"]


def test_there_are_no_import_cycles():
    names = {".".join(("untrimmed", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in TREES}
    names |= {name.removesuffix(".__init__"): path for name, path in names.items() if name.endswith(".__init__")}
    left = {path: {names[name] for name in imported(tree) if name in names} - {path} for path, tree in TREES.items()}
    while free := [path for path, needs in left.items() if not needs & left.keys()]:
        for path in free:
            del left[path]
    assert sorted(str(path.relative_to(PACKAGE)) for path in left) == []


def test_models_import_attachments_and_neither_imports_the_registry():
    order = ["settings", "attachment", "base", "registry"]  # each may refer to those before it, also for types
    for place, name in enumerate(order):
        text = (PACKAGE / "models" / f"{name}.py").read_text(encoding="utf-8")
        assert not [later for later in order[place + 1 :] if f"untrimmed.models.{later}" in text], name
        assert "TYPE_CHECKING" not in text


def test_no_class_is_created_at_run_time():
    calls = [
        f"{path.relative_to(PACKAGE)}, line {node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (ast.unparse(node.func) == "type" and len(node.args) > 1)
            or ast.unparse(node.func).rpartition(".")[2] in ("make_dataclass", "new_class", "exec")
        )
    ]
    assert calls == []


def test_every_module_has_a_specific_name():
    names = {path.stem for path in TREES}
    assert not names & {"utils", "util", "common", "misc", "helpers"}


def test_importing_the_package_is_quick_and_imports_no_torch():
    code = (
        "import time, sys; start = time.process_time(); import untrimmed; "
        "print(time.process_time() - start, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    seconds, torch, numpy = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
    assert (torch, numpy) == ("False", "False")
    assert float(seconds) < 0.15


def test_every_public_name_can_be_imported():
    import untrimmed

    assert {name for name in untrimmed.__all__ if getattr(untrimmed, name) is None} == set()
