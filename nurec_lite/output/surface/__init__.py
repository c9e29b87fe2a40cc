# SPDX-License-Identifier: Apache-2.0
"""Surfaces of a scene as triangles: the ground, and all that stands still, fused from rendered depth."""
