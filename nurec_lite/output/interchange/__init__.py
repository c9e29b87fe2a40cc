# SPDX-License-Identifier: Apache-2.0
"""Scenes as files of other programs: Gaussians as PLY, SPZ and USD, with the tracks and sensors of the drive."""
