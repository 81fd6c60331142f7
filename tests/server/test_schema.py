"""Valid and nearly valid requests get answers that match the OpenAPI document, never a server error."""

import copy
import io
import json
import os
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import untrimmed
from tests.served import served
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.server.app import create_app

# Schemathesis draws from the `random` module while it prepares some routes for the first time (DELETE with a pattern).
pytestmark = [pytest.mark.check, pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")]

DESCRIBED = schemathesis.openapi.from_dict(create_app(untrimmed.open("nowhere")).openapi())
ROUTES = {found.ok().label: found.ok() for found in DESCRIBED.get_all_operations()}
ENDLESS = "GET /api/jobs/{job_id}/events"
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
PICTURE = "POST /api/search/picture"
NUM_EACH = int(os.environ.get("UNTRIMMED_SCHEMA_INPUTS", "40"))  # of every route
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def address(world):
    """The service on a socket of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), None))
        with served(create_app(untrimmed.open(world / "library")), log_level="critical") as at:
            yield at


def written(picture, form):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, form)
    return file.getvalue()


COLOURS = np.random.default_rng(0).integers(0, 255, (9, 13, 3)).astype(np.uint8)
FILES = [written(COLOURS, form) for form in ("PNG", "JPEG", "WEBP", "BMP", "GIF")]


@st.composite
def damaged(draw):
    """A picture that is truncated or has some wrong bytes."""
    content = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(0, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


def pictures():
    """Requests with pictures. Generating them with schemathesis alone would take minutes."""
    texts = st.text(max_size=30) | st.sampled_from(["red", "white green"])
    queries = st.fixed_dictionaries(
        {},
        optional={
            "text": texts,
            "without": st.lists(texts, max_size=3),
            "fold": st.floats(-2, 2),
            "group_by": st.sampled_from(["video", "moment", "frame"]),
            "within_s": st.floats(allow_nan=False),
            "limit": st.integers(-1, 600),
        },
    ).map(json.dumps)
    query = st.fixed_dictionaries(
        {},
        optional={
            "text": texts,
            "limit": st.integers(-1, 600),
            "moments": st.integers(-1, 60),
            "query": queries | texts,
        },
    )
    body = st.sampled_from(FILES) | damaged() | st.binary(max_size=300)
    return st.builds(
        lambda **parts: ROUTES[PICTURE].Case(media_type="application/octet-stream", **parts), query=query, body=body
    )


def check(address, route, mode, count):
    """Send `count` requests to a route, check the answers, and return the number of requests."""
    num_requests = 0

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=pictures() if route == PICTURE else ROUTES[route].as_strategy(generation_mode=mode))
    def ask(case):
        nonlocal num_requests
        num_requests += 1
        case.validate_response(case.call(base_url=address, timeout=60), checks=CHECKS)

    ask()
    return num_requests


@pytest.mark.parametrize("route", sorted(ROUTES.keys() - {ENDLESS}))
def test_answers_match_the_openapi_document(address, route):
    has_input = "{" in route or ROUTES[route].query or ROUTES[route].body
    count = sum(check(address, route, mode, NUM_EACH) for mode in (MODES if has_input else MODES[:1]))
    print(f"{count} inputs")
    assert count >= (NUM_EACH if has_input else 1)


@pytest.mark.slow
def test_ten_thousand_inputs(address):
    routes = [route for route in sorted(ROUTES.keys() - {ENDLESS}) if "{" in route or ROUTES[route].body]
    each = 10_000 // (2 * len(routes)) + 1
    assert sum(check(address, route, mode, each) for route in routes for mode in MODES) >= 10_000


# -- values that have broken other programs, in place of every value that a client sends

VIDEO = "0123456789abcdef"
VALUES = [
    "", " ", "\0", "\ud800", "\u202e\u0301", "\ufdfa" * 500, "a" * 5000, "../../etc/passwd", "<script>",
    "%00%s%n{0}", "'\"`$(id)",
    "NaN", "1e999", "-0", "null", "2026-02-30", "0001-01-01", "9999-12-31T23:59:59+14:00", 0, -1, 1.5, -0.0, 1e308,
    5e-324, 10**30, -(10**400), True, None, [], {}, [[[]]], {"": {}}, [None], ["x"] * 40,
]  # fmt: skip
BODIES = {
    "/api/search": {
        "text": "red", "then": "green", "within_s": 5.0, "without": ["blue"], "group_by": "moment", "fold": 0.9,
        "like": [{"video_id": VIDEO, "start_s": 1.0, "end_s": 2.0}], "unlike": [{"video_id": VIDEO, "start_s": 1.0}],
        "weights": {"text": 1.0, "like": 2.0}, "limit": 5, "moments": 2, "min_score": 0.1, "min_confidence": 0.1,
        "filters": {"within": "/", "since": "2020-01-01", "until": "2030-01-01", "min_duration_s": 1.0, "max_bytes": 9},
    },
    "/api/export": {"format": "csv", "moments": [{"video_id": VIDEO, "start_s": 0.0, "end_s": 1.0, "note": "x"}]},
    "/api/jobs": {"folder_ids": [VIDEO]},
    "/api/bins": {
        "name": "Trailer",
        "moments": [{"video_id": VIDEO, "start_s": 0.0, "end_s": 1.0, "note": "x", "sentence": "y", "video": "z"}],
    },
}  # fmt: skip


def places(value, at=()):
    """The path of each value in a body."""
    if at:
        yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield from places(one, (*at, name))


def replaced(body, at, value):
    body = copy.deepcopy(body)
    holder = body
    for name in at[:-1]:
        holder = holder[name]
    holder[at[-1]] = value
    return body


def odd_requests(ids):
    """Method, address and body."""
    for route, body in BODIES.items():
        known = json.loads(json.dumps(body).replace(VIDEO, ids[0]))
        for at in places(known):
            for value in VALUES:
                yield "POST", route, json.dumps(replaced(known, at, value)).encode()
        for text in (b"", b"{", b"[" * 20_000, b"\xff\xfe", b"null", b'{"text": 1e999}', b'{"text": "a", "text": "b"}'):
            yield "POST", route, text
    for label, operation in ROUTES.items():
        method, path = label.split()
        if method != "GET" or label == ENDLESS:
            continue
        path = path.replace("{video_id}", ids[0]).replace("{job_id}", ids[0]).replace("{folder_id}", ids[0])
        names = [parameter.name for parameter in operation.query]
        needed = {"text": "red", "start_s": "0", "end_s": "0.2"}
        for name in names:
            for value in VALUES:
                parameters = {**{key: needed[key] for key in names if key in needed}, name: value}
                yield method, path + "?" + "&".join(f"{key}={as_text(one)}" for key, one in parameters.items()), None


def as_text(value):
    return quote((value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass"))


def test_hostile_values_cause_no_server_error(address, world):
    with httpx.Client(base_url=address, timeout=60) as client:
        ids = [video["video_id"] for video in client.get("/api/videos").json()["videos"]]
        seen = {}
        for method, url, body in odd_requests(ids):
            answer = client.request(method, url, content=body, headers={"content-type": "application/json"})
            assert answer.status_code < 500, (method, url, body)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", (method, url, body)
                assert len(answer.json()["detail"].splitlines()) == 1, (method, url, body)
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
    print(seen)
    assert sum(seen.values()) >= 1000
    assert seen[200] > 50
