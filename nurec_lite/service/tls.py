# SPDX-License-Identifier: Apache-2.0
"""Encryption by PEM files. They are checked before the server opens its port, since gRPC names no fault of them."""

import ssl
from pathlib import Path
from typing import Any

import grpc

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.texts import open_file
from nurec_lite.config import ServeConfig

NOT_YET_VALID, EXPIRED = 9, 10  # X509_V_ERR_* of OpenSSL
LARGEST = 1 << 20  # bytes of a file
ROUNDS = 5  # messages of a handshake from each side, at most


def credentials(config: ServeConfig) -> Any:
    """The keys that encrypt connections; None: nothing does. ConfigError for files that do not fit."""
    certificate, key, clients = (_path(file) for file in (config.tls_certificate, config.tls_key, config.tls_clients))
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        missing = "tls_certificate" if certificate is None else "tls_key"
        raise ConfigError(f"{missing} is missing; give both tls_certificate=FILE and tls_key=FILE")
    pair = _pem("tls_key", key), _pem("tls_certificate", certificate)
    signers = None if clients is None else _pem("tls_clients", clients)
    _check_dates(_server(certificate, key), certificate)
    if clients is not None:
        _trusting("tls_clients", clients)
    return grpc.ssl_server_credentials([pair], signers, signers is not None)


def _path(file: str | None) -> Path | None:
    return None if file is None else Path(file)


def _pem(key: str, file: Path) -> bytes:
    try:
        with open_file(file) as opened:
            data = opened.read(LARGEST)
    except OSError as error:
        raise ConfigError(f"{key} is {file}, which cannot be read ({error.strerror}); name a PEM file") from error
    if b"-----BEGIN " not in data:
        raise ConfigError(f"{key} is {file}, which is no PEM file; name one")
    return data


def _trusting(key: str, file: Path) -> ssl.SSLContext:
    """A client that trusts the certificates of a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_flags = False, ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise ConfigError(f"{key} is {file}, which holds no whole certificate; name a PEM file of one") from error
    return context


def _server(certificate: Path, key: Path) -> ssl.SSLContext:
    _trusting("tls_certificate", certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"tls_key is {key}, which is not the key of {certificate}; name that one") from error
        raise ConfigError(f"tls_key is {key}, which holds no key without a password; name a PEM file of one") from error
    return context


def _check_dates(server: ssl.SSLContext, certificate: Path) -> None:
    """Greets the server as a client does, in memory: any client would refuse a certificate whose time is over."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _trusting("tls_certificate", certificate).wrap_bio(back, there)
    ends = client, server.wrap_bio(there, back, server_side=True)
    for end in ROUNDS * ends:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in (NOT_YET_VALID, EXPIRED):
                when = "has expired" if error.verify_code == EXPIRED else "is not valid yet"
                raise ConfigError(f"tls_certificate is {certificate}, which {when}; renew it") from error
            return
