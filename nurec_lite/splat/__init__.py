# SPDX-License-Identifier: Apache-2.0
"""Gaussians to sensor: project, tile, render."""
