# SPDX-License-Identifier: Apache-2.0
"""Masks of cameras: pictures of pixels that show no scene, and which of them a run uses."""
