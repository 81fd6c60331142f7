"""Whatever fits the service's own description, or nearly does, is answered as it is described, and never with a bug."""

import os
import socket
import threading

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import untrimmed
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.server.app import create_app

DESCRIBED = schemathesis.openapi.from_dict(create_app(untrimmed.open("nowhere")).openapi())
ROUTES = {found.ok().label: found.ok() for found in DESCRIBED.get_all_operations()}
ENDLESS = "GET /api/jobs/{job_id}/events"
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
LONG_TO_DRAW = "POST /api/search/picture"  # minutes for its pictures and whole queries in an address
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
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(untrimmed.open(world / "library")), log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)
        listening.close()


def check(address, route, mode, count):
    """Ask a route so many things, and compare each answer with the description; gives how many there were."""
    asked = 0

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=ROUTES[route].as_strategy(generation_mode=mode))
    def ask(case):
        nonlocal asked
        asked += 1
        case.validate_response(case.call(base_url=address, timeout=60), checks=CHECKS)

    ask()
    return asked


@pytest.mark.parametrize(
    "route",
    [
        pytest.param(route, marks=[pytest.mark.slow] if route == LONG_TO_DRAW else [])
        for route in sorted(ROUTES.keys() - {ENDLESS})
    ],
)
def test_answers_are_those_that_are_described(address, route):
    has_input = "{" in route or ROUTES[route].query or ROUTES[route].body
    count = sum(check(address, route, mode, NUM_EACH) for mode in (MODES if has_input else MODES[:1]))
    print(f"{count} inputs")
    assert count >= (NUM_EACH if has_input else 1)


@pytest.mark.slow
def test_ten_thousand_inputs(address):
    routes = [route for route in sorted(ROUTES.keys() - {ENDLESS}) if "{" in route or ROUTES[route].body]
    each = 10_000 // (2 * len(routes)) + 1
    assert sum(check(address, route, mode, each) for route in routes for mode in MODES) >= 10_000
