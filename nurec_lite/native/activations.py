# SPDX-License-Identifier: Apache-2.0
"""From what is stored of Gaussians to values, in one kernel each way (kernels/scene/activate.cu)."""

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians


def activate(g: Gaussians) -> dict[str, Tensor]:
    """As nurec_lite.scene.gaussians.activate."""
    found = torch.ops.nurec_lite.activate(g.quats, g.log_scales, g.opacity_logits, g.lidar_logits)
    quats, scales, opacities, lidar, lidar_opacities = found
    return {
        "means": g.means,
        "quats": quats,
        "scales": scales,
        "opacities": opacities,
        "lidar": lidar,
        "lidar_opacities": lidar_opacities if g.lidar_logits.shape[1] > LIDAR_VALUES else opacities,
    }
