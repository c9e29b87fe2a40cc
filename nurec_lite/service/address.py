# SPDX-License-Identifier: Apache-2.0
"""The address to listen on, tried before a scene is loaded: gRPC names no reason why it cannot be opened."""

import socket

from nurec_lite.base.errors import ConfigError


def shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # IPv6


def check_address(host: str, port: int) -> None:
    """ConfigError if none of the host's addresses can be opened at the port."""
    flaw = _flaw(host, port)
    if flaw is not None:
        raise ConfigError(
            f"{shown(host, port)} cannot be opened ({flaw}); choose another host or port, or port=0 for a free one"
        )


def _flaw(host: str, port: int) -> str | None:
    flaw = None
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
