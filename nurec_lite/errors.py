# SPDX-License-Identifier: Apache-2.0
"""What the user can mend."""


class UserError(ValueError):
    """One sentence that names the file or the key and the remedy; a verb prints it and ends with code 2."""
