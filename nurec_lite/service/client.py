# SPDX-License-Identifier: Apache-2.0
"""A client of SensorsimService: `Sensorsim("localhost:50051")` has a method for each call."""

from typing import Any

import grpc

from nurec_lite.service.messages import METHODS, SERVICES, message

MESSAGE_BYTES = 64 << 20
PATIENCE_S = 300.0


class Sensorsim:
    """Methods take a message or its fields, and return the reply: `client.get_available_cameras(scene_id="mine")`."""

    def __init__(
        self,
        address: str,  # HOST:PORT
        service: str = SERVICES[0],
        certificate: bytes | None = None,  # PEM, to verify the server; None: no encryption
        own: tuple[bytes, bytes] | None = None,  # PEM of the client's key and certificate, if the server asks
    ) -> None:
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
        if certificate is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(
                address, grpc.ssl_channel_credentials(certificate, *(own or ())), options
            )
        self._calls = {name: self._call(f"/{service}/{name}", *kinds) for name, kinds in METHODS.items()}

    def __enter__(self) -> "Sensorsim":
        return self

    def __exit__(self, *error: object) -> None:
        self.channel.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._calls:
            raise AttributeError(f"SensorsimService has no call '{name}'")
        return self._calls[name]

    def _call(self, path: str, request: str, reply: str) -> Any:
        over = self.channel.unary_unary(path, lambda one: one.SerializeToString(), message(reply).FromString)

        def call(given: Any = None, timeout: float = PATIENCE_S, **fields: Any) -> Any:
            return over(message(request)(**fields) if given is None else given, timeout=timeout)

        return call
