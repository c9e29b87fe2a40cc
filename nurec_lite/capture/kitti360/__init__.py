# SPDX-License-Identifier: Apache-2.0
"""Reader of KITTI-360's drives."""
