# SPDX-License-Identifier: Apache-2.0
"""Errors that the user can mend."""

import errno
import os
from pathlib import Path

from nurec_lite.base.texts import printable

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENOMEM)  # errors that may pass


class UserError(ValueError):
    """One sentence that names the file or the key and the remedy; a command prints it and ends with code 2."""

    def __str__(self) -> str:
        """One line, also where a name within holds a line break."""
        return printable(super().__str__())


class ConfigError(UserError):
    """The configuration cannot be used; the message names the key and the remedy."""


class OptionError(UserError):
    """An option cannot be applied; the message names it and says why."""


class StoppedError(UserError):
    """The user stopped the run; the message names the saved files."""


class FolderError(UserError):
    """The folder is not free for the new files; the message names the reason and the remedy."""


class OutputError(UserError):
    """A result cannot be written; the message names the file and the remedy."""

    @property
    def passing(self) -> bool:
        """Whether it may be over after a while: a full disk, say."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in _PASSING


def unreachable(error: OSError) -> ConfigError | None:
    """The sentence for a path that the system does not let us reach; None for another error."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return ConfigError(f"{error.filename} cannot be reached ({error.strerror}); change its rights, or name another")
    if error.errno != errno.ENAMETOOLONG:
        return None
    return ConfigError(
        f"{error.filename}: a name in this path is longer than the file system takes; choose a shorter one"
    )


def unwritable(path: Path, cause: OSError) -> OutputError:
    kept = "the earlier files are kept" if os.path.lexists(path) else "no file is left there"
    return OutputError(
        f"{path} cannot be written ({cause.strerror or cause}); free some space or choose another place ({kept})"
    )
