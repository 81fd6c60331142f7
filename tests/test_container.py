"""The image and the compose file: linters accept them, and they agree with the command line and each other."""

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from untrimmed.cli.app import build_app

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
VARIABLES = {"VIDEOS": "/home/me/Videos", "UNTRIMMED_TOKEN": "0123456789abcdef"}


def instructions(name):
    return re.findall(rf"(?m)^\s*{name} (.*)$", DOCKERFILE)


@pytest.fixture
def service():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return compose["services"]["untrimmed"]


@pytest.mark.parametrize(
    ("linter", "arguments"), [("hadolint", ["Dockerfile"]), ("compose-lint", ["check", "compose.yaml"])]
)
def test_linters_accept_the_files(linter, arguments):
    program = Path(sys.executable).with_name(linter)
    if not program.exists():
        pytest.skip(f"{linter} is not installed")
    done = subprocess.run([program, *arguments], cwd=ROOT, env=VARIABLES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_runs_a_valid_command_as_another_user_than_root():
    command = json.loads(instructions("CMD")[0])
    context = typer.main.get_command(build_app(command[0])).make_context("untrimmed", list(command))
    serve = context.command.commands[command[0]]
    parameters = serve.make_context("serve", command[1:]).params
    assert (parameters["host"], [str(folder) for folder in parameters["watch"]]) == ("0.0.0.0", ["/videos"])
    assert instructions("USER") == ["1000"]
    assert f":{parameters['port']}/healthz" in instructions("HEALTHCHECK")[0]
    assert instructions("EXPOSE") == [str(parameters["port"])]


def test_every_copied_file_exists_and_reaches_the_builder():
    admitted = re.findall(r"(?m)^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert {"pyproject.toml", "src"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in admitted)


def test_videos_are_read_only_and_the_library_is_a_volume(service):
    mounts = dict(mount.rsplit(":", maxsplit=1) for mount in service["volumes"] if mount.endswith(":ro"))
    assert [path.rsplit(":", maxsplit=1)[-1] for path in mounts] == ["/videos"]
    assert f"library:{instructions('VOLUME')[0]}" in service["volumes"]
    assert service["read_only"]
    assert service["ports"] == ["127.0.0.1:8765:8765"]
