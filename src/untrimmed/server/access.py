"""Access control for all routes: checks of the Host header, the Origin header and a token.

Any page that is open in a browser can send requests to programs on the same machine. Three checks reject such requests:

- The Host header must name this machine. A foreign name that resolves to this machine's address is rejected.
- A request from a page must come from this service's own page.
- If other machines can reach the service, a token is required. On Linux, other users of this machine also need it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from untrimmed.errors import ConfigError
from untrimmed.server.peers import is_foreign
from untrimmed.server.problems import problem

MAX_BODY_BYTES = 1 << 20
IS_HEAD = "untrimmed.is_head"  # key in the scope of HEAD requests, whose responses get no body
HAS_TOKEN = "untrimmed.has_token"  # key in the scope of requests: whether the request contains an accepted token
_TOO_LONG = f"the request body is larger than {MAX_BODY_BYTES >> 20} MB; send a smaller request"
_PICTURE = "/api/search/picture"  # this route has its own size limit
MIN_TOKEN_LENGTH = 16
_PASS_S = 120  # a pass is valid for this time, because starting a browser can take a minute
# Browsers may only load scripts, styles, pictures and videos from this service, and may not show the page in a frame of
# another page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """The host names and tokens that a service accepts.

    Besides `token`, the service accepts `own_token`, which is stored in the library folder in a file that only this
    user can read.
    """

    names: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})
    # Whether any IP address is accepted as Host header. This is safe, because the host name of a foreign page that
    # attacks this service is not an IP address.
    any_address: bool = False
    token: str | None = None
    own_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    _used_passes: set[str] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def for_host(cls, host: str, token: str | None, names: Iterable[str] = ()) -> Access:
        """Return the access rules of a service that listens at an address.

        Raises:
            ConfigError: Other machines can reach the address and there is no token, or the token is too short.
        """
        if token is not None and (len(token) < MIN_TOKEN_LENGTH or not (token.isascii() and token.isprintable())):
            raise ConfigError(
                f"the token has {len(token)} characters, expected at least {MIN_TOKEN_LENGTH} printable ASCII "
                "characters; `--token auto` creates one"
            )
        hosts = {"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in names)}
        if is_loopback(host):
            return cls(frozenset(hosts), token=token)
        if token is None:
            raise ConfigError(f"other machines can reach {host}, so a token is required; add --token auto")
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(hosts), any_address=True, token=token)

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this service. Any port is accepted because ports can be forwarded."""
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = (match["address"] or match["name"]).lower()
        return name in self.names or (self.any_address and _is_address(name))

    def knows(self, token: str) -> bool:
        """Whether a token is one of the accepted tokens."""
        accepted = [self.own_token, *([self.token] if self.token is not None else [])]
        return sum(secrets.compare_digest(token.encode(), expected.encode()) for expected in accepted) > 0

    def redeem(self, code: str) -> bool:
        """Whether a code is a valid pass of `make_pass`. Each pass is accepted only once."""
        expires_at, _, nonce = code.partition(".")[0].partition("-")
        signed = _sign(self.own_token, f"{expires_at}-{nonce}")
        if not (expires_at.isdecimal() and secrets.compare_digest(code.encode(), signed.encode())):
            return False
        if int(expires_at) < time.time() or code in self._used_passes:
            return False
        self._used_passes.add(code)
        return True


def make_pass(own_token: str) -> str:
    """Return a pass: a code that a browser can exchange for the service's cookie, once and within two minutes.

    The address that opens the browser contains the pass, not the token, because other users can read the command line.
    """
    return _sign(own_token, f"{int(time.time()) + _PASS_S}-{secrets.token_hex(8)}")


def _sign(own_token: str, text: str) -> str:
    return f"{text}.{hmac.new(own_token.encode(), text.encode(), hashlib.sha256).hexdigest()}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Middleware that rejects forbidden requests, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a forbidden request, or pass the request on and add security headers to the response."""
        # there are no web sockets; closing the connection before accepting it sends status 403
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        token = _token_in_address(scope)
        status, reason = self._refusal(scope, headers)
        # do not use up the pass if the request is refused for another reason
        if token is not None and status in (0, 401) and self.access.redeem(token):
            status = 0
            token = self.access.own_token
        if status:
            await problem(status, reason)(scope, receive, send_with_headers)
        elif token is not None and self.access.knows(token):
            answer = RedirectResponse(scope["path"], 303)
            answer.set_cookie(_cookie_name(headers), token, httponly=True, samesite="strict", path="/")
            await answer(scope, receive, send_with_headers)
        else:
            scope[HAS_TOKEN] = self.access.knows(_token(headers))
            await self.app(scope, receive if scope["path"] == _PICTURE else _capped(receive), send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        """Return the status and the reason of a refusal. The status is 0 if the request is allowed."""
        hosts = headers.getlist("host")
        origins = headers.getlist("origin")
        if len(hosts) != 1 or not self.access.allows_host(hosts[0]):
            return 403, (
                f"Host {', '.join(hosts)[:200]!r} is not allowed; use the address of the service, or start it with "
                "--allow-host NAME"
            )
        own_origins = {f"http://{hosts[0]}".lower(), f"https://{hosts[0]}".lower()}
        if origins and (len(origins) != 1 or origins[0].lower() not in own_origins):
            return 403, "the request comes from a page with another origin; use this service's own page"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_visit(scope, headers):
            return 403, "the request comes from a page on another site; use this service's own page"
        status, reason = self._token_refusal(scope, headers)
        length = headers.get("content-length", "")
        if not status and scope["path"] != _PICTURE and length.isdecimal() and int(length) > MAX_BODY_BYTES:
            return 413, _TOO_LONG
        return status, reason

    def _token_refusal(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        if self.access.knows(_token(headers)):
            return 0, ""
        is_open = scope["path"] == "/healthz" or (
            self.access.token is None and not is_foreign(scope.get("client"), scope.get("server"))
        )
        if is_open and not _has_bearer(headers):
            return 0, ""
        if not _has_bearer(headers) and self.access.knows(_token_in_address(scope) or ""):
            return 0, ""
        return 401, (
            "the token is missing or wrong; open the printed address, including ?token=, or send "
            "Authorization: Bearer TOKEN"
        )


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Whether a user opens the page by a link or by typing its address.

    Any site may link to the page, because it cannot read the response.
    """
    return scope["method"] in ("GET", "HEAD") and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"


def _token_in_address(scope: Scope) -> str | None:
    if scope["method"] not in ("GET", "HEAD") or scope["path"] != "/":
        return None
    return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("token", [])), None)


def _has_bearer(headers: Headers) -> bool:
    return headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def _token(headers: Headers) -> str:
    """Return the token in the Authorization header, otherwise the token in the cookie, otherwise an empty text."""
    return headers["authorization"].partition(" ")[2].strip() if _has_bearer(headers) else _cookie(headers)


def _cookie_name(headers: Headers) -> str:
    """Return the name of the cookie with the token.

    The name contains the port, because all ports of a host share cookies.
    """
    return "_".join(["untrimmed_token", *re.findall(r":([0-9]+)$", headers["host"])])


def _cookie(headers: Headers) -> str:
    return cookie_parser(headers.get("cookie", "")).get(_cookie_name(headers), "")


def _capped(receive: Receive) -> Receive:
    remaining = MAX_BODY_BYTES

    async def receive_counted() -> Message:
        nonlocal remaining
        message = await receive()
        remaining -= len(message.get("body", b""))
        if remaining < 0:
            raise HTTPException(413, _TOO_LONG)
        return message

    return receive_counted


class Heads:
    """Middleware that answers HEAD requests like GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a HEAD request like a GET request, but without the body. Pass on other requests."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self.app({**scope, "method": "GET", IS_HEAD: True}, receive, send_without_body)
