# SPDX-License-Identifier: Apache-2.0
"""Training steps of gsplat's own recipe, on a capture's images, as its users run them: bench_beside.py compares our steps with them.

gsplat (Ye et al. 2025, version 1.5.3) with 3DGS-MCMC (Kheradmand et al. 2024), by its public functions and its default rates: an image a
step, L1 and SSIM, harmonics of degree 3, one Adam a kind of parameter (torch's, fused), exponential decay of the means' rate, regularised
opacities and scales, relocation every 100 steps and noise in every one. The scene stands still, there is neither a sky nor a lidar.
Where there is a choice it is gsplat's gain: images lie decoded on the device, poses and intrinsics too, no loss is read back, and SSIM is
one kernel each way (ours of `fused_ssim`, in place of the package fused-ssim that its trainer takes). It begins with the Gaussians that
a scene of ours has at one moment, in the middle of its run of 30 000 steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isqrt
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.types import Capture
from nurec_lite.peer.rasterize import intrinsics, mid_exposure
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import log_odds
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import camera_view

RATES = {
    "means": 1.6e-4,
    "scales": 5e-3,
    "quats": 1e-3,
    "opacities": 5e-2,
    "sh0": 2.5e-3,
    "shN": 2.5e-3 / 20,
}  # gsplat's
MEANS_DECAY, STEPS = 0.01, 30_000  # factor of the means' rate over a run, and its steps
SSIM, OPACITY, SCALE = 0.2, 0.01, 0.01  # weights of its losses
ImageLoss = Callable[[Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class Shot:
    """An image and where it was taken, on the device."""

    image: Tensor  # [H, W, 3] uint8
    viewmat: Tensor  # [1, 4, 4] camera from world, in the middle of the exposure
    K: Tensor  # [1, 3, 3]


@torch.no_grad()
def parameters_of(scene: Scene, time: float) -> dict[str, Parameter]:
    """Parameters by gsplat's names, before its activations, with actors at their places at that time."""
    g = collect_gaussian_parameters(scene, time)
    values = {"means": g.means, "scales": g.scales.log(), "quats": g.quats, "opacities": log_odds(g.opacities)}
    values |= {"sh0": g.sh[:, :1], "shN": g.sh[:, 1:]}
    return {name: Parameter(value.contiguous().clone()) for name, value in values.items()}


def optimizers_of(params: dict[str, Parameter]) -> dict[str, torch.optim.Optimizer]:
    """One a kind of parameter, as its strategies ask for."""
    return {
        name: torch.optim.Adam([{"params": [param], "lr": RATES[name], "name": name}], eps=1e-15, fused=True)
        for name, param in params.items()
    }


def shots_of(capture: Capture, device: torch.device) -> list[Shot]:
    """All training images."""
    assert capture.split is not None
    frames = [capture.images[i] for i in capture.split.train_images]
    found = []
    for frame, image in zip(frames, in_threads(lambda frame: frame.load(), frames), strict=True):
        view = camera_view(capture, frame, device)
        pose = mid_exposure(view)
        pose[:3, 3] -= pose[:3, :3] @ view.centre()  # it looks from the world's axes about that centre
        found.append(Shot(image.to(device), pose[None], intrinsics(view.camera, device).to(pose)[None]))
    return found


@dataclass
class GsplatLoop:
    """Called, it makes a step."""

    gsplat: ModuleType
    params: dict[str, Parameter]
    shots: list[Shot]
    image_loss: ImageLoss
    cap: int  # Gaussians at most
    step: int = STEPS // 2
    optimizers: dict[str, torch.optim.Optimizer] = field(init=False)
    strategy: Any = field(init=False)
    memory: dict[str, Any] = field(init=False)  # the strategy's

    def __post_init__(self) -> None:
        self.optimizers = optimizers_of(self.params)
        self.strategy = self.gsplat.MCMCStrategy(cap_max=self.cap)
        self.strategy.check_sanity(self.params, self.optimizers)
        self.memory = self.strategy.initialize_state()

    def __call__(self) -> None:
        shot = self.shots[int(torch.randint(len(self.shots), ()))]
        drawn, info = self.drawn(shot)
        self.loss(drawn, shot.image / 255).backward()
        rate = self.means_rate()
        self.optimizers["means"].param_groups[0]["lr"] = rate
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            self.strategy.step_post_backward(self.params, self.optimizers, self.memory, self.step, info, lr=rate)
        self.step += 1

    def drawn(self, shot: Shot) -> tuple[Tensor, dict[str, Any]]:  # [H, W, 3], the data of its strategies
        p, (height, width, _) = self.params, shot.image.shape
        harmonics = torch.cat([p["sh0"], p["shN"]], dim=1)
        image, _, info = self.gsplat.rasterization(
            p["means"], p["quats"], p["scales"].exp(), p["opacities"].sigmoid(), harmonics, shot.viewmat, shot.K,
            width, height, sh_degree=isqrt(harmonics.shape[1]) - 1, packed=False,
        )  # fmt: skip
        return image[0], info

    def loss(self, drawn: Tensor, target: Tensor) -> Tensor:
        opacity, scale = self.params["opacities"].sigmoid().mean(), self.params["scales"].exp().mean()
        return self.image_loss(drawn, target, SSIM) + OPACITY * opacity + SCALE * scale

    def means_rate(self) -> float:
        """Learning rate of means for a scene one metre in size, as gsplat's are after normalisation."""
        return float(RATES["means"] * MEANS_DECAY ** (self.step / STEPS))
