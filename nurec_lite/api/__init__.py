# SPDX-License-Identifier: Apache-2.0
"""The package as Python programs use it: everything that `nurec_lite` offers by name (docs/python.md)."""
