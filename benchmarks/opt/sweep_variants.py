# SPDX-License-Identifier: Apache-2.0
"""Variants of the split backward kernels: compiled one by one (benchmarks/opt/backward_variant.cu), their registers, and calls of them."""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.render.contenders import perturbed
from benchmarks.render.workload import Workload
from nurec_lite.backends import base_stages
from nurec_lite.base.paths import resource
from nurec_lite.native import stages as native
from nurec_lite.native.build import FLAGS, find_tools, host_flags
from nurec_lite.native.operators.sh_colour import sh_colour
from nurec_lite.native.operators.shared import (
    GaussianArrays,
    Lists,
    Outputs,
    RayArrays,
    gaussian_args,
    has_per_ray_origins,
    packed_view,
    ray_and_list_args,
)
from nurec_lite.splat.render import local_directions
from nurec_lite.splat.views import CameraView
from scripts.resources import Usage, parse

SOURCE = Path(__file__).with_name("backward_variant.cu")
TILE_RAYS = 256
MOST_BLOCKS = 32  # on a multiprocessor
FULL_ROWS = 256  # so many rows are staged with their indices, as without the option shared_memory
REGISTERS, GRANULE = 65536, 256  # of a multiprocessor, and handed to warps by so many
RESERVED = 1024  # bytes of shared memory that a block takes in addition to its own


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of occupancy, by compute capability: the CUDA programming guide's table of technical specifications."""

    warps: int
    blocks: int
    shared: int  # bytes


MULTIPROCESSORS = {
    "80": Multiprocessor(64, 32, 164 << 10),
    "89": Multiprocessor(48, 24, 100 << 10),
    "90": Multiprocessor(64, 32, 228 << 10),
    "100": Multiprocessor(64, 32, 228 << 10),
    "120": Multiprocessor(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class Variant:
    sensor: str  # camera or lidar
    threads: int  # of a block
    min_blocks: int  # that fit on a multiprocessor
    rays: int  # a thread
    rows: int  # staged at a time
    ahead: int  # Gaussians that are looked at together

    @property
    def name(self) -> str:
        return f"{self.sensor} {self.threads}x{self.min_blocks}, {self.rays} rays, {self.rows} rows, {self.ahead} ahead"

    def defines(self, moving: bool) -> list[str]:
        members = int(self.rows >= FULL_ROWS)
        numbers = {"LIDAR": int(self.sensor == "lidar"), "MOVING": int(moving), "MEMBERS": members}
        numbers |= {k.upper(): v for k, v in asdict(self).items() if k != "sensor"}
        return [f"-DSWEEP_{name}={number}" for name, number in numbers.items()]


SHARED = ["-DSWEEP_SHARED"]  # the kernel that serves both sensors


def variants_of(
    sensor: str,
    threads: Sequence[int],
    resident: Sequence[int],  # threads that are to fit on a multiprocessor
    rays: Sequence[int],
    rows: Sequence[int],
    ahead: Sequence[int],
) -> list[Variant]:
    """All that make sense: a tile in whole blocks, as many resident threads as whole blocks have, MOST_BLOCKS or fewer, and rows that are
    looked at in whole groups."""
    found = [
        Variant(sensor, t, r // t, n, staged, together)
        for t, r, n, staged, together in product(threads, resident, rays, rows, ahead)
        if TILE_RAYS % (t * n) == 0 and r % t == 0 and r // t <= MOST_BLOCKS and staged % together == 0
    ]
    return list(dict.fromkeys(found))


# ---- compiled


def compile_variant(
    defines: list[str],
    architectures: Sequence[str],  # one if it is to be called
    target: Path | None = None,  # shared library; None: only to see its resources
) -> dict[str, Usage]:  # of the swept kernel, by architecture
    tools = find_tools(architectures[0])
    assert tools.nvcc is not None
    flags = [*host_flags(tools), *FLAGS["raster_tiles/render_backward_camera.cu"].split(), "--resource-usage"]
    flags += ["-I", str(resource("kernels/raster_tiles"))]
    flags += [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
    out = ["-fatbin", "-o", "/dev/null"] if target is None else ["-shared", "-o", str(target)]
    ran = subprocess.run([tools.nvcc, *flags, *defines, *out, str(SOURCE)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"nvcc does not compile {SOURCE.name} with {' '.join(defines)}:\n{ran.stdout}{ran.stderr}")
    kernels = parse(ran.stdout + ran.stderr)
    return kernels["renderBackward_kernel<false>" if defines == SHARED else "swept_kernel"]


def library_path(folder: Path, name: str) -> Path:
    """The path of a variant's library. It has no commas: the compiler's own tools take them for the end of a path."""
    return folder / (re.sub(r"\W+", "_", name) + ".so")


def compile_all(
    named: dict[str, list[str]],  # defines by the name of the variant
    architectures: Sequence[str],
    folder: Path | None,
    jobs: int,
) -> dict[str, dict[str, Usage]]:
    def one(name: str) -> dict[str, Usage]:
        return compile_variant(named[name], architectures, library_path(folder, name) if folder else None)

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(named, pool.map(one, named), strict=True))


def occupancy(
    usage: Usage,
    threads: int,  # of a block
    architecture: str,
) -> (
    float | None
):  # warps that fit, as a share of those that can be there; None: an architecture that is not in the table
    sm = MULTIPROCESSORS.get(architecture)
    if sm is None:
        return None
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-usage.registers * 32 // GRANULE) * GRANULE) // warps
    blocks = min(sm.blocks, sm.warps // warps, by_registers, sm.shared // (usage.shared + RESERVED))
    return blocks * warps / sm.warps


# ---- called

NAMES = (*GaussianArrays._fields, "features")  # of inputs with a gradient


class Pass(ctypes.Structure):
    """Struct of backward_variant.cu: addresses, sizes, and outputs of the kernels."""

    _fields_ = (
        *((f"address_{name}", ctypes.c_void_p) for name in (*GaussianArrays._fields, "features", *RayArrays._fields)),
        *((f"address_{name}", ctypes.c_void_p) for name in (*Lists._fields, "view", "rows", *Outputs._fields)),
        *((f"address_{name}", ctypes.c_void_p) for name in ("d_out", "d_distance", "d_transmittance", "sums")),
        *((f"address_d_{name}", ctypes.c_void_p) for name in NAMES),
        *(
            (f"number_{name}", ctypes.c_int64)
            for name in ("n", "n_still", "n_features", "n_rays", "n_tiles", "in_tile")
        ),
        ("number_moving", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Problem:
    """One backward pass over a view, as the kernels take it. Tensors live as long as it does."""

    tensors: dict[str, Tensor]  # by their names in Pass
    moving: bool

    @property
    def sums(self) -> Tensor:  # zeros before each pass
        return self.tensors["sums"]

    @property
    def gradients(self) -> dict[str, Tensor]:
        return {name: self.tensors[f"d_{name}"] for name in NAMES}

    def named(self) -> Pass:
        t = self.tensors
        numbers = {"n": len(t["scales"]), "n_still": len(t["still_means"]), "n_features": t["features"].shape[1]}
        numbers |= {"n_rays": len(t["directions"]), "n_tiles": len(t["rays"]), "in_tile": t["rays"].shape[1]}
        numbers["moving"] = int(self.moving)
        addresses = {f"address_{name}": tensor.data_ptr() for name, tensor in t.items()}
        return Pass(**addresses, **{f"number_{name}": value for name, value in numbers.items()})


def problem_of(workload: Workload, sensor: str, device: torch.device, seed: int | None = None) -> Problem:
    """The workload of a sensor with random gradients of the outputs that a training step compares, so not of the distances in an image.
    With a seed, means are `perturbed`."""
    view, stages = workload.views[sensor], base_stages("native", device)
    with torch.no_grad():
        (gaussians,) = stages.render.gather(stages, workload.scene, (view,)).gaussians
        gaussians = gaussians if seed is None else perturbed(gaussians, seed)
        pairs = stages.render.tile(stages.render.project(gaussians, view), view)
        features = gaussians.lidar
        if isinstance(view, CameraView):
            features = sh_colour(gaussians, local_directions(gaussians, view.eye()))
        rays, lists = ray_and_list_args(view.rays(), pairs)
        out = native.blend(gaussians, features, view.rays(), pairs, view)
    given = {**gaussian_args(gaussians)._asdict(), "features": features, **rays._asdict(), **lists._asdict()}
    given |= {"view": packed_view(view)} | dict(zip(Outputs._fields, vars(out).values(), strict=False))
    given = {name: t.detach().contiguous() for name, t in given.items()}
    return packed(given, has_per_ray_origins(view), with_distance=sensor == "lidar")


def packed(
    given: dict[str, Tensor],  # of the operator render: its arguments and outputs
    moving: bool,
    with_distance: bool,  # whether its gradients are not zero
) -> Problem:
    generator, device, n = torch.Generator().manual_seed(5), given["means"].device, len(given["scales"])
    shapes = {name: given[name].shape for name in Outputs._fields}
    d_out = {f"d_{name}": torch.randn(shape, generator=generator).to(device) for name, shape in shapes.items()}
    d_out["d_distance"] *= with_distance
    work = {"rows": torch.empty(n, 20, device=device), "sums": torch.zeros(n, 20, device=device)}
    return Problem(given | d_out | work | {f"d_{name}": torch.zeros_like(given[name]) for name in NAMES}, moving)


class Library:
    """A compiled variant."""

    def __init__(self, path: Path) -> None:
        self._run = ctypes.CDLL(str(path)).run_backward

    def __call__(self, problem: Problem, everything: bool = False) -> None:
        """Queues the kernel alone, or with the kernels before and after it."""
        on_gpu = problem.sums.is_cuda
        stream = torch.cuda.current_stream(problem.sums.device).cuda_stream if on_gpu else 0
        error = self._run(ctypes.byref(problem.named()), ctypes.c_int(everything), ctypes.c_void_p(stream))
        if error:
            raise RuntimeError(f"the kernel does not run: CUDA error {error}")

    def gradients(self, problem: Problem) -> dict[str, Tensor]:
        problem.sums.zero_()
        self(problem, everything=True)
        return {name: value.double().cpu() for name, value in problem.gradients.items()}
