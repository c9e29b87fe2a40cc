# SPDX-License-Identifier: Apache-2.0
"""fused_colour: from where a Gaussian stands to the colour that the camera sees of it, in one kernel; its gradients are another one.

Idea: the plain way writes a direction for each of a million Gaussians (subtract the eye, divide by the length, turn into the axes of the
actor, put background and actors together) before one kernel evaluates the harmonics, and walks all of it back for the gradient, with a
rotation copied for every Gaussian of an actor and added up again by atomics. Here a thread finds the direction on its way to the colour,
and again on its way back; lanes of a warp with Gaussians of one actor first add up the gradient of its rotation.
Source: 3DGS (Kerbl et al. 2023) evaluates harmonics where it projects; formulas in kernels/math/view_direction.cuh and kernels/math/sh.cuh.
Gain, code before and after, limits: docs/options/fused_colour.md.
Limits: single precision. The eye gets no gradient (that of poses comes from the Gaussians', by pose_gradient); where it asks for one, the
plain way goes on. Gradients of rotations are added up in an order of their own each time, on CUDA. Needs fused_interp, which keeps
Gaussians of actors together. Class exact: the same function, up to rounding.
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ("fused_interp",)


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages)


def apply(stages: Stages) -> Stages:
    return stages.planned("fused_colour", fused_colour=True)
