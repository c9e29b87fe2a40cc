# SPDX-License-Identifier: Apache-2.0
"""Contenders of benchmarks/render/bench_render.py: our stages with any options. Each renders one view again and again,
range by range.

A contender's ranges are `project`, `tile`, `blend` (forward) and `step/backward/render` (backward), as a trainer calls them that waits for
nothing. Before them the GPU gets copies to do, so that the host queues ahead and the ranges hold the GPU's time alone.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.render.pair_counts import WARP, PairCounts, count_pairs
from benchmarks.render.workload import Workload
from benchmarks.step.bench_step import Mark, mark, milliseconds
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import known_options, parameters_of, unknown_option
from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.capacity import rounded_up
from nurec_lite.native.plan import UNCUT
from nurec_lite.native.warps import balanced_entries, warps_of
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.stages import Stages

FORWARD, BACK = "blend", f"{BACKWARD}/render"
PHASES = {"project": "project", "tile": "tile", FORWARD: "forward", BACK: "backward"}  # range -> its name in reports
COPIES = 12  # of half a GiB: with 4 a slow host was not through with an image's range (benchmarks/LOG.md, 2026-11-26)
SLACK = 1.1  # capacity of lists relative to their need; a run with views that differ takes more (conf/opt/no_sync.yaml)
TOLERANCE = 1e-3  # of `relative`, unless rounding does more
ROOM, DRAWS = 2, 3  # ROOM times the effect of rounding, the largest of so many draws of `perturbed`


def stages_with(
    options: str,  # names, with commas between them
    device: torch.device,
) -> Stages:
    names = [name.strip() for name in options.split(",") if name.strip()]
    for name in names:
        if name not in known_options():
            raise unknown_option(name)
    return build_stages({name: parameters_of(name) for name in names}, base_stages("native", device))


class Contender(Protocol):
    def sample(self, fill: Callable[[], None]) -> None:
        """Every range once."""

    def counts(self) -> PairCounts: ...


class Recorder:
    """Recorder of ranges (`nurec_lite.base.ranges.switch`): CUDA events on a GPU, the host's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._taken: list[tuple[str, Mark, Mark]] = []

    def begin(self, path: str) -> Mark:
        return mark(self._device)

    def end(self, path: str, begun: Mark) -> None:
        self._taken.append((path, begun, mark(self._device)))

    def read(self) -> dict[str, float]:  # milliseconds by phase, since the last call; waits for the device
        found = {PHASES[path]: milliseconds(begin, end) for path, begin, end in self._taken if path in PHASES}
        self._taken.clear()
        return found


class Fill:
    """Copies on a GPU: they empty the caches, and while they run the host gets ahead. Nothing on a CPU."""

    def __init__(self, device: torch.device, mib: int = 512) -> None:
        self._memory = torch.zeros(2, mib << 18, device=device) if device.type == "cuda" else None  # floats

    def __call__(self) -> None:
        for _ in range(COPIES if self._memory is not None else 0):
            assert self._memory is not None
            self._memory[1].copy_(self._memory[0])


class Own:
    """Our stages on one view of a workload. Renders have the gradients that a loss would have: random ones, of an image
    for its colour, of a sweep for range, intensity and ray drop."""

    def __init__(self, stages: Stages, workload: Workload, sensor: str, seed: int | None = None) -> None:
        """Gathers the Gaussians that the view sees; with a seed their means are `perturbed`."""
        view = workload.views[sensor]
        self.view = (
            stages.feed.group_rays(view) if isinstance(view, LidarView) else view
        )  # as a sweep that stays on the device
        self.stages, self._sky = stages, workload.scene.sky.detach()
        with torch.no_grad():
            (gaussians,) = stages.render.gather(stages, workload.scene, (self.view,)).gaussians
        self.gaussians = as_leaves(gaussians if seed is None else perturbed(gaussians, seed))
        self._upstream: list[Tensor] | None = None
        self._room: int | None = None  # entries, as a step that waits for nothing has it (no_sync)

    def sample(self, fill: Callable[[], None]) -> None:
        if self._room is None:
            self._room = rounded_up(int(SLACK * len(self.pairs().gaussians)))
        fill()
        with torch.no_grad():
            with span("project"):
                projection = self.stages.render.project(self.gaussians, self.view, self._room)
            with span("tile"):
                pairs = self.stages.render.tile(projection, self.view, self._room)
        fill()
        outputs = self.render(pairs)
        fill()
        self.gradients(outputs)

    @torch.no_grad()
    def pairs(self) -> PairList:
        return self.stages.render.tile(self.stages.render.project(self.gaussians, self.view), self.view)

    def render(self, pairs: PairList) -> list[Tensor]:
        """Outputs that have gradients in training."""
        return outputs_of(self.stages, self.gaussians, self.view, pairs, self._sky)

    def gradients(self, outputs: list[Tensor]) -> dict[str, Tensor | None]:
        """Gradients by the names of the Gaussians' tensors; None where nothing depends on one."""
        if self._upstream is None:
            self._upstream = [upstream_of(output) for output in outputs]
        return gradients_of(self.gaussians, outputs, self._upstream)

    def counts(self) -> PairCounts:
        pairs = self.pairs()
        return count_pairs(self.gaussians, self.view, pairs, self._part(pairs), _warps(pairs.rays))

    def _part(self, pairs: PairList) -> int:
        """The largest number of entries of a segment, with lists of the capacity that `sample` gives them."""
        plan, entries = self.stages.plan, self._room or len(pairs.gaussians)
        most = UNCUT if plan is None else plan.segment_entries
        return UNCUT if most == UNCUT else balanced_entries(entries, most, pairs.rays.shape[1], pairs.rays.device)

    @torch.no_grad()
    def image(self) -> Tensor:  # [H, W, 3] before a black sky, for comparison with other renderers
        assert isinstance(self.view, CameraView)
        black = torch.full_like(self._sky, -100.0)  # logits
        return self.stages.render.render_camera(self.gaussians, self.view, self.pairs(), black).colour


def _warps(
    rays: Tensor,  # of each list
) -> int | None:
    """Those that take an image's segments one after another (kernels/raster_warps/blend)."""
    return warps_of(rays.device) if rays.device.type == "cuda" and rays.shape[1] == WARP else None


def outputs_of(
    stages: Stages,
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits, of a camera's background
) -> list[Tensor]:  # an image's colour; a sweep's range, intensity and ray drop
    if isinstance(view, CameraView):
        return [stages.render.render_camera(gaussians, view, pairs, sky).colour]
    returns = stages.render.render_lidar(gaussians, view, pairs)
    return [returns.distance, *returns.values()]


def gradients_of(
    gaussians: AnyGaussians,  # whose tensors are leaves
    outputs: list[Tensor],
    upstream: list[Tensor],  # gradients of the outputs
) -> dict[str, Tensor | None]:
    """Gradients by the names of the Gaussians' tensors; None where nothing depends on one."""
    leaves = leaves_of(gaussians)
    found = torch.autograd.grad(outputs, list(leaves.values()), upstream, allow_unused=True)
    return dict(zip(leaves, found, strict=True))


def perturbed(gaussians: AnyGaussians, seed: int) -> AnyGaussians:
    """Every coordinate of a mean goes to the next float32 above or below it. The change of results is the limit of their accuracy:
    rounding within a kernel changes them as much."""
    generator, changed = torch.Generator().manual_seed(seed), {}  # type: torch.Generator, dict[str, Any]
    for name, tensor in leaves_of(gaussians).items():
        if name not in ("still_means", "means"):
            continue
        means = tensor.detach()
        up = torch.rand(means.shape, generator=generator).to(means.device) < 0.5
        changed[name] = torch.nextafter(means, torch.where(up, torch.inf, -torch.inf).to(means))
    return replace(gaussians, **changed)


def as_leaves(gaussians: AnyGaussians) -> AnyGaussians:
    changed: dict[str, Any] = {name: t.detach().clone().requires_grad_() for name, t in leaves_of(gaussians).items()}
    return replace(gaussians, **changed)


def leaves_of(gaussians: AnyGaussians) -> dict[str, Tensor]:
    """All numbers; not the nodes that they are counted by."""
    named = {f.name: getattr(gaussians, f.name) for f in fields(gaussians)}
    return {name: value for name, value in named.items() if value.is_floating_point()}


def upstream_of(output: Tensor) -> Tensor:
    """Gradients of a loss, the same for outputs of the same shape on every device and in every precision."""
    made = torch.randn(output.shape, generator=torch.Generator().manual_seed(output.numel()))
    return (made / output.numel()).to(output)


def difference(a: Own, b: Own) -> float:
    """The largest of outputs and of those gradients that both have: norm of the difference over the norm. (Single values differ more:
    a response near a threshold may fall either way.)"""
    worst = 0.0
    for own, other in zip(_results(a), _results(b), strict=True):
        for name in own.keys() & other.keys():
            worst = max(worst, relative(own[name], other[name]))
    return worst


def relative(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm; the norm itself if the expected value is 0."""
    off, scale = float((found - expected).double().norm()), float(expected.double().norm())
    return off / scale if scale else off


def limit(tolerance: float, rounding: float) -> float:
    """Up to where two results count as equal."""
    return max(tolerance, ROOM * rounding)


def _results(own: Own) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    outputs = own.render(own.pairs())
    gradients = {k: v for k, v in own.gradients(outputs).items() if v is not None and v.shape[0] == len(own.gaussians)}
    return {str(k): output.detach() for k, output in enumerate(outputs)}, gradients
