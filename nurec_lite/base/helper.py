# SPDX-License-Identifier: Apache-2.0
"""A process that is started early and gets its work later. This process does the work where the other one cannot."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from socket import socket, socketpair
from typing import Any, TypeVar

from nurec_lite.base.errors import UserError
from nurec_lite.base.handed_over import hand_over, receive
from nurec_lite.base.processes import Ahead, Kind

R = TypeVar("R")
log = logging.getLogger("nurec_lite")


class Helper:
    """A process that waits for one call, which may come much later: a process is started best while no other thread computes."""

    def __init__(
        self,
        kind: Kind,
        prepare: Callable[[], None],  # done by the process while it waits
    ) -> None:
        self._parent, self._prepare = os.getpid(), prepare
        theirs, self._line = socketpair()
        self._process = Ahead(partial(self._work, theirs), 0, count=1, ahead=1, kind=kind)
        theirs.close()

    def result(
        self,
        call: "partial[R]",  # is pickled
        here: Callable[[], R],  # the same for this process, whose other threads compute
    ) -> R:
        """The result of the call. UserError is the call's own; after any other error of the process this one makes the result."""
        try:
            with suppress(ConnectionError):  # it is dead, which the next line notices
                hand_over(self._line, call)
            found: list[R] = self._process.result(0)
        except (UserError, CancelledError):
            raise
        except (
            Exception
        ) as error:  # the call or its result has no form that can be sent, or the process lacks something
            log.debug("this process does the work of another one", exc_info=error)
            found = []
        return found[0] if found else here()

    def _work(self, line: socket, _: int) -> list[Any]:
        """Returns the result in a list; an empty one in the parent, where no other process is left."""
        if os.getpid() == self._parent:
            return []
        self._prepare()
        return [receive(line)[0]()]

    def close(self) -> None:
        """Ends the process."""
        self._process.close()
        self._line.close()
