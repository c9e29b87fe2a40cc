# SPDX-License-Identifier: Apache-2.0
"""Errors of requests, with the status that a caller gets."""

from nurec_lite.base.errors import UserError
from nurec_lite.base.texts import printable

INVALID, MISSING, BUSY, UNSUPPORTED = "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"
BROKEN = "FAILED_PRECONDITION"  # of the service: another request would not help

LONGEST_SENTENCE = 1000  # characters that a caller gets


class RequestError(UserError):
    """One sentence for the caller: the field, its value, and the remedy."""

    def __init__(self, sentence: str, status: str = INVALID) -> None:
        super().__init__(sentence)
        self.status = status  # name of a gRPC status


def sentence_of(error: UserError) -> str:
    """One line: a name in it that a caller gave may hold anything."""
    return printable(str(error))[:LONGEST_SENTENCE]
