"""Prometheus metrics: number and duration of requests by route, and gauges of the service."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIND = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["method", "route"]
        self._requests = Counter(
            "untrimmed_requests", "Requests answered.", [*labels, "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "untrimmed_request_seconds",
            "Time until the response was sent.",
            labels,
            registry=self._registry,
            buckets=_BUCKETS_S,
        )

    def gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed whenever Prometheus reads the metrics."""
        Gauge(f"untrimmed_{name}", description, registry=self._registry).set_function(value)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an answered request and its duration."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)


class Meter:
    """Middleware that counts and times requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count and time one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        finally:
            # The label is the pattern of the route. If it were the path, a client could create any number of series.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            self.metrics.note(method, route, status, time.perf_counter() - started)
