"""Locate an encoder's files, check that they are safe to read, and compute a digest of the weights.

A source is a local folder or the id of a repository on the Hugging Face hub. The hub is only asked if its local cache
lacks files. The HTTP client's timeout does not limit DNS lookups, so `answer_within` adds a timeout. Weights are read
only from safetensors files, because a pickle can run code.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from untrimmed.errors import EncoderError, install_advice, one_line
from untrimmed.files import file_sha256

logger = logging.getLogger(__name__)

T = TypeVar("T")

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "model.ckpt")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
_DOWNLOADED = (
    "config.json",
    WEIGHTS,
    WEIGHTS_INDEX,
    "model-*-of-*.safetensors",
    *_PROCESSOR_FILES,
    *_TOKENIZER_FILES,
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
PROCESSOR = "processor"
TOKENIZER = "tokenizer"
_FILES_OF = {PROCESSOR: _PROCESSOR_FILES, TOKENIZER: _TOKENIZER_FILES}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
DIGEST_LENGTH = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_hub_id(source: str) -> bool:
    """Whether a text has the form OWNER/NAME of a hub repository.

    >>> is_hub_id("google/siglip2-base-patch16-224"), is_hub_id("./my-model"), is_hub_id("clip-b32")
    (True, False, False)
    """
    return _HUB_ID.fullmatch(source) is not None


def locate(
    source: str | Path,
    *,
    local_files_only: bool = False,
    timeout_s: float = 5.0,
    needs: tuple[str, ...] = (PROCESSOR, TOKENIZER),
) -> Path:
    """Return the folder with an encoder's files, downloaded into the hub's cache if necessary.

    The hub is not asked if its cache contains the weights and the other files that the encoder `needs`. `timeout_s`
    limits the wait for the hub's first answer, not the download.

    Raises:
        EncoderError: The folder does not exist, the name is malformed, the repository is neither cached nor available,
            or packages are missing.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if not is_hub_id(str(source)):
        raise EncoderError(f"{source}: no such folder, and not a hub id (OWNER/NAME); check the path")
    if missing := missing_packages():
        raise EncoderError(f"{source}: hub models need {' and '.join(missing)}; {install_advice('hub')}")
    cached = _cached_snapshot(str(source), needs)
    if cached is not None:
        return cached
    if local_files_only:
        raise EncoderError(
            f"{source}: not in the hub's cache, and only local files are allowed; run `hf download {source}` once"
        )
    return _fetch(str(source), timeout_s)


def missing_packages() -> list[str]:
    """Return the names of packages that hub models need and that are not installed."""
    return [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder, in the order of their names.

    Raises:
        EncoderError: The weights are missing, incomplete, or in a format that can run code.
    """
    index = folder / WEIGHTS_INDEX
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if index.is_file():
        return _shards(index)
    pickled = [name for name in _PICKLED if (folder / name).is_file()]
    if pickled:
        raise EncoderError(_only_pickled(str(folder), pickled[0]))
    raise EncoderError(f"{folder}: no {WEIGHTS} in it; use a folder that `save_pretrained` wrote, or a hub id")


def weights_digest(folder: Path) -> str:
    """Return the first `DIGEST_LENGTH` hexadecimal digits of the SHA-256 of a model's weight files."""
    return weights_sha256(weight_files(folder))[:DIGEST_LENGTH]


def weights_sha256(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a weight file, or for several files the SHA-256 of all their SHA-256s.

    Files in the hub's cache are links to files that are named by their SHA-256, so they are not read. Other files are
    read at every load, which takes 3.7 s per gigabyte on a processor without SHA instructions (SigLIP 2 base: 5.6 s).
    """
    digests = [_file_or_blob_sha256(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _shards(index: Path) -> list[Path]:
    """Return the files that a shard index lists. Each of them must be a safetensors file in the index's folder."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EncoderError(f"{index}: not an index of weight files ({error}); fetch the model again") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise EncoderError(
                f"{index}: names {name!r}, expected a .safetensors file beside it; fetch the model again"
            )
        if not (index.parent / name).is_file():
            raise EncoderError(f"{index.parent}: the weight file {name} is missing; fetch the model again")
    return [index.parent / name for name in names]


def _file_or_blob_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. For a link into the hub's cache, it is the name of the linked file."""
    blob = path.resolve()
    if path.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name):
        return blob.name
    return file_sha256(path)


def _cached_snapshot(hub_id: str, needs: tuple[str, ...]) -> Path | None:
    """Return the folder of a repository in the hub's cache, or None if weights or another needed file are missing."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(hub_id, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        weight_files(folder)
    except EncoderError:
        return None  # the snapshot is incomplete, so the missing files must be downloaded
    is_whole = all(any((folder / name).is_file() for name in _FILES_OF[part]) for part in needs)
    return folder if is_whole else None


def _fetch(hub_id: str, timeout_s: float) -> Path:
    """Download a repository with safetensors weights into the hub's cache, and return its folder."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    api = HfApi()
    get_it = f"run `hf download {hub_id}` where there is a network, or use a local folder"
    try:
        info = answer_within(timeout_s, lambda: api.model_info(hub_id, files_metadata=True, timeout=timeout_s))
    except RepositoryNotFoundError as error:
        raise EncoderError(f"{hub_id}: no such model on {api.endpoint}, or it is private; check the name") from error
    except OfflineModeIsEnabled as error:
        raise EncoderError(
            f"{hub_id}: not in the hub's cache, and HF_HUB_OFFLINE forbids downloads; {get_it}"
        ) from error
    except Exception as error:  # the exceptions of HTTP clients have no common base class
        problem = f"not in the hub's cache, and {api.endpoint} cannot be reached ({one_line(error)})"
        raise EncoderError(f"{hub_id}: {problem}; {get_it}") from error
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if WEIGHTS not in sizes and WEIGHTS_INDEX not in sizes:
        pickled = [name for name in _PICKLED if name in sizes]
        raise EncoderError(_only_pickled(hub_id, pickled[0]) if pickled else f"{hub_id}: has no {WEIGHTS}")
    gigabytes = sum(size for name, size in sizes.items() if name.endswith(".safetensors") and "/" not in name) / 1e9
    logger.info("downloading %s (about %.1f GB) into the hub's cache", hub_id, gigabytes)
    try:
        with _quiet_hub():
            folder = Path(snapshot_download(hub_id, allow_patterns=list(_DOWNLOADED)))
    # these errors have no common base class; the next attempt reuses the files that are already in the cache
    except Exception as error:
        raise EncoderError(f"{hub_id}: the download failed ({one_line(error)}); run again to continue") from error
    return folder


def answer_within(timeout_s: float, call: Callable[[], T]) -> T:
    """Call a function in a thread and return its result, or raise TimeoutError after `timeout_s`.

    An exception in the function is raised in the caller. The thread is a daemon, so a call that hangs in a name lookup
    does not delay the exit of the program.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="untrimmed-hub", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if outcome:
        return outcome[0]
    raise failure[0] if failure else TimeoutError(f"no answer within {timeout_s:g} s")


@contextlib.contextmanager
def _quiet_hub() -> Iterator[None]:
    """Silence the hub client's messages about retries. Failures still raise exceptions."""
    hub_logger = logging.getLogger("huggingface_hub")
    level = hub_logger.level
    hub_logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub_logger.setLevel(level)


def _only_pickled(where: str, name: str) -> str:
    return (
        f"{where}: its weights are pickled ({name}), which can run code, so they are not read; "
        f"expected {WEIGHTS}: convert them with `save_pretrained(FOLDER)` in an isolated environment, and use FOLDER"
    )
