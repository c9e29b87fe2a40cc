# SPDX-License-Identifier: Apache-2.0
"""Programs that take flags (scripts/, benchmarks/, the simulator): --help shows their text as it stands, and an error that a user can
mend is one sentence with code 2, as for commands."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from nurec_lite.base.beginning import begun
from nurec_lite.base.errors import UserError, unreachable
from nurec_lite.base.texts import printable


class Parser(argparse.ArgumentParser):
    def __init__(self, about: str | None) -> None:
        super().__init__(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        fail(f"{message}; --help lists the arguments")


@contextmanager
def ends_with_a_sentence() -> Iterator[None]:
    """Block that ends the program with a sentence for UserError, and for a path that cannot be reached."""
    begun()
    try:
        yield
    except UserError as error:
        fail(str(error))
    except OSError as error:
        if (sentence := unreachable(error)) is None:
            raise
        fail(str(sentence))


def fail(sentence: str) -> NoReturn:
    print(f"error: {printable(sentence)}", file=sys.stderr)
    sys.exit(2)
