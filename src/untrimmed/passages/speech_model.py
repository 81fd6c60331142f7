"""Locate Whisper models in CTranslate2's format by name, hub id or folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from untrimmed.encoders.hub.weights import DIGEST_LENGTH, answer_within, is_hub_id, weights_sha256
from untrimmed.errors import EncoderError, UnknownNameError, install_advice, one_line

DEFAULT_MODEL = "base"
# short name -> hub id; all are converted from OpenAI's Whisper (MIT)
MODELS = {
    "tiny": "Systran/faster-whisper-tiny",
    "base": "Systran/faster-whisper-base",
    "small": "Systran/faster-whisper-small",
    "medium": "Systran/faster-whisper-medium",
    "large-v3": "Systran/faster-whisper-large-v3",
    "large-v3-turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
}
_LANGUAGES = """
    af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id is
    it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl
    sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh
"""
LANGUAGES = frozenset(_LANGUAGES.split())  # Whisper's codes of languages
_WEIGHTS = "model.bin"
_NEEDED = (_WEIGHTS, "config.json", "tokenizer.json")
_DOWNLOADED = [*_NEEDED, "preprocessor_config.json", "vocabulary.*"]
_TIMEOUT_S = 5.0  # if the hub has not answered by then, it counts as unreachable
INSTALL = install_advice("speech")


def locate_model(name: str, *, download: bool = True) -> Path:
    """Return the folder of a Whisper model, downloaded into the hub's cache if necessary and if `download` is set.

    Raises:
        UnknownNameError: The name is unknown.
        EncoderError: faster-whisper is not installed, or the model is not on this machine and is not downloaded.
    """
    require_packages()
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _checked(folder.resolve())
    hub_id = MODELS.get(name, name)
    if name.startswith((".", "/", "~")):
        raise EncoderError(f"{name}: no such folder; use a folder with a Whisper model (--speech-model)")
    if not is_hub_id(hub_id):
        raise UnknownNameError.among("speech model", name, [*MODELS, "any hub id (OWNER/NAME) or a folder"])
    return _on_hub(hub_id, download=download)


def require_packages() -> None:
    """Raise an EncoderError if faster-whisper is not installed."""
    if any(importlib.util.find_spec(package) is None for package in ("faster_whisper", "ctranslate2")):
        raise EncoderError(f"speech recognition needs faster-whisper, which is not installed; {INSTALL}")


def model_digest(folder: Path) -> str:
    """Return the first digits of the SHA-256 of a model's weights."""
    return weights_sha256([folder / _WEIGHTS])[:DIGEST_LENGTH]


def _checked(folder: Path) -> Path:
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise EncoderError(
                f"{folder}: no {name} in it, expected a Whisper model in CTranslate2's format; convert it with "
                "ct2-transformers-converter, or use another model (--speech-model)"
            )
    return folder


def _on_hub(hub_id: str, *, download: bool) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _checked(Path(snapshot_download(hub_id, allow_patterns=_DOWNLOADED, local_files_only=True)))
    except (LocalEntryNotFoundError, EncoderError):
        pass  # the model is not in the cache, or not complete
    advice = f"run `hf download {hub_id}` where there is a network, or use a local folder (--speech-model FOLDER)"
    if not download:
        raise EncoderError(
            f"speech model {hub_id}: not on this machine; `index --speech` downloads it; without a network, {advice}"
        )
    try:
        api = HfApi()
        answer_within(_TIMEOUT_S, lambda: api.model_info(hub_id, timeout=_TIMEOUT_S))
        return _checked(Path(snapshot_download(hub_id, allow_patterns=_DOWNLOADED)))
    except EncoderError:
        raise
    # the exceptions of the hub's HTTP clients have no common base class
    except Exception as error:
        raise EncoderError(
            f"speech model {hub_id}: not on this machine, and the hub cannot be reached ({one_line(error)}); {advice}"
        ) from error
