# SPDX-License-Identifier: Apache-2.0
"""Options that +opt=all adds to those of the post."""
