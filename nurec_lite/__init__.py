# SPDX-License-Identifier: Apache-2.0
"""nurec_lite: driving captures (cameras, spinning lidar, tracks) reconstructed as 3D Gaussians, and how that is made fast."""

import sys

from nurec_lite.base.announce import announce
from nurec_lite.base.beginning import end_quietly

__version__ = "0.1.0"

if sys.argv[:1] == ["-m"]:  # Python looks for the module that `python -m nurec_lite...` names
    end_quietly()
    announce(sys.orig_argv)
