"""List methods and attachments, and which attachments each method accepts.

The list of this package's methods is stored in a file, because the registry imports torch, which is slow. After
changing the first line of a method's docstring, or which attachments it accepts, write the file again:

    python -m untrimmed.models.listing
"""

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from untrimmed.files import write_whole
from untrimmed.plugins import GROUP

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class ModelListing:
    """Names of methods and attachments with their papers.

    `refused` maps METHOD+ATTACHMENT to the reason why the method does not accept the attachment.
    """

    methods: Mapping[str, str]
    attachments: Mapping[str, str]
    training_free: Mapping[str, str]
    refused: Mapping[str, str]

    def methods_of(self, attachment: str) -> list[str]:
        """Return the methods that accept an attachment."""
        return [method for method in self.methods if f"{method}+{attachment}" not in self.refused]

    @property
    def compositions(self) -> list[str]:
        """All allowed METHOD+ATTACHMENT, sorted."""
        names = (f"{method}+{attachment}" for method in self.methods for attachment in self.attachments)
        return sorted(name for name in names if name not in self.refused)


def list_all(*, with_plugins: bool) -> ModelListing:
    """Return all names. Torch is imported only if there are plug-ins (modules or installed packages)."""
    if with_plugins or importlib.metadata.entry_points(group=GROUP):
        return registered_listing()
    return stored_listing()


def stored_listing() -> ModelListing:
    """Return the names of this package's methods and attachments, as stored in the file."""
    return ModelListing(**json.loads(FILE.read_text(encoding="utf-8")))


def registered_listing() -> ModelListing:
    """Return the names in the registry, including the names that plug-ins registered."""
    from untrimmed.models.registry import list_attachments, list_compositions, list_models, paper_of
    from untrimmed.moments import tf_prvr

    return ModelListing(
        methods={name: paper_of(name) for name in list_models()},
        attachments={name: paper_of(name) for name in list_attachments()},
        training_free={tf_prvr.NAME: (tf_prvr.__doc__ or "").partition("\n")[0]},
        refused={name: problem for name, problem in list_compositions().items() if problem},
    )


if __name__ == "__main__":
    write_whole(FILE, json.dumps(asdict(registered_listing()), indent=1) + "\n")
