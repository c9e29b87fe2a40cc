# SPDX-License-Identifier: Apache-2.0
"""report.html: one self-contained page about a run."""
