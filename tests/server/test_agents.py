"""The MCP server, used by the SDK's client in memory, over stdio and over HTTP."""

import base64
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest
from PIL import Image
from starlette.testclient import TestClient

import untrimmed
from tests.apart import apart
from tests.media import write_clip as write_clock
from tests.server.test_access import FOREIGN_HOSTS, FOREIGN_ORIGINS, OWN_HOSTS
from untrimmed import Library, Weights
from untrimmed.server.access import Access
from untrimmed.server.service import Service
from untrimmed.video.reader import VideoReader

pytest.importorskip("mcp", reason="untrimmed[mcp] is not installed")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from untrimmed.server import agents
from untrimmed.server.agents import _JsonLines, create_agents_app, create_server

TOKEN = "correct-horse-battery"
# The command `untrimmed` with the toy encoder.
COMMAND = """
import sys
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library
library.load_encoder = lambda *_, **__: LoadedEncoder(ToyEncoder(), None)
sys.argv = ["untrimmed", *sys.argv[1:]]
from untrimmed.cli.app import main
main()
"""


def talk(server, conversation):
    """Run a conversation with a server and return its result."""

    async def run():
        with anyio.fail_after(120):
            async with Client(server) as client:
                return await conversation(client)

    return apart(lambda: anyio.run(run))


@pytest.fixture
def ask(toy, world, tmp_path):
    """A function that calls tools of a server with a clips folder and returns their results."""
    service = Service(untrimmed.open(world / "library"))

    def run(*calls, clips=tmp_path):
        async def conversation(client):
            return [await client.call_tool(name, arguments) for name, arguments in calls]

        return talk(create_server(service, clips=clips), conversation)

    yield run
    service.close()


@pytest.fixture
def video_id(ask):
    """The id of the red, white and green clip."""
    (answer,) = ask(("search", {"text": "red"}))
    return answer.structured_content["hits"][0]["video_id"]


def refusal(result):
    """The error line of a refused call."""
    assert result.is_error
    (block,) = result.content
    assert len(block.text.splitlines()) == 1
    return block.text


def test_the_server_describes_its_tools(toy, world):
    service = Service(untrimmed.open(world / "library"))

    async def conversation(client):
        return client.instructions, (await client.list_tools()).tools

    instructions, tools = talk(create_server(service), conversation)
    service.close()
    assert "seconds" in instructions
    assert {tool.name: tool.annotations.read_only_hint for tool in tools} == {
        "search": True,
        "videos": True,
        "show": True,
        "sheet": True,
        "curve": True,
        "cut": False,
        "export": False,
    }
    search = next(tool for tool in tools if tool.name == "search")
    assert {"text", "then", "without", "filters", "limit", "min_confidence"} < search.input_schema["properties"].keys()
    assert not search.input_schema.get("required")
    assert search.output_schema["properties"].keys() >= {"warnings", "partial", "hits", "took_s"}


def test_a_search_finds_the_moment_and_show_returns_its_frame(ask):
    (answer,) = ask(("search", {"text": "green", "limit": 2, "filters": {"within": None}}))
    hits = answer.structured_content["hits"]
    assert len(hits) == 2
    flag = next(hit for hit in hits if hit["video"].endswith("flag.mp4"))
    span = flag["moments"][0]
    assert 3.5 <= span["start_s"] < span["end_s"] <= 6.5  # red to 2 s, white to 4 s, green to 6 s
    (shown,) = ask(("show", {"video_id": flag["video_id"], "time_s": (span["start_s"] + span["end_s"]) / 2}))
    (block,) = shown.content
    assert (block.type, block.mime_type) == ("image", "image/jpeg")
    red, green, blue = Image.open(io.BytesIO(base64.b64decode(block.data))).resize((1, 1)).getpixel((0, 0))
    assert green > 200 > 60 > max(red, blue)


def test_videos_are_listed_by_name(ask):
    everything, flags, second = ask(("videos", {}), ("videos", {"name": "FLAG"}), ("videos", {"offset": 1, "limit": 1}))
    paths = [video["video"] for video in everything.structured_content["videos"]]
    assert everything.structured_content["total"] == len(paths) > 1
    assert [video["video"] for video in flags.structured_content["videos"]] == [p for p in paths if "flag" in p]
    assert [video["video"] for video in second.structured_content["videos"]] == paths[1:2]


def test_a_contact_sheet_shows_the_video_in_order(ask, video_id):
    whole, span = ask(
        ("sheet", {"video_id": video_id, "pictures": 3}),
        ("sheet", {"video_id": video_id, "start_s": 4.2, "end_s": 5.8, "pictures": 1}),
    )
    sheet, single = (Image.open(io.BytesIO(base64.b64decode(result.content[0].data))) for result in (whole, span))
    assert sheet.width == 3 * single.width
    colours = [sheet.getpixel((round(sheet.width * (cell + 0.7) / 3), sheet.height // 2)) for cell in range(3)]
    assert colours[0][0] > 200 > 60 > max(colours[0][1:]), "red"
    assert min(colours[1]) > 200, "white"
    assert colours[2][1] > 200 > 60 > max(colours[2][0], colours[2][2]), "green"
    assert single.getpixel((single.width // 2, single.height // 2))[1] > 200
    assert "empty" in refusal(ask(("sheet", {"video_id": video_id, "start_s": 99.0}))[0])


def test_query_parts_filters_and_min_confidence_reach_the_search(ask, world):
    names = [
        [hit["video"].rpartition("/")[2] for hit in result.structured_content["hits"]]
        for result in ask(
            ("search", {"text": "white", "then": "green", "within_s": 5, "limit": 1}),
            ("search", {"text": "yellow", "without": ["green"], "limit": 1}),
            ("search", {"text": "green", "filters": {"within": str(world / "videos" / "sea [1].mp4")}}),
            ("search", {"text": "green", "filters": {"min_duration_s": 500}}),
        )
    ]
    assert names[0] == ["flag.mp4"]
    assert names[1][0] not in ("flag.mp4", "ß" * 125 + ".mp4")
    assert names[2:] == [["sea [1].mp4"], []]
    assert "confidence" in refusal(ask(("search", {"text": "red", "min_confidence": 0.5}))[0])


def test_weights_and_grouping_reach_the_library(ask, monkeypatch):
    queries, search = [], Library.search

    def noted(self, query, **options):
        queries.append(query)
        return search(self, query, **options)

    monkeypatch.setattr(Library, "search", noted)
    (answer,) = ask(
        ("search", {"text": "white", "then": "green", "weights": {"then": 3}, "group_by": "moment", "fold": 0.9})
    )
    assert answer.structured_content["hits"]
    (query,) = queries
    assert (query.weights, query.group_by, query.fold) == (Weights(then=3), "moment", 0.9)
    assert "weights.then" in refusal(ask(("search", {"text": "white", "weights": {"then": 0}}))[0])


def test_a_search_by_example_needs_no_sentence(ask, video_id):
    (answer,) = ask(("search", {"like": [{"video_id": video_id, "start_s": 4.5, "end_s": 5.5}], "limit": 2}))
    assert video_id in [hit["video_id"] for hit in answer.structured_content["hits"]]


def test_the_curve_peaks_where_the_sentence_matches(ask, video_id):
    whole, short = (
        result.structured_content
        for result in ask(
            ("curve", {"video_id": video_id, "text": "green"}),
            ("curve", {"video_id": video_id, "text": "green", "points": 3}),
        )
    )
    best = max(range(len(whole["relevance"])), key=whole["relevance"].__getitem__)
    assert 4 <= whole["times_s"][best] <= 6
    assert len(short["times_s"]) == 3
    assert max(short["relevance"]) == max(whole["relevance"])


def test_clips_are_written_to_the_clips_folder_without_overwriting(ask, video_id, tmp_path):
    call = ("cut", {"video_id": video_id, "start_s": 1.0, "end_s": 2.5})
    first, second = (result.structured_content for result in ask(call, call))
    assert [first["file"], second["file"]] == [
        str(tmp_path / "flag_1.0-2.5s.mp4"),
        str(tmp_path / "flag_1.0-2.5s_2.mp4"),
    ]
    with VideoReader() as reader:
        assert reader.read(tmp_path / "flag_1.0-2.5s.mp4").info.duration_s == pytest.approx(1.5, abs=0.1)
    assert (tmp_path / "flag_1.0-2.5s.mp4").stat().st_size == first["num_bytes"]
    assert "--clips DIR" in refusal(ask(call, clips=None)[0])


def test_an_unwritable_clips_folder_is_reported(ask, video_id, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", "/clips/flag.mp4")

    monkeypatch.setattr("untrimmed.server.agents.write_clip", refused)
    line = refusal(ask(("cut", {"video_id": video_id, "start_s": 0.0, "end_s": 1.0}))[0])
    assert line.startswith("/clips/flag.mp4: Permission denied")


WRONG = [
    ("search", {}, ""),
    ("search", {"query": "red"}, "'query'"),
    ("search", {"text": "red", "limit": 0}, "limit"),
    ("search", {"text": "red", "filters": {"folder": "/"}}, "filters: unknown field 'folder'"),
    ("search", {"text": "red", "filters": {"within": "/nowhere"}}, "/nowhere"),
    ("search", {"text": "red", "filters": {"since": "yesterday"}}, "'yesterday'"),
    ("show", {"video_id": "0123456789abcdef", "time_s": 1.0}, "id"),
    ("show", {"video_id": "../../etc/passwd", "time_s": 1.0}, "16"),
    ("show", {"video_id": "0123456789abcdef"}, "time_s"),
    ("curve", {"video_id": "0123456789abcdef", "text": ""}, "text"),
    ("cut", {"video_id": "0123456789abcdef", "start_s": 0, "end_s": 1}, "id"),
    ("delete", {}, "delete"),
]


def test_export_writes_a_new_file_each_time(ask, video_id, tmp_path):
    moment = {"video_id": video_id, "start_s": 1.0, "end_s": 2.5, "note": "red"}
    call = ("export", {"moments": [moment], "format": "edl", "rate": "30"})
    files = [answer.structured_content["file"] for answer in ask(call, call)]
    assert files == [str(tmp_path / "moments.edl"), str(tmp_path / "moments_2.edl")]
    assert "00:00:01:00 00:00:02:15 01:00:00:00 01:00:01:15" in (tmp_path / "moments.edl").read_text()
    refusal(ask(call, clips=None)[0])
    refusal(ask(("export", {"moments": [{**moment, "end_s": 1.0}], "format": "edl"}))[0])


@pytest.mark.parametrize(("tool", "arguments", "named"), WRONG)
def test_mistakes_are_named_in_one_line(ask, tool, arguments, named):
    assert named in refusal(ask((tool, arguments))[0])


def test_the_traceback_of_a_bug_is_logged_and_not_sent(ask, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("a secret")

    monkeypatch.setattr("untrimmed.search.library.Library.search", broken)
    assert "a secret" not in refusal(ask(("search", {"text": "red"}))[0])
    assert "a secret" in caplog.text


def test_new_videos_are_found_and_changed_files_are_not_shown(toy, tmp_path):
    videos, library = tmp_path / "videos", untrimmed.open(tmp_path / "library")
    videos.mkdir()
    service = Service(untrimmed.open(tmp_path / "library"))

    async def conversation(client):
        empty = await client.call_tool("search", {"text": "red"})
        write_clock(videos / "clock.webm", codec="libvpx-vp9", rate=25)
        await anyio.to_thread.run_sync(library.index, videos)
        answer = await client.call_tool("search", {"text": "red"})
        look = {"video_id": answer.structured_content["hits"][0]["video_id"], "time_s": 0.0}
        (videos / "clock.webm").write_bytes(b"another")
        changed = await client.call_tool("show", look)
        (videos / "clock.webm").unlink()
        return empty, answer, changed, await client.call_tool("show", look)

    empty, answer, changed, missing = talk(create_server(service), conversation)
    service.close()
    assert "untrimmed index" in refusal(empty)
    assert [hit["rank"] for hit in answer.structured_content["hits"]] == [1]
    refusal(changed)
    assert missing.content[0].mime_type == "image/webp"  # a stored picture


def test_over_stdio_a_client_starts_the_command_and_talks_with_it(world, tmp_path):
    command = ["-c", COMMAND, "mcp", "--library", str(world / "library"), "--clips", str(tmp_path / "clips")]

    async def conversation(client):
        answer = await client.call_tool("search", {"text": "green", "then": "yellow"})
        video_id = answer.structured_content["hits"][0]["video_id"]
        shown = await client.call_tool("show", {"video_id": video_id, "time_s": 1.0, "short_side": 180})
        written = await client.call_tool("cut", {"video_id": video_id, "start_s": 0.0, "end_s": 1.0})
        return answer, shown, written

    answer, shown, written = talk(
        StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ)), conversation
    )
    assert answer.structured_content["hits"][0]["video"].endswith("ß.mp4")
    assert shown.content[0].mime_type == "image/jpeg"
    assert written.structured_content["file"].startswith(str(tmp_path / "clips"))


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"red \ud800", "red \ufffd"),
        (r"\uDC00red\uD83D", "\ufffdred\ufffd"),
        (r"\ud83d\ude00", "\N{GRINNING FACE}"),
        (r"\\ud800 \u0041", "\\ud800 A"),
    ],
)
def test_over_stdio_a_request_with_half_of_a_surrogate_pair_is_read(sent, read):
    lines = _JsonLines(io.BytesIO(f'{{"text": "{sent}"}}\n'.encode()), encoding="utf-8")
    assert json.loads(lines.readline()) == {"text": read}


def test_over_stdio_a_request_with_half_of_a_surrogate_pair_is_answered(world):
    command = [sys.executable, "-c", COMMAND, "mcp", "--library", str(world / "library")]
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    requests = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": first}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write("\n".join([*requests, ""]))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
    assert [answer["id"] for answer in answers] == [1, "\ufffd"]


@contextmanager
def serving(*options):
    """The address that `untrimmed mcp --http` prints."""
    command = [sys.executable, "-c", COMMAND, "mcp", "--http", "0", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@asynccontextmanager
async def over_http(address, headers):
    """A client of the SDK that sends these headers."""
    async with (
        httpx2.AsyncClient(headers=headers) as client,
        streamable_http_client(address, http_client=client) as way,
    ):
        yield way


def test_over_http_the_token_is_required(world):
    async def conversation(client):
        return await client.call_tool("search", {"text": "green", "limit": 1})

    with serving("--library", world / "library", "--token", TOKEN) as address:
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith("/mcp")
        answer = talk(over_http(address, {"Authorization": f"Bearer {TOKEN}"}), conversation)
        assert len(answer.structured_content["hits"]) == 1
        assert httpx2.post(address, json={}).status_code == 401


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def post(toy, world):
    """Send the first message of a client with these headers and return the status."""
    service = Service(untrimmed.open(world / "library"))
    accept = {"accept": "application/json, text/event-stream"}
    with TestClient(create_agents_app(service, Access()), base_url="http://localhost:8766") as client:
        yield lambda headers: client.post("/mcp", json=HELLO, headers=accept | headers).status_code
    service.close()


def test_over_http_foreign_hosts_and_origins_are_refused(post):
    assert [host for host in OWN_HOSTS if post({"host": host}) != 200] == []
    assert [host for host in FOREIGN_HOSTS if post({"host": host}) != 403] == []
    assert [origin for origin in FOREIGN_ORIGINS if post({"origin": origin}) != 403] == []
    assert post({"sec-fetch-site": "cross-site"}) == 403


def test_over_http_wrong_tokens_and_long_messages_are_refused(post):
    assert post({"authorization": "Bearer wrong"}) == 401
    assert post({"content-length": str(1 << 21)}) == 413


def test_names_of_new_files_are_taken_once_by_parallel_calls(tmp_path):
    names, barrier = [], threading.Barrier(8)

    def take():
        barrier.wait()
        with agents._unused(tmp_path / "clip.mp4") as path:
            names.append(path.name)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(["clip.mp4", *(f"clip_{number}.mp4" for number in range(2, 9))])
    with pytest.raises(RuntimeError), agents._unused(tmp_path / "other.mp4"):
        raise RuntimeError
    assert not (tmp_path / "other.mp4").exists()
