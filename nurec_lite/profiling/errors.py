# SPDX-License-Identifier: Apache-2.0
"""Errors of profiling, for users."""

from nurec_lite.base.errors import UserError


class ProfileError(UserError):
    """A profile cannot be taken or read; the message says why, and names the remedy."""
