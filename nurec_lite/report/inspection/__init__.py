# SPDX-License-Identifier: Apache-2.0
"""inspect.html: one self-contained page about a capture, before anything is trained."""
