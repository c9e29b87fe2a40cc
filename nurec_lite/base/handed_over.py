# SPDX-License-Identifier: Apache-2.0
"""Values and files for another process of this host, through memory: the sender never waits for one that is busy or stopped."""

import os
import pickle
from collections.abc import Sequence
from socket import recv_fds, send_fds, socket
from typing import Any

from nurec_lite.base.pickled import dumps

MOST = 4  # files with a value


def hand_over(
    line: socket,  # of a pair of the system's own family
    value: object,
    files: Sequence[int] = (),
) -> None:
    """Sends a value; any error of its pickling comes before anything is sent. OSError where the other end is closed."""
    text = dumps(value)
    with open(os.memfd_create("nurec_lite"), "wb") as file:
        file.write(text)
        file.flush()
        send_fds(line, [b"1"], [file.fileno(), *files])


def receive(line: socket) -> tuple[Any, list[int]]:
    """The next value, and files that the receiver closes. Waits. EOFError where the other end is closed."""
    _, (*found,), _, _ = recv_fds(line, 1, MOST)
    if not found:
        raise EOFError
    with open(found[0], "rb") as file:
        file.seek(0)
        return pickle.loads(file.read()), found[1:]
