"""Load models of `transformers`, with their tokenizers and processors, from local folders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from untrimmed.errors import EncoderError, install_advice, one_line


def load_pretrained(folder: Path, name: str, *classes: str, unused: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """Return the model in a folder, and an object of each of these classes of transformers, such as "AutoTokenizer".

    Nothing is downloaded, and no code in the folder is run. `name` is the model's name in error messages. Weights whose
    names begin with one of `unused` may be missing.

    Raises:
        EncoderError: A package or a weight is missing, or transformers cannot load the folder.
    """
    try:
        with _quiet_transformers():
            import transformers

            local = {"local_files_only": True, "trust_remote_code": False}
            model, info = transformers.AutoModel.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, **local
            )
            parts = [getattr(transformers, cls).from_pretrained(folder, **local) for cls in classes]
    except ImportError as error:
        raise EncoderError(
            f"{name}: {one_line(error)}; install the named package, and {install_advice('hub')}"
        ) from error
    except Exception as error:  # transformers raises many kinds of exceptions for invalid folders
        raise EncoderError(f"{name}: transformers cannot load it ({one_line(error)})") from error
    missing = sorted(key for key in map(str, info["missing_keys"]) if not key.startswith(unused))
    if missing:
        raise EncoderError(f"{name}: {len(missing)} weights are missing, e.g. {missing[0]}; fetch the model again")
    return model, *parts


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Silence the messages and progress bars of transformers. Failures still raise exceptions."""
    from transformers.utils import logging as transformers_logging

    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
