# SPDX-License-Identifier: Apache-2.0
"""A drive on disk becomes a `Capture`."""
