# SPDX-License-Identifier: Apache-2.0
"""Reader of COLMAP's reconstructions: cameras without a lidar."""
