# SPDX-License-Identifier: Apache-2.0
"""A browser's side of viser's protocol: sends the place of its camera, and reads the things to draw."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("viser")
import msgspec
import viser
import zstandard
from viser import _messages
from websockets.sync.client import ClientConnection, connect

PROTOCOL = f"viser-v{viser.__version__}"


class WebClient:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def camera(self, position: Any, look_at: Any, wxyz: Any, size: tuple[int, int] = (64, 36)) -> None:
        message = _messages.ViewerCameraMessage(
            wxyz=tuple(wxyz), position=tuple(position), fov=1.0, near=0.01, far=1000.0, image_height=size[1],
            image_width=size[0], look_at=tuple(look_at), up_direction=(0.0, 0.0, 1.0),
        )  # fmt: skip
        self.connection.send(msgspec.msgpack.encode(message.as_serializable_dict([])))

    def set(self, uuid: str, value: Any) -> None:
        """Changes a control."""
        self.connection.send(
            msgspec.msgpack.encode(_messages.GuiUpdateMessage(uuid, {"value": value}).as_serializable_dict([]))
        )

    def messages(self, seconds: float = 60.0) -> Iterator[tuple[str, dict[str, Any]]]:
        """Types and contents as they come."""
        while True:
            yield from _decoded(self.connection.recv(timeout=seconds))

    def wait_for(self, kind: str) -> dict[str, Any]:
        return next(content for found, content in self.messages() if found == kind)


def _decoded(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    size = int.from_bytes(data[8:16], "little")
    inner = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data[16 : 16 + size]))
    messages = inner["messages"] if isinstance(inner, dict) else inner
    for message in messages:
        content = message[1] if isinstance(message, list) else message
        yield content["type"], content


@contextmanager
def browser(port: int, **headers: Any) -> Iterator[WebClient]:
    origin = headers.pop("origin", f"http://127.0.0.1:{port}")
    with connect(
        f"ws://127.0.0.1:{port}", origin=origin, subprotocols=[PROTOCOL], compression=None, max_size=None, **headers
    ) as connection:
        yield WebClient(connection)


def answer(port: int, request: str, host: str | None = None) -> tuple[int, bytes]:
    """Status and body of a request as it is written: no client tidies the path."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        head = f"GET {request} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\nConnection: close\r\n\r\n"
        link.sendall(head.encode("latin-1"))
        data = b"".join(iter(lambda: link.recv(1 << 16), b""))
    first, _, body = data.partition(b"\r\n\r\n")
    return int(first.split()[1]), body
