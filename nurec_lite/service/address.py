# SPDX-License-Identifier: Apache-2.0
"""The addresses to listen on, tried before a scene is loaded: gRPC names no reason why one cannot be opened."""

import socket

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.texts import host_and_port
from nurec_lite.config import ServeConfig


def check_addresses(config: ServeConfig) -> None:
    """ConfigError if none of the host's addresses can be opened at a port."""
    flaw = _flaw(config.host, config.port)
    if flaw is not None:
        address = host_and_port(config.host, config.port)
        raise ConfigError(f"{address} cannot be opened ({flaw}); choose another host or port, or port=0 for a free one")
    if config.metrics_port is None:
        return
    flaw = "port is the same" if config.metrics_port == config.port != 0 else _flaw(config.host, config.metrics_port)
    if flaw is not None:
        raise ConfigError(f"metrics_port is {config.metrics_port}, which cannot be opened ({flaw}); choose another")


def _flaw(host: str, port: int) -> str | None:
    flaw = None
    if not host.strip():  # all addresses for the system, none for gRPC
        return "host is empty"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or "this is no name of a host"
    for family, kind, _, _, address in addresses:
        try:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was left lately is free
                probe.bind(address)
                return None
        except OSError as error:
            flaw = error.strerror
    return flaw
