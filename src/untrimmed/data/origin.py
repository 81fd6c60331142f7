"""The encoder of a data set's features, written by `untrimmed features` and copied to every run that uses them.

    ROOT/NAME/features.json     {"encoder": ..., "encoder_identity": ..., "sampling": ..., ...}

Vectors of two encoders may have the same width and still be incompatible. Without this file, as for the released
features, only widths can be compared.
"""

import json
from pathlib import Path

from untrimmed.errors import FeatureError

ORIGIN = "features.json"


def encoder_identity_of(folder: Path) -> str | None:
    """Return the identity of the encoder that made the features, or None if `features.json` does not exist.

    Raises: FeatureError if the file is damaged.
    """
    path = folder / ORIGIN
    if not path.is_file():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FeatureError(f"{path}: cannot be read as JSON ({error}); export the features again") from None
    identity = about.get("encoder_identity") if isinstance(about, dict) else None
    if not isinstance(identity, str):
        raise FeatureError(f"{path}: encoder_identity is {identity!r}, expected text; export the features again")
    return identity
