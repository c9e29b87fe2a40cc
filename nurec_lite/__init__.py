# SPDX-License-Identifier: Apache-2.0
"""nurec_lite: driving captures (cameras, spinning lidar, tracks) reconstructed as 3D Gaussians, and how that is made fast."""

__version__ = "0.1.0"
