"""Requests of foreign pages, for foreign names and from other machines are refused."""

import os
import re
import socket
import subprocess
import sys
import time

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import untrimmed
from tests.refusals import refused
from tests.served import served
from untrimmed.errors import ConfigError
from untrimmed.server import access as access_module
from untrimmed.server import peers
from untrimmed.server.access import Access, Guard, make_pass
from untrimmed.server.app import create_app

ROUTES = ["/", "/api/videos", "/api/openapi.json", "/healthz", "/metrics", "/no/such/route"]

OWN_HOSTS = ["localhost", "localhost:8765", "LOCALHOST:1", "127.0.0.1:8765", "127.0.0.1", "[::1]:8765", "[::1]"]
FOREIGN_HOSTS = [
    "", "evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example:8765",
    "127.0.0.1.nip.io", "evil.example#localhost", "localhost@evil.example", "evil.example@localhost",
    "localhost:evil.example", "localhost:8765:8765", "localhost:", "localhost:123456", "localhost,evil.example",
    "localhost evil.example", " localhost", "localhost/", "localhost\\", "localhost.", "0.0.0.0", "0.0.0.0:8765",
    "127.1", "2130706433", "0x7f.1", "::1", "[::1", "[::1]evil.example", "[::ffff:127.0.0.1]", "[evil.example]",
    "192.168.1.5:8765", "ｌocalhost".encode(), "localhost\u0000",
]  # fmt: skip
FOREIGN_ORIGINS = [
    "null", "", "http://evil.example", "https://evil.example", "http://localhost", "http://localhost:3000",
    "http://127.0.0.1:8765", "http://localhost:8765.evil.example", "http://localhost:8765@evil.example",
    "http://localhost:8765/", "http://localhost:87650", "localhost:8765", "file://",
    "chrome-extension://localhost:8765", "ws://localhost:8765",
]  # fmt: skip


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_the_names_of_this_machine_are_accepted(client, host):
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_foreign_names_are_refused_on_every_route(client, host):
    for route in ROUTES:
        answer = client.get(route, headers={"host": host})
        assert answer.status_code == 403, route
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_pages_of_other_origins_are_refused_on_every_route(client, origin):
    for route in ROUTES:
        assert client.get(route, headers={"origin": origin}).status_code == 403, route
    assert client.post("/api/search", json={"text": "red"}, headers={"origin": origin}).status_code == 403


def test_requests_of_the_services_own_page_are_accepted(client):
    headers = {"origin": "http://localhost:8765", "sec-fetch-site": "same-origin"}
    assert client.post("/api/search", json={"text": "red"}, headers=headers).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pictures_of_other_sites_pages_are_refused_and_links_to_the_page_are_not(client, ids, site):
    picture = f"/api/videos/{ids['flag.mp4']}/frame"
    assert client.get(picture, headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert client.get(picture, headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code == 403
    visit = client.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
    assert visit.status_code != 403


@pytest.mark.parametrize("route", ROUTES)
def test_every_answer_has_security_headers(client, route):
    headers = client.get(route).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("method", "route", "allowed"),
    [
        ("GET", "/api/search", "POST"),
        ("HEAD", "/api/export", "POST"),
        ("POST", "/api/videos", "GET"),
        ("PUT", "/healthz", "GET"),
        ("DELETE", "/api/jobs/0123456789abcdef/stop", "POST"),
    ],
)
def test_other_methods_of_a_route_are_refused_with_those_that_it_has(client, method, route, allowed):
    answer = client.request(method, route)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"] == "application/problem+json"


def test_web_sockets_are_closed_before_they_are_accepted(client):
    with pytest.raises(WebSocketDisconnect) as refusal, client.websocket_connect("/api/search"):
        pass
    assert refusal.value.code == 1008


TOKEN = "correct-horse-battery"


@pytest.fixture
def guarded(toy, world):
    app = create_app(untrimmed.open(world / "library"), access=Access.for_host("192.168.1.5", TOKEN))
    with TestClient(app, base_url="http://192.168.1.5:8765", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"cookie": "untrimmed_token_8765=wrong"},
        {"cookie": "untrimmed_token_8765"},
        {"cookie": f"untrimmed_token_8766={TOKEN}"},  # the cookie of another service on this machine
        {"cookie": f"other={TOKEN}"},
        {"authorization": "Bearer \xe9".encode("latin-1")},
    ],
)
def test_without_the_token_only_health_is_answered(guarded, headers):
    assert {route for route in ROUTES if guarded.get(route, headers=headers).status_code != 401} <= {"/healthz"}
    assert guarded.get("/healthz").json() == {"status": "ok", "num_videos": 5}
    assert (
        guarded.get("/api/videos?token=" + TOKEN, headers=headers).status_code == 401
    )  # an address is logged and shared


def test_the_token_opens_the_page_and_stays_as_a_cookie_that_scripts_cannot_read(guarded):
    opened = guarded.get("/", params={"token": TOKEN})
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(opened.headers["set-cookie"].split("; "))
    assert guarded.get("/api/videos").status_code == 200


@pytest.mark.parametrize("other", ['a={"b":1}', "a=b c", "a[b]=1", "lone", "a=b,c=d"])
def test_cookies_of_other_programs_do_not_hide_the_token(guarded, other):
    headers = {"cookie": f"{other}; untrimmed_token_8765={TOKEN}; {other}"}
    assert guarded.get("/api/videos", headers=headers).status_code == 200


@pytest.mark.parametrize("route", ["/api/search", "/api/export", "/api/jobs"])
def test_a_body_of_more_than_a_megabyte_is_refused(client, route):
    sent = []

    def endless():
        for _ in range(64):
            sent.append(1)
            yield b" " * (1 << 17)

    headers = {"content-type": "application/json"}
    assert client.post(route, content=b" " * (1 + (1 << 20)), headers=headers).status_code == 413
    answer = client.post(route, content=endless(), headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_a_program_sends_the_token_as_a_header(guarded):
    assert guarded.get("/api/videos", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200


def test_a_wrong_token_is_refused_even_if_none_is_required(client, access):
    assert client.get("/api/videos", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/videos", headers={"authorization": f"Bearer {access.own_token}"}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "box.example"])
def test_public_addresses_require_a_token(host):
    with refused(ConfigError, "--token"):
        Access.for_host(host, None)


@pytest.mark.parametrize("token", ["", "short", "fifteen-letters", "sixteen letters\n", "sixteen-lettérs-"])
def test_short_and_unprintable_tokens_are_refused(token):
    with pytest.raises(ConfigError, match="16"):
        Access.for_host("127.0.0.1", token)


def test_a_public_service_accepts_ip_addresses_but_not_unknown_names():
    access = Access.for_host("0.0.0.0", TOKEN, ["box.example"])
    assert [access.allows_host(host) for host in ("10.0.0.7:80", "[fe80::1]:80", "box.example", "evil.example")] == [
        True,
        True,
        True,
        False,
    ]


def described(client):
    """Method and address of every route in the OpenAPI document, with valid ids."""
    for path, methods in client.app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), re.sub(r"\{\w+\}", "0123456789abcdef", path)


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_every_described_route_is_guarded(client, headers):
    requests = list(described(client))
    assert len(requests) > 20
    assert {client.request(*one, headers=headers).status_code for one in requests} == {403}


def test_every_described_route_requires_the_token(guarded):
    open_to_all = {one for one in described(guarded) if guarded.request(*one).status_code != 401}
    assert open_to_all == {("GET", "/healthz")}


def test_a_pass_opens_the_page_once(client, access, monkeypatch):
    code = make_pass(access.own_token)
    opened = client.get("/", params={"token": code}, follow_redirects=False)
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert access.own_token in opened.headers["set-cookie"]
    client.cookies.clear()
    again = client.get("/", params={"token": code}, follow_redirects=False)
    assert (again.status_code, "set-cookie" in again.headers) == (200, False)
    late = make_pass(access.own_token)
    monkeypatch.setattr("time.time", lambda now=time.time(): now + 180)
    assert "set-cookie" not in client.get("/", params={"token": late}, follow_redirects=False).headers


@pytest.mark.parametrize("code", ["", ".", "1-2.3", "99999999999-aa.", "9999999999-é.ß", "٩-a.b"])
def test_other_codes_are_no_passes(client, guarded, access, code):
    foreign = make_pass("another token of another service")
    changed = str(int(make_pass(access.own_token)[0]) + 1) + make_pass(access.own_token)[1:]
    for text in (code, foreign, changed):
        assert "set-cookie" not in client.get("/", params={"token": text}, follow_redirects=False).headers
        assert guarded.get("/", params={"token": text}).status_code == 401


def test_a_pass_opens_a_service_with_a_token(guarded):
    access = next(layer.kwargs["access"] for layer in guarded.app.user_middleware if layer.cls is Guard)
    assert guarded.get("/", params={"token": make_pass(access.own_token)}).status_code == 303
    assert guarded.get("/api/browse").status_code == 409  # it offers no folders
    assert guarded.get("/api/videos").status_code == 200


def test_a_refused_request_does_not_use_up_a_pass(client, access):
    code = make_pass(access.own_token)
    assert client.get("/", params={"token": code}, headers={"host": "evil.example"}).status_code == 403
    assert client.get("/", params={"token": code}, follow_redirects=False).status_code == 303


def test_other_users_of_this_machine_need_a_token(client, access, monkeypatch):
    monkeypatch.setattr(access_module, "is_foreign", lambda *_: True)
    statuses = {route: client.get(route).status_code for route in [*ROUTES, "/api/bins"]}
    assert {route for route, status in statuses.items() if status != 401} == {"/healthz"}
    assert client.get("/api/bins", headers={"authorization": f"Bearer {access.own_token}"}).status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not list the users of connections")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_user_of_a_connection_is_known(address, tmp_path, monkeypatch):
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as listening:
        server = listening.getsockname()[:2]
        with socket.create_connection(server) as connection:
            client = connection.getsockname()[:2]
            assert not peers.is_foreign(client, server)
            table = peers._TABLES[6 if ":" in address else 4].read_text()
    ports = [f"{client[1]:04X}", f"{server[1]:04X}"]
    (words,) = [row.split() for row in table.splitlines() if re.findall(r":([0-9A-F]{4})\b", row)[:2] == ports]
    for uid, inode, expected in [
        (str(os.geteuid()), "7", False),
        ("12345", "7", True),
        ("0", "7", False),
        ("0", "0", True),
    ]:
        changed = " ".join([*words[:7], uid, words[8], inode])
        (tmp_path / "tcp").write_text(f"header\n{changed}\n")
        monkeypatch.setattr(peers, "_TABLES", dict.fromkeys((4, 6), tmp_path / "tcp"))
        assert peers.is_foreign(client, server) == expected, (uid, inode)
    assert not peers.is_foreign(("192.168.1.7", 4000), ("192.168.1.5", 8765)), "another machine"


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user")
def test_a_request_of_another_user_is_refused(client, access):
    code = """if True:
        import encodings.idna, http.client, os, sys
        os.setuid(int(sys.argv[2]))
        connection = http.client.HTTPConnection(sys.argv[1])
        connection.request("GET", "/api/bins")
        print(connection.getresponse().status)
    """

    def status(address, user):
        command = [sys.executable, "-I", "-c", code, address.removeprefix("http://"), str(user)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with served(create_app(client.app.state.service.library, access=access)) as address:
        assert (status(address, 0), status(address, 65534)) == ("200", "401")
