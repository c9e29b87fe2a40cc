# SPDX-License-Identifier: Apache-2.0
"""Several runs in one table and on one page."""
