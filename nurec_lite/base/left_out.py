# SPDX-License-Identifier: Apache-2.0
"""Parts of a result that may fail, such as a finding or a picture: a failure costs neither metrics nor report nor exit status.

A part that fails leaves a sentence that names the part and the cause; the command prints it, and metrics.json and the report show it.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from nurec_lite.base.errors import StoppedError
from nurec_lite.base.files import OutputError

T = TypeVar("T")
LONGEST = 200  # characters of a cause that a sentence repeats
log = logging.getLogger("nurec_lite")


class LeftOut:
    """The parts of one result that failed."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}  # the first of each part
        self._found: dict[str, tuple[str, int]] = {}  # cause of the first failure and number of failures, by part

    def tried(
        self,
        part: str,  # a noun at the beginning of a sentence, such as `The Chamfer distance`
        work: Callable[[], T],
    ) -> T | None:
        """The result of the work, None if it fails. A result that cannot be written is an error that the user must mend."""
        try:
            return work()
        except (OutputError, StoppedError):
            raise
        except Exception as error:
            self.add(part, error)
            return None

    def add(self, part: str, error: Exception) -> str:
        """Notes a failure; returns its sentence."""
        self.errors.setdefault(part, error)
        cause, times = self._found.get(part, (cause_of(error), 0))
        self._found[part] = cause, times + 1
        if not times:
            log.warning("%s", _sentence(part, cause, 1))
            log.debug("%s failed", part, exc_info=error)
        return _sentence(part, cause, times + 1)

    @property
    def sentences(self) -> list[str]:
        return [_sentence(part, *found) for part, found in self._found.items()]


def _sentence(part: str, cause: str, times: int) -> str:
    often = f" {times} times, at first" if times > 1 else ""
    return f"{part} failed{often}: {cause}."


def failure(part: str, error: Exception) -> str:
    """The sentence on a part that failed."""
    return _sentence(part, cause_of(error), 1)


def cause_of(error: Exception) -> str:
    """A part of a sentence: the error on one line."""
    said = " ".join(str(error).split())[:LONGEST].rstrip(".")
    return said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}".removesuffix(": ")
