# SPDX-License-Identifier: Apache-2.0
"""Cost of the way from the ray gradients of an image and of a sweep to the gradients of all stored parameters: each
view by itself and added up by autograd (plain), and with the option fused_project.

    python benchmarks/opt/bench_fused_project.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_fused_project.py --sizes 1000000x3 --seen 44,5

A size is Gaussians x percent of them that belong to an actor; --seen: percent of them that the image and the sweep see. Of these a few
hundred are in the list of the one warp tile that each view has, so that rays take next to no time and nearly all rows are zeros; the
work for a Gaussian does not depend on its numbers. Colours and regularisers ask for gradients as in a step. First the gradients of the
two ways are compared, to 1e-4 of the largest; versions that disagree are not timed. Then forward passes, and these with the backward
passes, take turns, on a GPU each as a graph, so that the host's time does not count: backward passes take the difference. Bytes are the
least that must move.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import kernel_times
from benchmarks.opt.bench_fused_colour import size_of, sized
from benchmarks.opt.kernel_times import Call, Report
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.native import backward_epilogue, ops, warps
from nurec_lite.native import stages as native
from nurec_lite.native.deferred_backward import with_grad_slot
from nurec_lite.native.operators.move_actors import ActorArrays
from nurec_lite.native.operators.rays import rays
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView

VERSIONS = ("plain", "fused")
SIZES, SEEN = ("1000000x3",), ("44,50", "44,20", "20,5")
TOLERANCE = 1e-4
LISTED = 256  # Gaussians in the list of a warp tile
PLAN = replace(CUDA_PLAN, warp_tiles=True, tight_lists=True, deferred_backward=True)
View = CameraView | LidarView
Problem = tuple[dict[str, Tensor], Any]  # stored parameters, and the arguments made of them


def views_of(device: torch.device) -> tuple[CameraView, LidarView]:
    """Views of eight by four pixels, and of sixteen rays, both with 0.1 s from first to last."""
    T = torch.eye(4, device=device)
    camera = Camera("image", warps.WIDTH, warps.HEIGHT, 8.0, 8.0, 4.0, 2.0, torch.eye(4))
    lidar = Lidar("sweep", torch.eye(4), torch.linspace(-0.1, 0.1, 16))
    directions = F.normalize(torch.stack([0.1 * torch.rand(16), 0.1 * torch.rand(16), torch.ones(16)], dim=1), dim=1)
    rays = directions.to(device), torch.linspace(0, 1, 16, device=device)
    made = CameraView(T, T, 0.0, 0.1, camera), LidarView(T, T, 0.0, 0.1, lidar, *rays)
    return tuple(replace(view, row=view_row(view).to(device)) for view in made)  # type: ignore[return-value]


def stored_for(n: int, device: torch.device) -> dict[str, Tensor]:
    """Stored values of Gaussians in front of both sensors, by the names of backward_epilogue.Values."""
    seed = torch.Generator().manual_seed(0)
    made = {
        "means": torch.randn(n, 3, generator=seed) + torch.tensor([0.0, 0.0, 8.0]), "quats": torch.randn(n, 4, generator=seed),
        "scales": 0.3 * torch.randn(n, 3, generator=seed) - 1, "opacities": torch.randn(n, generator=seed),
        "lidar": torch.randn(n, 3, generator=seed),
    }  # fmt: skip
    return {name: t.to(device).requires_grad_() for name, t in made.items()}


def listed(means: Tensor, share: int, rays: int, seed: int) -> PairList:
    """A warp tile's list of visible Gaussians, nearest first."""
    visible = torch.rand(len(means), generator=torch.Generator().manual_seed(seed)) < share / 100
    near = torch.argsort(means.detach()[:, 2].cpu(), stable=True)
    some = near[visible[near]][:LISTED]
    table, offsets = torch.arange(rays)[None], torch.tensor([0, len(some)])
    table, offsets, some, seen = (t.to(means.device) for t in (table, offsets, some, visible.byte()))
    return PairList(table, offsets, some.int(), visible=seen)


def tracks_for(moving: int, device: torch.device) -> tuple[Tensor, ...]:
    """One static actor for all moving Gaussians: starts and the later fields of ActorArrays."""
    counts = torch.tensor([0, moving], device=device), torch.tensor([0, 2], device=device)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device)
    q = torch.tensor([[1.0, 0, 0, 0]], device=device).repeat(2, 1)
    return *counts, times, torch.zeros(2, 3, device=device), q, times.clone()


def gathered(
    version: str, stored: dict[str, Tensor], views: tuple[View, ...], still: int, tracks: tuple[Tensor, ...]
) -> tuple[Any, ...]:
    """The scene of all views, and the Gaussians of each, with a grad slot if gradients are deferred."""
    n, values = len(stored["means"]), backward_epilogue.Values(**stored, lidar_opacities=None)
    if version == "fused":
        scene = backward_epilogue.deferred_scene(views, values, True, still, tracks)
        shared, moved, grad_slots = scene
    else:
        unit, scales, opacities, lidar, own = torch.ops.nurec_lite.activate(
            values.quats, values.scales, values.opacities, values.lidar
        )
        (means, places), (quats, turns) = (t.split([still, n - still]) for t in (values.means, unit))
        arrays = torch.ops.nurec_lite.move_actors(ActorArrays(places, turns, *tracks))
        moved = tuple(backward_epilogue.Moved(*values) for values in zip(*(t.unbind(0) for t in arrays), strict=True))
        shared = backward_epilogue.Shared(means, quats, scales, opacities, own, lidar)
    seen = [parted(shared, own, isinstance(view, LidarView)) for own, view in zip(moved, views, strict=True)]
    return shared, [
        with_grad_slot(g, slot) for g, slot in zip(seen, grad_slots, strict=True)
    ] if version == "fused" else seen


def parted(shared: backward_epilogue.Shared, moved: backward_epilogue.Moved, by_lidar: bool) -> SplitGaussians:
    """Gaussians as from fused_interp: opacities of moving ones depend on the presence of their track."""
    opacities, still = shared.lidar_opacities if by_lidar else shared.opacities, len(shared.still_means)
    assert opacities is not None
    stand, moving = opacities.split([still, len(opacities) - still])
    none = opacities.new_empty(0)
    return SplitGaussians(
        shared.still_means, shared.still_quats, *moved, none.long(), shared.scales,
        torch.cat([stand, moving * torch.ones_like(moving)]), none, none, shared.lidar,
    )  # fmt: skip


def problem_of(size: str, seen: str, device: torch.device) -> Problem:
    """The stored parameters, and for each version the forward pass and the given gradients of its outputs."""
    (n, moving), shares = size_of(size), [int(share) for share in seen.split(",")]
    stored, views = stored_for(n, device), views_of(device)
    colours = torch.rand(n, 3, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
    tracks, along = tracks_for(moving, device), [rays(view) for view in views]
    lanes = warps.WARP, warps.WARP // warps.LISTS
    lists = [listed(stored["means"], shares[k], lanes[k], k) for k in range(len(views))]

    def forward(version: str) -> list[Tensor]:
        shared, gaussians = gathered(version, stored, views, n - moving, tracks)
        outputs = [shared.still_means, shared.scales, shared.opacities, shared.lidar_opacities]
        for k, (g, view) in enumerate(zip(gaussians, views, strict=True)):
            found = native.blend(g, shared.lidar if k else colours, along[k], lists[k], view, PLAN)
            outputs += [found.features, found.transmittance, *([found.distance] if k else [])]
        return outputs

    given = [given_for(k, t) for k, t in enumerate(forward("plain"))]
    return {**stored, "colours": colours}, (forward, given)


def given_for(k: int, output: Tensor) -> Tensor:
    """The given gradient: of means through colours; of regularisers, one number for all; of the outputs of rays."""
    if 1 <= k <= 3:
        return torch.full((1,), 1e-3, device=output.device).expand_as(output)
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(k)).to(output.device)


def backward(version: str, leaves: dict[str, Tensor], made: Any) -> list[Tensor]:
    forward, given = made
    return list(torch.autograd.grad(forward(version), list(leaves.values()), given))


def error_of(version: str, leaves: dict[str, Tensor], made: Any) -> float:
    """Largest error, as a share of the largest number of each output."""
    truth = [t.double() for t in backward("plain", leaves, made)]
    return kernel_times.worst_error(backward(version, leaves, made), truth)


def calls_of(version: str, leaves: dict[str, Tensor], made: Any) -> dict[str, Call]:
    return {"forward": lambda: made[0](version), "with gradients": lambda: backward(version, leaves, made)}


def least_bytes(size: str, what: str) -> int:
    """Rows of visible Gaussians, zeroed and read; of all Gaussians values and gradients of stored parameters and of colours."""
    name, seen = size.split(" seen ")
    n, _ = size_of(name)
    rows = sum(int(share) * n // 100 for share in seen.split(","))
    return 2 * 64 * rows + n * 4 * (3 + 4 + 3 + 4 + 2 + 3 + 3 + 4 + 3 + 4 + 3)


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    cases = {f"{size} seen {seen}": (size, seen) for size in args.sizes for seen in args.seen}
    problems = {name: problem_of(size, seen, device) for name, (size, seen) in cases.items()}
    return kernel_times.compared(VERSIONS, problems, error_of, calls_of, least_bytes, TOLERANCE, args, device)


def shares(text: str) -> str:
    found = text.split(",")
    if len(found) != 2 or not all(part.isdigit() and int(part) <= 100 for part in found):
        raise argparse.ArgumentTypeError(f"'{text}' is no pair of percents such as 44,20")
    return text


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--sizes", nargs="+", type=sized, default=list(SIZES), metavar="NxPERCENT", help="(%(default)s)")
    p.add_argument("--seen", nargs="+", type=shares, default=list(SEEN), metavar="IMAGE,SWEEP", help="(%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_fused_project.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
