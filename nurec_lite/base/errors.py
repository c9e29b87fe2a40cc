# SPDX-License-Identifier: Apache-2.0
"""What the user can mend."""


class UserError(ValueError):
    """One sentence that names the file or the key and the remedy; a verb prints it and ends with code 2."""


class ConfigError(UserError):
    """The configuration cannot be used; the message names the key and the remedy."""


class OptionError(UserError):
    """An option cannot be applied; the message names it and says why."""


class StoppedError(UserError):
    """The user stopped the run; the message says what was saved."""
