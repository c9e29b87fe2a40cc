# SPDX-License-Identifier: Apache-2.0
"""The viewer's server answers with viser's own pages, to its own pages; a reason for not starting is a sentence."""

import builtins
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("viser")
import viser as package
from viser import _messages
from web_client import answer, browser
from websockets.exceptions import InvalidStatus

from nurec_lite.base.errors import ConfigError
from nurec_lite.viewer.server import refusal, start, stop

BUILD = Path(package.__file__).parent / "client" / "build"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    server = start("127.0.0.1", 0)
    yield server
    stop(server)


@pytest.mark.parametrize(
    "request_", [
        "/etc/passwd", "//etc/passwd", "/../../../../../../../../../etc/passwd", "/..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/..\\..\\..\\etc\\passwd", "/assets/../../index.html",
        "/%252e%252e/etc/passwd", "/..", "/.", "/assets", "/index.html%00.png", "/%ff%fe", "/index.html/", "/./index.html",
        "/~root/.bashrc", "/proc/self/environ", "file:///etc/passwd", "http://elsewhere/etc/passwd", "/" + "a" * 5000, "*", "/src/App.tsx",
        "/?/../../etc/passwd=1/../../package.json", "/package.json", "/_viser.py", "/checkpoint.pt",
    ],
)  # fmt: skip
def test_nothing_but_its_own_pages_is_served(server: Any, request_: str) -> None:
    status, body = answer(server.get_port(), request_)
    own = [path.read_bytes() for path in BUILD.rglob("*") if path.is_file()]
    assert status in (400, 404, 500) or body in own
    assert b"root:" not in body and b"PATH=" not in body
    if status == 200:
        assert request_.startswith("/?") or request_.strip("/") in ("index.html", "./index.html")


def test_its_own_pages_are_served(server: Any) -> None:
    for path in BUILD.rglob("*"):
        if path.is_file():
            status, body = answer(server.get_port(), f"/{path.relative_to(BUILD)}")
            assert status == 200 and body == path.read_bytes()
    assert answer(server.get_port(), "/?theme=dark")[1] == (BUILD / "index.html").read_bytes()


def test_another_name_for_this_machine_is_not_answered(server: Any) -> None:
    """A page may have its own name lead to 127.0.0.1."""
    status, body = answer(server.get_port(), "/", host="evil.example:80")
    assert status == 403 and b"its own machine alone" in body


def test_a_page_of_another_site_cannot_connect(server: Any) -> None:
    with pytest.raises(InvalidStatus) as error, browser(server.get_port(), origin="http://evil.example"):
        pass
    assert error.value.response.status_code == 403
    with browser(server.get_port()) as client:
        client.wait_for("ReplayDoneMessage")


def test_no_browser_opens_a_tunnel(server: Any) -> None:
    known = server._websock_server._incoming_handlers
    assert _messages.ShareUrlRequest not in known and _messages.ShareUrlDisconnect not in known


PAGES = {"", "index.html"}


@pytest.mark.parametrize(
    ("hosts", "origin", "bound", "answered"), [
        (["127.0.0.1:8080"], None, "127.0.0.1", True), (["localhost:9000"], "http://localhost:9000", "127.0.0.1", True),
        (["[::1]:8080"], "http://[::1]:8080", "::1", True), (["127.0.0.1:8080"], "http://127.0.0.1:9999", "127.0.0.1", False),
        (["box:8080"], "http://box:8080", "0.0.0.0", True), (["box:8080"], "http://elsewhere", "0.0.0.0", False),
        (["box:8080"], None, "127.0.0.1", False), (["box:8080"], "null", "0.0.0.0", False), ([], None, "0.0.0.0", False),
        (["a", "b"], None, "0.0.0.0", False), (["[::"], None, "0.0.0.0", False), (["localhost.evil.example"], None, "127.0.0.1", False),
    ],
)  # fmt: skip
def test_answered_callers(hosts: list[str], origin: str | None, bound: str, answered: bool) -> None:
    assert (refusal("/", hosts, origin, bound, PAGES) is None) == answered


# ---- the start


def test_a_port_in_use_is_a_sentence(server: Any) -> None:
    port = server.get_port()
    with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use; .* port=N"):
        start("127.0.0.1", port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="is in use"):
            start("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", "", "a" * 80, "x y"])
def test_an_address_of_another_machine_is_a_sentence(host: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        start(host, 0)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    own = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "viser":
            raise ImportError(name)
        return own(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs the package viser, .*: pip install viser"):
        start("127.0.0.1", 0)


@pytest.mark.parametrize("data", [b"", b"\r\n\r\n", b"\x00\xff\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"])
def test_callers_that_speak_no_http_leave_no_trace(server: Any, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", server.get_port()), timeout=10) as caller:
        caller.sendall(data)
        caller.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            caller.recv(1000)
    assert answer(server.get_port(), "/index.html")[0] == 200  # the server goes on
    assert not [record for record in caplog.records if record.name.startswith("websockets")]
