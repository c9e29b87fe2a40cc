# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nurec_lite.base.errors import UserError


class OutputError(UserError):
    """A result cannot be written; the message names the file and the remedy."""


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that is written under a temporary name beside `path`, flushed to the disk and renamed when the block ends well.

    Whatever happens before leaves what was at `path`, and nothing else. OutputError if the disk is full, a folder read-only, ...
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        raise _explained(path, error) from error
    finally:
        _remove(temporary)


def write_text(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text.encode())


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except OSError:  # the folder was never there
        return


def _explained(path: Path, error: OSError | RuntimeError) -> Exception:
    """torch.save wraps what the file system says into a RuntimeError; any other RuntimeError stays what it is."""
    cause = error if isinstance(error, OSError) else error.__context__
    if not isinstance(cause, OSError):
        return error
    kept = "what was there before is kept" if path.exists() else "nothing was left there"
    return OutputError(
        f"{path} cannot be written ({cause.strerror or cause}); free some space or choose another place ({kept})"
    )
