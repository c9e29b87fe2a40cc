# SPDX-License-Identifier: Apache-2.0
"""viser's server, guarded: it answers with viser's own pages alone, to browsers that the user has opened, and never opens a tunnel.

viser 1.1 looks for another port where one is taken, waits for ever for an address that does not exist, lets any page of the web that
the browser has open connect to it, and lets any browser have the scene published through a tunnel. None of that is wanted here.
"""

import contextlib
import errno
import http
import io
import ipaddress
import logging
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from nurec_lite.base.errors import ConfigError

Answer = Callable[[Any, Any], Any]  # gets a connection and a request; returns a response, or None to go on


def viser() -> ModuleType:
    """The package; ConfigError with the extra that brings it."""
    try:
        import viser
    except ImportError as error:
        raise ConfigError(
            "the viewer needs the package viser, which is not installed: pip install viser==1.1.1"
        ) from error
    found: ModuleType = viser
    return found


def start(host: str, port: int) -> Any:  # viser.ViserServer
    """A server without content. ConfigError if the address is not this machine's or the port is taken."""
    package = viser()
    logging.getLogger("websockets").setLevel(logging.WARNING)
    logging.getLogger("websockets.server").addFilter(_is_no_handshake)
    warnings.filterwarnings("ignore", "Queued a .* on a closed connection")  # a browser may leave at any time
    _check_free(host, port)
    with _quiet(), _guarded(package, host):
        server = package.ViserServer(host=host, port=port, verbose=False)
    if port not in (0, server.get_port()):
        stop(server)
        raise _taken(host, port)
    messages = package._messages
    server.gui.configure_theme(show_share_button=False)
    server.gui.main_panel.dock_right()  # next to the picture: a frame's own view lay under a floating one
    for message in (messages.ShareUrlRequest, messages.ShareUrlDisconnect):
        server._websock_server.unregister_handler(message)
    return server


def _is_no_handshake(record: logging.LogRecord) -> bool:
    """Whether a log record is no failed handshake: a scanner of ports, which speaks no HTTP, leaves no trace in the terminal."""
    return "handshake failed" not in record.getMessage()


def stop(server: Any) -> None:
    with _quiet():
        server.stop()


def show(client: Any, picture: bytes, depth: bytes | None) -> None:
    """Puts a JPEG, and a PNG of its depths, into the background of a browser. viser's own call would encode them in 0.3 s."""
    message = viser()._messages.BackgroundImageMessage(format="jpeg", rgb_data=picture, depth_data=depth)
    client.scene._websock_interface.queue_message(message)
    client.flush()


@contextmanager
def _quiet() -> Iterator[None]:
    """Replaces viser's own output by our words."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _taken(host: str, port: int) -> ConfigError:
    return ConfigError(f"port {port} of {host} is in use; end the other viewer, or give another port by port=N")


def _check_free(host: str, port: int) -> None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _taken(host, port) from error
        if error.errno == errno.EACCES:
            raise ConfigError(f"port {port} is for the system's own programs; give another by port=N") from error
        raise ConfigError(f"host={host} is no address of this machine ({error.strerror}); leave it out") from error
    except UnicodeError as error:
        raise ConfigError(f"host={host} is no address; leave it out") from error


# ---- answered requests


@contextmanager
def _guarded(package: ModuleType, host: str) -> Iterator[None]:
    """Block whose new servers ask `refusal` before viser answers."""
    from websockets.asyncio import server

    build = Path(package.__file__ or "").parent / "client" / "build"
    pages = {"", *(str(path.relative_to(build)) for path in build.rglob("*") if path.is_file())}
    own = server.serve

    def serve(handler: Any, *arguments: Any, process_request: Answer, **options: Any) -> Any:
        def answer(connection: Any, request: Any) -> Any:
            refused = refusal(request.path, request.headers.get_all("Host"), request.headers.get("Origin"), host, pages)
            if refused is not None:
                return connection.respond(*refused)
            return process_request(connection, request)

        return own(handler, *arguments, process_request=answer, **options)

    server.serve = serve  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        server.serve = own  # type: ignore[misc]


def refusal(
    path: str,  # of the request
    hosts: list[str],  # that the browser believes to talk to
    origin: str | None,  # page that asks, of a browser
    bound: str,  # address that the server was bound to
    pages: set[str],  # that may be asked for
) -> tuple[http.HTTPStatus, str] | None:
    """Returns the reason against a request; None: it is answered. A page of another site may not connect,
    nor be taken for ours under another name of this machine."""
    if unquote(path.partition("?")[0]).strip("/") not in pages:
        return http.HTTPStatus.NOT_FOUND, "there is no such page\n"
    name = _hostname(f"//{hosts[0]}") if len(hosts) == 1 else None
    if name is None or (_is_loopback(bound) and not _is_loopback(name)):
        return http.HTTPStatus.FORBIDDEN, "this viewer answers on its own machine alone; start it with host=0.0.0.0\n"
    if origin is not None and urlsplit(origin).netloc != hosts[0]:
        return http.HTTPStatus.FORBIDDEN, "this viewer answers its own pages alone\n"
    return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
