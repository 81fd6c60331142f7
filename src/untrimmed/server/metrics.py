"""Figures for Prometheus: requests by route and status, how long they took, and what the service holds."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIND = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The figures of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["method", "route"]
        self._requests = Counter(
            "untrimmed_requests", "Requests answered.", [*labels, "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "untrimmed_request_seconds",
            "Until the answer was sent whole.",
            labels,
            registry=self._registry,
            buckets=_BUCKETS_S,
        )

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Report a number as it is whenever somebody asks."""
        Gauge(f"untrimmed_{name}", what, registry=self._registry).set_function(value)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self._registry)


class Meter:
    """Counts and times what passes."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            # By the route's form, never by what was asked: a client could make any number of series.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            self.metrics.note(method, route, status, time.perf_counter() - started)
