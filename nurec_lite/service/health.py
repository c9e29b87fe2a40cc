# SPDX-License-Identifier: Apache-2.0
"""The standard service grpc.health.v1.Health: `Check` answers at once, `Watch` sends the status and each change of it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from nurec_lite.service.errors import BUSY, RequestError, sentence_of
from nurec_lite.service.messages import SERVICES, message, number_of, parsed

HEALTH = "grpc.health.v1.Health"
MOST_WATCHERS = 16  # calls of Watch at a time; each holds a thread
LOOK_S = 0.2  # seconds between two looks at the status


class Health:
    """The status of the whole server, which each of its services shares."""

    def __init__(
        self,
        healthy: Callable[[], bool],
        stopping: Callable[[], bool],  # ends all watches
    ) -> None:
        self._healthy, self._stopping = healthy, stopping
        self._places = threading.BoundedSemaphore(MOST_WATCHERS)

    def check(self, data: bytes, caller: object) -> bytes:
        asked = parsed("HealthCheckRequest", data).service
        if not _known(asked):
            raise RequestError(f"service is '{asked:.200}', but there are {', '.join(SERVICES)}", "NOT_FOUND")
        return self._status(asked)

    def watch(self, data: bytes, context: Any) -> Iterator[bytes]:
        """Yields the status and each change of it; an unknown service is a status, as in the standard. Ends when the caller goes or the
        service stops."""
        gone = threading.Event()
        context.add_callback(gone.set)
        if not self._places.acquire(blocking=False):
            _refuse(context, RequestError(f"{MOST_WATCHERS} calls watch the health already; use Check", BUSY))
            return
        try:
            asked, last = parsed("HealthCheckRequest", data).service, None
            while True:
                ending, status = self._stopping(), self._status(asked)
                if status != last:
                    yield status
                    last = status
                if ending or gone.wait(LOOK_S):
                    return
        except RequestError as error:
            _refuse(context, error)
        finally:
            self._places.release()

    def _status(self, asked: str) -> bytes:
        name = ("SERVING" if self._healthy() else "NOT_SERVING") if _known(asked) else "SERVICE_UNKNOWN"
        found: bytes = message("HealthCheckResponse")(status=number_of("ServingStatus", name)).SerializeToString()
        return found


def _known(service: str) -> bool:
    return service in ("", HEALTH, *SERVICES)


def _refuse(context: Any, error: RequestError) -> None:
    context.set_code(grpc.StatusCode[error.status])
    context.set_details(sentence_of(error))
