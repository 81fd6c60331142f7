"""Which encoder made a data set's features: noted beside them by `untrimmed features`, kept in every run on them.

    ROOT/NAME/features.json     {"encoder": ..., "encoder_identity": ..., "sampling": ..., ...}

Vectors of two encoders may have the same width and mean different things. A data set without the note (the benchmarks'
features, people's own) says nothing, and then only widths can be compared.
"""

import json
from pathlib import Path

from untrimmed.errors import FeatureError

ORIGIN = "features.json"


def encoder_identity_of(folder: Path) -> str | None:
    """Return the identity of the encoder that made a data set's features, or None; FeatureError if the note is bad."""
    path = folder / ORIGIN
    if not path.is_file():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FeatureError(f"{path}: cannot be read as JSON ({error}); export the features again") from None
    identity = about.get("encoder_identity") if isinstance(about, dict) else None
    if not isinstance(identity, str):
        raise FeatureError(f"{path}: encoder_identity is {identity!r}, wanted text; export the features again")
    return identity
