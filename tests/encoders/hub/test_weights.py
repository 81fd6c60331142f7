import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tiny_models import save_clip
from untrimmed.encoders.hub.weights import locate, weight_files, weights_digest
from untrimmed.errors import EncoderError

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    return save_clip(folder)


class Hub(BaseHTTPRequestHandler):
    """The part of the hub that a download needs: the list of files, and each file with its digest."""

    folder: Path
    files: tuple[str, ...]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/models/acme/tiny/tree/"):
            tree = [{"type": "file", "path": name, "size": 10, "oid": "0" * 40} for name in self.files]
            return self._send(json.dumps(tree).encode(), {"Content-Type": "application/json"}, with_body)
        if path.startswith("/api/models/acme/tiny"):
            names = [{"rfilename": name, "size": 10} for name in self.files]
            listing = {
                "id": "acme/tiny",
                "sha": REVISION,
                "siblings": names,
                "private": False,
                "downloads": 0,
                "tags": [],
            }
            return self._send(json.dumps(listing).encode(), {"Content-Type": "application/json"}, with_body)
        name = path.rsplit("/", 1)[-1]
        if path.startswith("/acme/tiny/resolve/") and name in self.files:
            body = (self.folder / name).read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()}"'
            return self._send(body, {"ETag": etag, "X-Repo-Commit": REVISION}, with_body)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub(clip_folder: Path) -> Iterator[type[Hub]]:
    """A hub on the loopback address that holds the tiny CLIP as acme/tiny; its address is `hub.address`."""

    class TinyHub(Hub):
        folder = clip_folder
        files = (*sorted(path.name for path in clip_folder.iterdir()), "pytorch_model.bin")

    server = ThreadingHTTPServer(("127.0.0.1", 0), TinyHub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    TinyHub.address = f"http://127.0.0.1:{server.server_port}"
    yield TinyHub
    server.shutdown()
    server.server_close()
    thread.join()


def run_locate(source: str, endpoint: str, cache: Path, *, timeout_s: float = 5.0, **environment: str):
    """`locate` in a new process, because the hub's client reads the address when it is imported."""
    program = (
        "import sys\n"
        "from untrimmed.errors import EncoderError\n"
        "from untrimmed.encoders.hub.weights import locate, weights_digest\n"
        "try:\n"
        f"    folder = locate({source!r}, timeout_s={timeout_s})\n"
        "    print(folder, weights_digest(folder))\n"
        "except EncoderError as error:\n"
        "    print(error)\n"
        "    sys.exit(1)\n"
    )
    settings = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0", **environment}
    settings.pop("HF_HUB_CACHE", None)  # it has precedence over HF_HOME
    return subprocess.run(
        [sys.executable, "-c", program], env=settings, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_folder_is_located_as_an_absolute_path(clip_folder, monkeypatch):
    monkeypatch.chdir(clip_folder.parent)
    assert locate(clip_folder.name) == clip_folder.resolve()


def test_the_digest_of_a_single_file_is_its_sha256(clip_folder):
    content = (clip_folder / "model.safetensors").read_bytes()
    assert weights_digest(clip_folder) == hashlib.sha256(content).hexdigest()[:16]


def test_the_digest_changes_with_one_byte_of_the_weights(clip_folder, tmp_path):
    content = bytearray((clip_folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weights_digest(tmp_path) != weights_digest(clip_folder)


def test_the_digest_of_shards_covers_each_of_them(tmp_path):
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (tmp_path / names[0]).write_bytes(b"one")
    (tmp_path / names[1]).write_bytes(b"two")
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    original = weights_digest(tmp_path)
    (tmp_path / names[1]).write_bytes(b"two!")
    assert weights_digest(tmp_path) != original
    (tmp_path / names[1]).unlink()
    with pytest.raises(EncoderError, match=r"model-00002-of-00002\.safetensors"):
        weights_digest(tmp_path)


def test_the_digest_of_a_cached_blob_is_its_name(tmp_path):
    name = hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blobs" / name).write_bytes(b"any other bytes")
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(tmp_path / "blobs" / name)
    assert weights_digest(tmp_path / "snapshot") == name[:16]


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "shard.bin", 3])
def test_an_index_may_only_name_safetensors_files_beside_it(tmp_path, name):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(EncoderError, match=r"\.safetensors"):
        weight_files(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(EncoderError):
        weight_files(tmp_path)


def test_a_folder_without_weights_or_with_pickled_ones_only_is_refused(tmp_path):
    with pytest.raises(EncoderError, match=r"model\.safetensors"):
        weight_files(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(EncoderError, match=r"pytorch_model\.bin"):
        weight_files(tmp_path)


def test_a_hub_model_is_fetched_once_and_then_found_without_the_hub(hub, clip_folder, tmp_path):
    first = run_locate("acme/tiny", hub.address, tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    folder, digest = first.stdout.split()
    assert digest == weights_digest(clip_folder)
    assert not (Path(folder) / "pytorch_model.bin").exists()
    assert (Path(folder) / "merges.txt").read_bytes() == (clip_folder / "merges.txt").read_bytes()
    again = run_locate("acme/tiny", "http://127.0.0.1:9", tmp_path)
    assert again.stdout == first.stdout


def test_a_hub_model_that_does_not_exist_is_refused(hub, tmp_path):
    answer = run_locate("acme/none", hub.address, tmp_path)
    assert answer.returncode == 1
    assert "acme/none" in answer.stdout
    assert answer.stderr == ""


def test_a_hub_model_with_only_pickled_weights_is_refused_before_a_download(hub, tmp_path):
    hub.files = ("config.json", "pytorch_model.bin", "onnx/model.safetensors")
    answer = run_locate("acme/tiny", hub.address, tmp_path)
    assert answer.returncode == 1
    assert "pytorch_model.bin" in answer.stdout
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("missing", ["model.safetensors", "vocab.json", "preprocessor_config.json"])
def test_files_missing_after_an_interrupted_download_are_fetched(hub, tmp_path, missing):
    folder = Path(run_locate("acme/tiny", hub.address, tmp_path).stdout.split()[0])
    (folder / missing).unlink()
    answer = run_locate("acme/tiny", hub.address, tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (folder / missing).is_file()


def test_an_interrupted_download_is_reported_in_one_line(hub, clip_folder, tmp_path):
    hub.files = (*hub.files, "tokenizer.json")  # the file is listed, but a request for it fails
    answer = run_locate("acme/tiny", hub.address, tmp_path)
    assert answer.returncode == 1
    assert "acme/tiny" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_an_unreachable_hub_is_reported_in_one_line_within_seconds(tmp_path):
    answer = run_locate("acme/tiny", "http://127.0.0.1:9", tmp_path)
    assert answer.returncode == 1
    assert "acme/tiny" in answer.stdout
    assert len(answer.stdout.strip().splitlines()) == 1
    assert answer.stderr == ""


def test_a_hub_that_never_answers_times_out(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        answer = run_locate("acme/tiny", f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, timeout_s=1.0)
        assert time.monotonic() - start < 10
    assert answer.returncode == 1
    assert "acme/tiny" in answer.stdout
    assert answer.stderr == ""


def test_offline_mode_is_obeyed_and_reported(hub, tmp_path):
    answer = run_locate("acme/tiny", hub.address, tmp_path, HF_HUB_OFFLINE="1")
    assert answer.returncode == 1
    assert "HF_HUB_OFFLINE" in answer.stdout
    assert answer.stderr == ""


def test_local_files_only_does_not_contact_the_hub():
    with pytest.raises(EncoderError):
        locate("acme/never-cached", local_files_only=True)
