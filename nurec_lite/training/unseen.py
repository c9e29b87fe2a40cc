# SPDX-License-Identifier: Apache-2.0
"""Long drives: a step leaves the Gaussians alone that none of its views sees.

A step of a long drive sees a few percent of the Gaussians. Two things change the others before their next image comes:

- Regularisers alone give them a gradient, and Adam makes of the smallest gradient a whole step. They fade, noise moves them about, and the
  scene falls apart. So regularisers give them none.
- Adam's momentum moves them on for some steps after each view, and the second moments forget the view before its next one. So, where images
  come again later than these moments remember, the update is sparse: a value without a gradient stays, and so do its moments.

Adam corrects its moments, which begin at zero, by the number of all steps. A Gaussian that has been seen in a few of them has moments of
a few gradients, and its updates are too large: up to 6.5 times with a second beta of 0.999, up to 3.0 times with 0.995. A sparse update
takes the latter. A simulated drive of 30 s gains 0.4 dB in 20 s of training, and 1.1 dB in 2,400 steps of two images.

With fused_project a sparse step passes whole blocks of unseen Gaussians by. Noise then leaves these alone, too; validation frames are as
good (benchmarks/LOG.md).

The sparse update gains 0.5 dB on a simulated drive of 1,440 images. With 420 images it gains nothing, and the lidar's error is larger by a
quarter (benchmarks/LOG.md). On a drive whose images come soon again both act on all Gaussians, as in 3DGS-MCMC.
Source: sparse Adam of Taming 3DGS (Mallick et al. 2024) and of gsplat; there a Gaussian outside of the view stays.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.state import TrainState

LONG = 400  # steps until each training image has come; KITTI 0009 has 42, a drive of 60 moments and six cameras 288 (benchmarks/LOG.md)
REMEMBERED = (
    1000  # images, by Adam's second moments: 1 / (1 - 0.999), also where a step has several (`optim.set_memory`)
)
SPARSE_SECOND = 0.995  # second beta of a sparse update: it remembers 200 sights


def is_long(state: TrainState) -> bool:
    plan = state.plan
    return len(plan.split.train_images) > LONG * plan.images_a_step


@torch.no_grad()
def keep_unseen(state: TrainState) -> None:
    """Drops gradients of unseen Gaussians, between the backward pass and the update: no view saw one whose mean has no gradient."""
    d_means = state.scene.gaussians.means.grad
    if d_means is None or not is_long(state):
        return
    seen = (d_means != 0).any(-1)  # [N]
    for gradient in regularised(state.scene.gaussians):
        gradient.mul_(seen.view(-1, *(1 for _ in gradient.shape[1:])))


def regularised(gaussians: Gaussians) -> list[Tensor]:
    """Gradients of the parameters that regularisers move."""
    parameters = gaussians.opacity_logits, gaussians.log_scales, gaussians.lidar_logits
    return [p.grad for p in parameters if p.grad is not None]


def sparse_parameters(state: TrainState) -> tuple[str, ...]:
    """Names of the parameters with a sparse update."""
    forgotten = len(state.plan.split.train_images) > REMEMBERED
    return Gaussians.trained() if forgotten and is_long(state) else ()


def betas(state: TrainState) -> tuple[float, float]:
    """Adam's betas of a step with one image."""
    first, second = state.optimizer.defaults["betas"]
    return first, (SPARSE_SECOND if sparse_parameters(state) else second)


@contextmanager
def every_drive_is_long() -> Iterator[None]:
    """Block for checks and benchmarks: steps are those of a drive of many images, with a sparse update."""
    global LONG, REMEMBERED
    before = LONG, REMEMBERED
    LONG = REMEMBERED = 0
    try:
        yield
    finally:
        LONG, REMEMBERED = before


@contextmanager
def sparse(
    optimizer: torch.optim.Adam,  # one parameter a group
    names: Sequence[str],  # of groups
) -> Iterator[None]:
    """Block with an update of torch, which is dense: values without a gradient are as before after it, and so are their moments."""
    parameters = [group["params"][0] for group in optimizer.param_groups if group["name"] in names]
    changing = [(p, p.grad == 0) for p in parameters if p.grad is not None]
    before = [(p.detach().clone(), {k: t.clone() for k, t in optimizer.state[p].items()}) for p, _ in changing]
    yield
    with torch.no_grad():
        for (p, still), (value, moments) in zip(changing, before, strict=True):
            p.copy_(torch.where(still, value, p))
            for name in moments.keys() - {"step"}:
                optimizer.state[p][name].copy_(torch.where(still, moments[name], optimizer.state[p][name]))
