# SPDX-License-Identifier: Apache-2.0
"""Figures of the service, as text that Prometheus reads, over HTTP."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import ConfigError

BUCKETS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)  # of requests' durations
PATIENCE_S = 5.0  # for a reader that says nothing
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Figures:
    """Counters, safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()  # by method and status
        self._buckets: Counter[tuple[str, float]] = Counter()  # by method and upper end
        self._seconds: Counter[str] = Counter()
        self._rendered: Counter[str] = Counter()
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}  # meaning and value by name

    def request(self, method: str, status: str, seconds: float) -> None:
        with self._lock:
            self._requests[method, status] += 1
            self._seconds[method] += seconds  # type: ignore[assignment]
            self._buckets[method, next((end for end in BUCKETS_S if seconds <= end), float("inf"))] += 1

    def rendered(self, images: int, sweeps: int, rays: int, seconds: float) -> None:
        """Adds a launch."""
        with self._lock:
            for name, value in (
                ("images", images),
                ("sweeps", sweeps),
                ("rays", rays),
                ("launches", 1),
                ("seconds", seconds),
            ):
                self._rendered[name] += value  # type: ignore[assignment]

    def requests(self) -> int:
        with self._lock:
            return sum(self._requests.values())

    def text(self) -> str:
        with self._lock:
            lines = [*self._request_lines(), *self._rendered_lines()]
        for name, (meaning, value) in self.gauges.items():
            lines += [*_head(name, meaning, "gauge"), f"nurec_lite_{name} {value():.15g}"]
        return "\n".join([*lines, ""])

    def _request_lines(self) -> Iterator[str]:
        yield from _head("requests_total", "Requests by method and gRPC status.", "counter")
        for (method, status), count in sorted(self._requests.items()):
            yield f'nurec_lite_requests_total{{method="{method}",status="{status}"}} {count}'
        yield from _head("request_seconds", "Time from a request's arrival to its reply.", "histogram")
        for method in sorted(self._seconds):
            below = 0
            for end in (*BUCKETS_S, float("inf")):
                below += self._buckets[method, end]
                shown = "+Inf" if end == float("inf") else f"{end:g}"
                yield f'nurec_lite_request_seconds_bucket{{method="{method}",le="{shown}"}} {below}'
            yield f'nurec_lite_request_seconds_sum{{method="{method}"}} {self._seconds[method]:.6f}'
            yield f'nurec_lite_request_seconds_count{{method="{method}"}} {below}'

    def _rendered_lines(self) -> Iterator[str]:
        meanings = {
            "images": "Rendered images.", "sweeps": "Rendered sweeps.", "rays": "Rendered lidar rays.",
            "launches": "Groups of frames that were rendered together.", "seconds": "Time of rendering and copying to the host.",
        }  # fmt: skip
        for name, meaning in meanings.items():
            yield from _head(f"rendered_{name}_total", meaning, "counter")
            yield f"nurec_lite_rendered_{name}_total {self._rendered[name]:.15g}"


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP nurec_lite_{name} {meaning}", f"# TYPE nurec_lite_{name} {kind}"]


def resident_bytes() -> float:
    """Memory of this process that lies in RAM; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0.0
    return float(pages) * 4096


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S

    def __init__(
        self,
        answer: Callable[[str], tuple[int, str]],  # of a path: status and text
        *given: Any,
    ) -> None:
        self._answer = answer
        super().__init__(*given)

    def do_GET(self) -> None:
        status, text = self._answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Writes no line to the log for a request."""


class _Server(ThreadingHTTPServer):
    """A server with a thread for each reader. It ends readers that say a byte now and then: each would keep a thread."""

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._since: dict[Any, float] = {}  # by open connections
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        super().service_actions()
        for request, begun in list(self._since.items()):
            if time.monotonic() - begun > PATIENCE_S:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a reader that went away."""


class FiguresServer:
    """GET /metrics answers with the figures, GET /healthz with 200 while the service is healthy."""

    def __init__(self, figures: Figures, host: str, port: int, healthy: Callable[[], bool]) -> None:
        def answer(path: str) -> tuple[int, str]:
            if path == "/metrics":
                return 200, figures.text()
            if path == "/healthz":
                return 200 if healthy() else 503, ""
            return 404, "there is /metrics and /healthz\n"

        try:
            self._server = _Server((host, port), partial(_Handler, answer))
        except OSError as error:
            raise ConfigError(
                f"metrics_port is {port}, which cannot be opened ({error.strerror}); choose another"
            ) from error
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
