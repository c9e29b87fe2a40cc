# SPDX-License-Identifier: Apache-2.0
"""The gRPC server: routes, limits and status codes."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.memory import is_out_of_memory
from nurec_lite.base.texts import host_and_port
from nurec_lite.config import ServeConfig
from nurec_lite.service.calls import Calls
from nurec_lite.service.errors import BUSY, INVALID, RequestError, sentence_of
from nurec_lite.service.figures import Figures
from nurec_lite.service.health import HEALTH, MOST_WATCHERS, Health
from nurec_lite.service.messages import METHODS, SERVICES
from nurec_lite.service.tls import credentials
from nurec_lite.service.worker import Job

SPARE = 8  # threads for health, and for refused callers
log = logging.getLogger("nurec_lite")


class RpcCaller:
    """A caller over gRPC."""

    def __init__(self, context: Any) -> None:
        self._jobs: list[Job] = []
        self._gone = not context.add_callback(self._leave)

    def own(self, jobs: Sequence[Job]) -> None:
        self._jobs.extend(jobs)
        if self._gone:
            self._leave()

    def wait(self, job: Job) -> Any:
        return job.result.result()

    def gone(self) -> bool:
        return self._gone

    def _leave(self) -> None:
        self._gone = True
        for job in self._jobs:
            job.result.cancel()


class Handlers(grpc.GenericRpcHandler):
    """Routes method paths of the service's names, and of the health service, to functions of bytes."""

    def __init__(self, config: ServeConfig, calls: Calls, figures: Figures, health: Health) -> None:
        self._figures, self._health, self._megabytes = figures, health, config.max_message_mb
        self._most = config.max_requests
        self._places = threading.BoundedSemaphore(self._most)  # of requests; health checks come on top
        own = {f"/{service}/{name}": (name, getattr(calls, name)) for service in SERVICES for name in METHODS}
        self._functions = own | {f"/{HEALTH}/Check": (HEALTH, health.check)}

    def service(self, details: Any) -> Any:
        if details.method == f"/{HEALTH}/Watch":
            return grpc.unary_stream_rpc_method_handler(self._health.watch)
        if details.method not in self._functions:
            return None  # gRPC answers UNIMPLEMENTED
        name, function = self._functions[details.method]

        def answer(data: bytes, context: Any) -> bytes:
            return self._answered(
                name, function if name == HEALTH else partial(self._admitted, function), data, context
            )

        return grpc.unary_unary_rpc_method_handler(answer)

    def _answered(self, name: str, function: Callable[..., bytes], data: bytes, context: Any) -> bytes:
        begin, status, sentence, reply = time.monotonic(), "OK", "", b""
        try:
            reply = function(data, RpcCaller(context))
        except Exception as error:
            status, sentence = _status(name, error)
        self._figures.request(name, status, time.monotonic() - begin)
        if status != "OK":
            context.set_code(grpc.StatusCode[status])
            context.set_details(sentence)
        return reply

    def _admitted(self, function: Callable[..., bytes], data: bytes, caller: RpcCaller) -> bytes:
        if not self._places.acquire(blocking=False):
            raise RequestError(f"{self._most} requests are in progress, and no more may be; try again later", BUSY)
        try:
            reply = function(data, caller)
        finally:
            self._places.release()
        if len(reply) > self._megabytes << 20:
            raise RequestError(
                f"the reply has {len(reply)} bytes, but may have {self._megabytes} MiB; ask for less at a time, or raise max_message_mb",
                BUSY,
            )
        return reply


def _status(name: str, error: Exception) -> tuple[str, str]:
    """The status and the sentence of an error. A defect shows its trace in the log."""
    if isinstance(error, RequestError):
        return error.status, sentence_of(error)
    if is_out_of_memory(error):
        return BUSY, "there is not enough memory for this request; ask for a smaller image, or for fewer"
    if isinstance(error, UserError):
        return INVALID, sentence_of(error)
    if isinstance(error, CancelledError):
        return "CANCELLED", "the caller has gone"
    log.error("%s failed", name, exc_info=error)
    return "INTERNAL", f"{name} failed in the service ({type(error).__name__}); its log has the trace"


class Server:
    """A server that listens. `port` is the opened one, also if port 0 was asked for."""

    def __init__(self, config: ServeConfig, calls: Calls, figures: Figures, health: Health) -> None:
        bytes_of_message = config.max_message_mb << 20
        options = [
            ("grpc.max_receive_message_length", bytes_of_message), ("grpc.max_send_message_length", bytes_of_message),
            ("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ]  # fmt: skip
        handlers = Handlers(config, calls, figures, health)
        threads = config.max_requests + SPARE + MOST_WATCHERS
        self._threads = ThreadPoolExecutor(threads, "request")
        self._server = grpc.server(self._threads, [handlers], options=options, maximum_concurrent_rpcs=2 * threads)
        self.port = self._opened(config)
        self._server.start()

    def stop(self, seconds: float) -> None:
        """Lets requests end for so long, then cuts them off."""
        stopped: threading.Event = self._server.stop(seconds)
        stopped.wait()
        self._threads.shutdown()

    def _opened(self, config: ServeConfig) -> int:
        address = host_and_port(config.host, config.port)
        secrets = credentials(config)
        try:
            if secrets is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, secrets))
        except RuntimeError as error:
            raise ConfigError(
                f"{address} cannot be opened; choose another host or port, or port=0 for a free one"
            ) from error
