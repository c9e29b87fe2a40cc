# SPDX-License-Identifier: Apache-2.0
"""Regularisers on long drives: they leave the Gaussians alone that no view of a step sees.

A step of a long drive sees a few percent of the Gaussians. The others get a gradient from regularisers alone, and Adam makes of the
smallest gradient a whole step: before its first image comes, a Gaussian has faded, noise moves it about, and the scene falls apart. On a
drive whose images come soon again each Gaussian's moments remember the images, and regularisers act on all of them as in 3DGS-MCMC.
"""

import torch

from nurec_lite.training.state import TrainState

LONG = 400  # steps until each training image has come; KITTI 0009 has 42, a drive of 60 moments and six cameras 288 (benchmarks/LOG.md)


def is_long(state: TrainState) -> bool:
    plan = state.plan
    return len(plan.split.train_images) > LONG * plan.images_a_step


@torch.no_grad()
def keep_unseen(state: TrainState) -> None:
    """Drops gradients of unseen Gaussians, between the backward pass and the update: no view saw one whose mean has no gradient."""
    gaussians = state.scene.gaussians
    if gaussians.means.grad is None or not is_long(state):
        return
    seen = (gaussians.means.grad != 0).any(-1)  # [N]
    for parameter in (gaussians.opacity_logits, gaussians.log_scales, gaussians.lidar_logits):
        if parameter.grad is not None:
            parameter.grad.mul_(seen.view(-1, *(1 for _ in parameter.shape[1:])))
