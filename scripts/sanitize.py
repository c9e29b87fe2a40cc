# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer over small training steps on a GPU: one line a tool, code 1 and the tool's report when it found something.

    python scripts/sanitize.py                  memcheck, racecheck, synccheck, initcheck
    python scripts/sanitize.py memcheck         one of them
    python scripts/sanitize.py racecheck --share 2/4    the second quarter of the steps: four side by side take a quarter of the time
    python scripts/sanitize.py --only fused_project     steps with this in their options or sizes alone

The steps: the bundled street with about 3000 Gaussians, one image and some lidar rays, two steps with relocation for each degree of
the spherical harmonics, at an image size that fills its tiles and at one that does not, with a rolling and a global shutter, with
and without gradients of poses and distances, with and without the options that have kernels of their own, several views in one
launch, and steps of a long drive; then the nearest points of a first scene, and updates by several ranks. Every tensor is an allocation
of its own (PYTORCH_NO_CUDA_MEMORY_CACHING), so that an access past its end is seen. Checked are our kernels; memcheck and initcheck check
CUB's, too, which sort our lists. initcheck must watch torch's kernels as well, for ours read their output; it reports findings in
those alone, but does not count them.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.capture.types import Capture
from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.opt.all.fused_adam import FusedAdam
from nurec_lite.scene.neighbours import MOST, nearest
from nurec_lite.splat.views import camera_view, lidar_view
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.static_inputs import StaticInputs
from nurec_lite.training.step import step
from nurec_lite.training.unseen import every_drive_is_long
from scripts.resources import read_budget, short_name

TOOLS = {  # and the flags of each: kns is a part of a kernel's mangled name
    "memcheck": "--kernel-name kns=5nurec4cuda --kernel-name kns=_ZN3cub --padding 256 --report-api-errors no",
    "racecheck": "--kernel-name kns=5nurec4cuda",
    "synccheck": "--kernel-name kns=5nurec4cuda",
    "initcheck": "",
}
COMMON = "--target-processes application-only --launch-timeout 120 --print-limit 1000 --show-backtrace device"
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/compute-sanitizer*")
SIZE = (
    "device=cuda model.points=2000 model.actor_points=50 model.raised_points=300 model.far_points=200 density.every=1 "
    "density.start=0 density.cap=4000 train.lidar_rays=512 train.steps=2 data.frames=[0,10]"
)
BACKWARD = (
    "split_backward",
    "split_backward,launch_bounds",
    "split_backward,shared_memory",
    "split_backward,launch_bounds,shared_memory",
)
HARMONICS = "fused_interp,fused_adam,fused_colour,fused_harmonics"
WARP_TILES = "warp_cull,tile_cull,balanced_tiles"  # and parts so short that lists have several
TOGETHER = f"fused_interp,collect_once,{WARP_TILES}"  # these put views of a step into one launch
LONG_DRIVE = (
    "fused_adam,fused_colour,fused_activate,fused_harmonics,fused_project,morton_order"  # a second step has no sweep
)
FUSED = "fused_adam,fused_ssim,fused_sky,fused_activate,fused_range"
ALL = "1/1"  # of the steps
MANY_TILES = 3000  # as kernels/raster_tiles/backward_table.h has it
SMALL, SHORT = "data.downscale=5", "opt.balanced_tiles.part=16"
LAUNCHES = (  # of several views each
    (0, f"+opt=[{TOGETHER},batch]"),
    (1, f"model.calibrate=true +opt=[{TOGETHER},batch]"),
    (2, f"+opt=[{TOGETHER},no_sync,short_keys,batch]"),
    (3, f"+opt=[{TOGETHER},no_sync,fused_adam,fused_colour,fused_sky,fused_range,batch]"),
)
OWN = ("", "model.calibrate=true", "model.lidar_opacity=false", "model.calibrate=true model.lidar_opacity=false")
VARIANTS = (  # overrides and cameras (distant: distances have gradients): degree 1 at 192 x 96, the others at 38 x 19 pixels
    ("model.sh_degree=1", "rolling"),
    (f"model.sh_degree=0 {SMALL}", "rolling"),
    (f"model.sh_degree=2 {SMALL} +opt=[fused_interp,collect_once,no_sync,short_keys,{FUSED}]", "global"),  # one pose
    (f"model.sh_degree=1 {SMALL} model.calibrate=true model.bilateral_grid=[3,2,2] +opt=[fused_interp,fused_colour]", "rolling"),
    (f"model.sh_degree=3 {SMALL}", "learned"),  # gradients of all poses, by those of the rays
    *((f"model.sh_degree={degree} {SMALL} +opt=[{HARMONICS}{more}]", "global") for more, degree in product(("", ",amp"), range(4))),
    (f"model.sh_degree=1 data.downscale=4 +opt=[{HARMONICS},amp,batch]", "global"),  # gradients that are written
    *((f"model.sh_degree=0 {SMALL} train.steps=1 +opt=[{options}]", cameras)
      for options, cameras in product(BACKWARD, ("rolling", "global", "learned", "distant"))),
    *((f"model.sh_degree=0 {SMALL} train.steps=1 +opt=[{options}]", cameras)
      for options, cameras in product((BACKWARD[1], BACKWARD[3]), ("rolling, many tiles", "global, many tiles"))),
    *((f"model.sh_degree=0 train.steps=1 +opt=[{WARP_TILES}] {SHORT} {size}", cameras)
      for size, cameras in product(("", SMALL), ("rolling", "global", "learned", "distant"))),
    *((f"model.sh_degree={degree} {SMALL} {SHORT} opt.batch.images=3 opt.batch.sweeps=2 {more}", f"{cameras}, together")
      for (degree, more), cameras in product(LAUNCHES, ("rolling", "global"))),
    *((f"model.sh_degree=1 {SMALL} {SHORT} +opt=[{TOGETHER},{more}fused_project] {own}", "rolling")
      for more, own in product(("", "fused_activate,"), OWN)),
    *((f"model.sh_degree={degree} {SMALL} {SHORT} train.lidar_every=2 +opt=[{TOGETHER},{LONG_DRIVE}] {own}", "rolling, long drive")
      for degree, own in ((0, OWN[0]), (1, OWN[0]), (2, OWN[2]), (3, OWN[1]))),
)  # fmt: skip
OURS = re.compile(r"\bnurec::|(?<!at_cuda_detail::)\bcub::")  # in a demangled name


class SanitizeError(UserError):
    """compute-sanitizer cannot be used here; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """Findings of a tool."""

    errors: int | None  # None: the tool did not come to an end
    elsewhere: int = 0  # in kernels that are not ours


def steps(share: str = ALL, only: str = "") -> None:
    """Runs all checked steps and prints a line each; in its own process."""
    from nurec_lite.cli.command import composed
    from nurec_lite.readers import open_capture

    states: dict[
        tuple[str, ...], TrainState
    ] = {}  # made anew only where more than kernels differs: half of the launches
    for overrides, cameras in shared(those_with(only), share):
        config, begin = composed("train", [*SIZE.split(), *overrides.split()]), time.monotonic()
        device, capture = choose_device(config.device), open_capture(config.data)
        if "global" in cameras:
            capture = replace(capture, cameras=tuple(replace(c, shutter="global") for c in capture.cameras))
        stages = _stages(config, device, cameras)
        same = _same(overrides, cameras)
        if same not in states:
            states[same] = _state(config, capture, device, stages)
        with every_drive_is_long() if "long drive" in cameras else nullcontext():
            _steps(config, stages, states[same])
        print(f"{overrides}, {cameras}: {time.monotonic() - begin:.1f} s", flush=True)
    for state in list(states.values())[:1]:  # a share may have no steps
        _find_neighbours(state)


def _same(overrides: str, cameras: str) -> tuple[str, ...]:
    """Returns a key: variants with the same key go on from one another. Options matter where one changes the type of Adam's moments."""
    return (*(o for o in overrides.split() if "opt" not in o), str("global" in cameras), str(",amp" in overrides))


def _state(config: Any, capture: Capture, device: torch.device, stages: Stages) -> TrainState:
    """The state of a scene that was made on the host: initcheck would report a million findings in torch's topk alone."""
    host = make_state(config, capture, torch.device("cpu"), frames=stages.feed.frames)
    scene = scene_to(host.scene, device)
    generator = torch.Generator(device).manual_seed(config.seed)
    return TrainState(host.plan, config, scene, make_optimizer(scene, config.lr), generator, device)


def _stages(config: Any, device: torch.device, cameras: str) -> Stages:
    """The stages of a variant, counted and with the arguments of its cameras."""
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    if cameras == "learned":
        stages = stages.wrap(render_camera=_with_learned_pose, render_lidar=_with_learned_pose)
    if cameras == "distant":
        stages = stages.wrap(render_camera=_with_distance)
    if "many tiles" in cameras:
        stages = stages.wrap(tile=_with_empty_tiles)
    if config.ops == "native" and "together" not in cameras:  # one launch does without these stages
        stages = stages.wrap(render_camera=_counted, render_lidar=_counted)
    return stages


def _steps(config: Any, stages: Stages, state: TrainState) -> None:
    """A variant's steps, and its other kernels."""
    from nurec_lite.training.loop import spent

    state.step = 0
    while (progress := spent(config.train, state.step, 0)) < 1:
        state.progress = progress
        step(stages, state).mse.item()
        state.step += 1
    if stages.plan is not None:
        _stand(stages, state)
    if isinstance(stages.update.optimize, FusedAdam) and stages.update.optimize.handover is not None:
        _update_by_ranks(stages.update.optimize, state)
    if stages.plan is not None and stages.plan.max_views > 1:
        _look(stages, state)


def _stand(stages: Stages, state: TrainState) -> None:
    """Shots at fixed places, as cuda_graph brings them there: it cannot record where every tensor is an allocation of its own."""
    shots = stages.feed.fetch(stages, state)
    standing = StaticInputs(shots, [len(shot.sweep) + 5 for shot in shots.sweeps])
    multi_tensor_copy(standing.pairs(shots), torch.empty(2, device=state.device), (1.0, 2.0))


def _find_neighbours(state: TrainState) -> None:
    """The points nearest to each Gaussian, as a first scene looks for them."""
    means = state.scene.gaussians.means.detach().double()
    for k in (1, MOST):
        nearest(means, means, k)


def _update_by_ranks(update: FusedAdam, state: TrainState) -> None:
    """The update of harmonics by the views of two ranks, and of three."""
    g = state.scene.gaussians
    for views in (2, 3):
        ones = torch.ones(views, *g.means.shape, device=state.device)
        update.early(state, Rank1ShGrad((g.sh0, g.sh_rest), ones, ones), None)


def _look(stages: Stages, state: TrainState) -> None:
    """Several views at once, with long lists in parts and with whole ones."""
    from nurec_lite.native import inference

    capture, few = state.plan.capture, inference.MAX_SPLIT_TILES
    images = [camera_view(capture, frame, state.device) for frame in capture.images[:2]]
    sweeps = [lidar_view(capture, frame, frame.load(), state.device) for frame in capture.sweeps[:2]]
    for inference.MAX_SPLIT_TILES in (-1, few):
        for _ in range(2):  # the second time with a capacity
            stages.render.render_views(stages, state.scene, [*images, *sweeps])


def those_with(only: str) -> Sequence[tuple[str, str]]:
    """Returns the variants with this text in their overrides."""
    found = tuple(variant for variant in VARIANTS if only in variant[0])
    if not found:
        raise SanitizeError(
            f"--only is '{only}', which none of the steps has; name an option that has kernels of its own"
        )
    return found


def shared(all_: Sequence[Any], share: str) -> Sequence[Any]:
    """Every N-th item from the K-th on, for a share "K/N"."""
    match = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", share)
    if match is None or int(match[1]) > int(match[2]):
        raise SanitizeError(f"--share is '{share}', but must be K/N, such as 1/4, with K from 1 to N")
    return all_[int(match[1]) - 1 :: int(match[2])]


def _counted(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Counts pairs, too, which nothing in a step does."""
    from benchmarks.render.pair_counts import count_pairs

    def render(gaussians: Any, view: Any, pairs: Any, *rest: Any) -> Any:
        count_pairs(gaussians, view, pairs)
        return stage(gaussians, view, pairs, *rest)

    return render


def _with_learned_pose(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Renders as the stage does, and wants the gradient of the sensor's pose at the exposure's start."""

    def render(gaussians: Any, view: Any, *rest: Any) -> Any:
        pose = view.T_world_sensor_start.clone().requires_grad_()
        return stage(gaussians, replace(view, T_world_sensor_start=pose), *rest)

    return render


def _with_distance(stage: Callable[..., Any]) -> Callable[..., Any]:
    """An image with a loss that depends on the distances, too."""

    def render_camera(*given: Any) -> Any:
        out = stage(*given)
        return replace(out, colour=out.colour + 1e-3 * out.distance[..., None])

    return render_camera


def _with_empty_tiles(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Stage with empty tiles added, so many that the camera's kernel is that of a large image."""

    def tile(*given: Any) -> Any:
        return filled_up(stage(*given), MANY_TILES)

    return tile


def filled_up(pairs: Any, tiles: int) -> Any:  # PairList
    """Behind the others come tiles without rays, until there are so many."""
    empty = pairs.rays.new_full((max(0, tiles - len(pairs.rays)), pairs.rays.shape[1]), -1)
    offsets = torch.cat([pairs.offsets, pairs.offsets[-1:].expand(len(empty))])
    return replace(pairs, rays=torch.cat([pairs.rays, empty]), offsets=offsets)


def launches(share: str = ALL, only: str = "") -> None:
    """Prints how often the steps launch each of our kernels, as JSON in the last line."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        steps(share, only)
    print(json.dumps({k.key: k.count for k in profiler.key_averages() if OURS.search(k.key)}))


def launched(share: str = ALL, only: str = "") -> dict[str, int]:
    """Number of launches of each of our kernels, by demangled name; compiles the kernels if necessary."""
    ran = _run([], "launches", share, only)
    if ran.returncode:
        raise SanitizeError(f"the steps do not run here: {(ran.stdout.strip().splitlines() or ['?'])[-1]}")
    found: dict[str, int] = json.loads(ran.stdout.strip().splitlines()[-1])
    if not found:
        raise SanitizeError("torch.profiler saw no kernel of ours; it needs access to the GPU's activity (CUPTI)")
    return found


def _run(before: list[str], what: str, share: str, only: str) -> subprocess.CompletedProcess[str]:
    """This file in a process of its own, after a command."""
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = [*before, sys.executable, __file__, what, share, only]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
    )


def find_sanitizer() -> str:
    folders = [str(folder) for place in PLACES for folder in sorted(Path("/").glob(place[1:]), reverse=True)]
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        raise SanitizeError(
            f"compute-sanitizer is neither on PATH nor in {', '.join(PLACES)}; it comes with the CUDA toolkit"
        )
    return found


def verdict(tool: str, report: str, code: int) -> Verdict:
    """The verdict of the summary line, less initcheck's findings in foreign kernels, whose reports have no frame of ours."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", report)
    if summary is None:
        return Verdict(None)
    single = [part for part in re.split(r"^=+ *$", report, flags=re.MULTILINE) if "Uninitialized" in part]
    elsewhere = sum(OURS.search(part) is None for part in single) if tool == "initcheck" else 0
    errors = int(summary[1] or summary[2]) - elsewhere
    return Verdict(None if code and not errors else errors, elsewhere)


def check(tool: str, sanitizer: str, kernels: dict[str, int], share: str = ALL, only: str = "") -> bool:
    """Runs one tool and prints its line; its report, too, unless all is clean."""
    begin = time.monotonic()
    ran = _run([sanitizer, "--tool", tool, *COMMON.split(), *TOOLS[tool].split()], "steps", share, only)
    seconds, found = time.monotonic() - begin, verdict(tool, ran.stdout, ran.returncode)
    checked = {name: n for name, n in kernels.items() if "nurec::" in name or tool in ("memcheck", "initcheck")}
    errors = "no result" if found.errors is None else f"{found.errors} errors"
    elsewhere = f" ({found.elsewhere} in kernels that are not ours)" if found.elsewhere else ""
    print(
        f"{tool:10} {len(checked)} kernels, {sum(checked.values())} launches: {errors}{elsewhere}, {seconds:.0f} s",
        flush=True,
    )
    if found.errors != 0 or found.elsewhere:
        print("\n".join(ran.stdout.splitlines()[:400]))
    return found.errors == 0


def unchecked(kernels: dict[str, int]) -> list[str]:
    """Kernels of kernels/budget.json that the steps do not launch."""
    names = {short_name(name) for name in kernels}
    return sorted({kernel for file in read_budget().values() for kernel in file} - names)


def main(arguments: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=", ".join(TOOLS))
    parser.add_argument("--share", default=ALL, metavar="K/N", help="the K-th of N shares of the steps (all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="steps with it in their options or sizes (all)")
    args = parser.parse_args(arguments)
    tools = args.tools or list(TOOLS)
    shared(those_with(args.only), args.share)  # says so if it is no share
    if unknown := [tool for tool in tools if tool not in TOOLS]:
        raise SanitizeError(f"'{unknown[0]}' is no tool of compute-sanitizer; take {', '.join(TOOLS)}")
    sanitizer = find_sanitizer()
    choose_device("cuda")  # says so if there is none
    kernels = launched(args.share, args.only)
    if args.share == ALL and not args.only:
        print(f"not launched, so not checked: {', '.join(unchecked(kernels)) or 'none'}", flush=True)
    return 0 if all([check(tool, sanitizer, kernels, args.share, args.only) for tool in tools]) else 1


if __name__ == "__main__":
    if sys.argv[1:2] in (["steps"], ["launches"]):
        {"steps": steps, "launches": launches}[sys.argv[1]](*sys.argv[2:])
    else:
        with ends_with_a_sentence():
            sys.exit(main(sys.argv[1:]))
