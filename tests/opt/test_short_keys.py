# SPDX-License-Identifier: Apache-2.0
"""The option `short_keys`: a field of the plan, and the order that it makes. The keys themselves: tests/native/test_math_depth.py; views of
one launch: tests/native/test_batched_views.py."""

from dataclasses import replace

import pytest
import torch
from launch_steps import WITHOUT_WAITING, assert_learned_alike, learned, stages_with, state_for
from omegaconf import OmegaConf
from parity import DEVICES, cast_view, drivers_of, plan_of
from splat_scenes import (
    F64,
    all_responses,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    no_gaussians,
    oracle_rays,
    to_float32,
    view_float32,
)
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.paths import resource
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.rays import rays
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

BITS = [16, 24]
STEPS = {16: 2.0**-12, 24: 2.0**-20}  # from key to key, of the distance, at most
HOME = torch.eye(4, dtype=F64)  # a sensor there sees distances without rounding


def for_a_gpu() -> Stages:
    return replace(base_stages("native", torch.device("cpu")), device="cuda")


@pytest.mark.parametrize("bits", BITS)
def test_the_option_sets_a_field_of_the_plan(bits: int) -> None:
    stages = build_stages({"short_keys": {"bits": bits}}, for_a_gpu())
    assert stages.changes.claims == {"plan.depth_bits": "short_keys"}
    assert stages.plan == replace(for_a_gpu().plan, depth_bits=bits)  # type: ignore[type-var]
    assert stages.render.project.keywords == {"plan": stages.plan}  # type: ignore[attr-defined]


@pytest.mark.parametrize("bits", [0, 8, 17, 32])
def test_other_numbers_of_bits(bits: int) -> None:
    with pytest.raises(OptionError, match=f"option 'short_keys': bits is {bits}, but must be 16 or 24"):
        build_stages({"short_keys": {"bits": bits}}, for_a_gpu())


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (lambda: base_stages("native", torch.device("cpu")), "it changes kernels of the GPU alone; use device=cuda"),
        (lambda: reference_stages("cuda"), "it changes compiled kernels"),
    ],
)
def test_where_it_cannot_run(record, why: str) -> None:
    with pytest.raises(OptionError, match=f"'short_keys' cannot run here: {why}"):
        build_stages({"short_keys": parameters_of("short_keys")}, record())


def of_all() -> list[str]:
    """Those of `all` for a GPU that a record can take without one."""
    names = list(OmegaConf.load(resource("conf/opt/all.yaml"))["all"]["cuda"])
    return [n for n in names if n not in ("workers", "resident", "short_keys")]


@pytest.mark.parametrize("place", range(3))
def test_it_goes_with_all_others(place: int) -> None:
    names = of_all()
    at = (0, names.index("balanced_tiles"), names.index("side_streams"))[place]
    names.insert(at, "short_keys")
    plan = build_stages({n: parameters_of(n) for n in names}, for_a_gpu()).plan
    assert plan is not None and plan.depth_bits == 16 and plan.warp_tiles and plan.tight_lists and plan.fused_colour


# ---- order


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def projected(g: WorldGaussians, view: CameraView | LidarView, bits: int, device: torch.device) -> Projection:
    here = WorldGaussians(**{k: v.to(device) for k, v in vars(to_float32(g)).items()})
    view = cast_view(view_float32(view), torch.float32, device)
    found = native.project(here, view, plan=replace(plan_of(device), depth_bits=bits))
    return Projection(*(getattr(found, name).cpu() for name in ("index", "low", "high")))


def keys(depth: Tensor, bits: int) -> Tensor:
    """Keys of float32, by the formula in the docstring of the option."""
    numbers = depth.view(torch.int32).long()
    least, beyond = (torch.tensor(x).view(torch.int32).long() for x in (1 / 16, 4096.0))
    return (numbers.clamp(least, beyond - 1) - least) >> (27 - bits)


def clustered(n: int) -> Tensor:  # [n] float32, 3 to 9 m
    """Many share 16 bits and some 24. None is a rounding away from where keys change, as a GPU's roots are approximate."""
    depth = 3 + torch.randint(7, (n,)) + torch.tensor([0.0, 1e-6, 1e-4, 2e-3])[torch.randint(4, (n,))] * torch.rand(n)
    return ((depth.view(torch.int32) & ~7) + torch.randint(2, 6, (n,), dtype=torch.int32)).view(torch.float32)


def along(sensor: str, depth: Tensor) -> tuple[WorldGaussians, CameraView | LidarView]:
    """Gaussians at these distances from a sensor at home."""
    zero = torch.zeros_like(depth)
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(32, 24, 30.0, T_world_cam=HOME)
        local = torch.stack([zero, zero, depth], 1)
    else:
        view, local = make_lidar_view(make_lidar(8, 64), T_world_lidar=HOME), torch.stack([depth, zero, zero], 1)
    return changed(make_gaussians(local.to(F64), HOME), scales=0.3, opacities=0.9), view


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("n", [0, 1, 31, 33, 5000])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_the_order_is_that_of_keys_and_then_of_the_index(sensor: str, n: int, bits: int, device: torch.device) -> None:
    depth = clustered(n)
    found = projected(*along(sensor, depth), bits, device)
    order = torch.argsort(keys(depth, bits), stable=True)
    assert torch.equal(found.index, order)
    assert n < 5000 or not torch.equal(order, torch.argsort(depth, stable=True))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_nothing_changes_where_no_two_share_a_key(sensor: str, bits: int, device: torch.device) -> None:
    depth = (0.07 * (1 + 2 * STEPS[16]) ** torch.arange(2000, dtype=F64)).float()[torch.randperm(2000)]
    g, view = along(sensor, depth)
    found, expected = projected(g, view, bits, device), projected(g, view, 32, device)
    assert len(found.index) == 2000
    assert all(torch.equal(getattr(found, k), getattr(expected, k)) for k in ("index", "low", "high"))


@pytest.mark.parametrize("bits", BITS)
def test_what_is_behind_nearer_or_farther_than_keys_tell(bits: int, device: torch.device) -> None:
    """Wide ones beside and behind the camera are seen, too: first, by their index; those beyond 4 km last, likewise."""
    depth = torch.tensor([3.0, 9000.0, -0.0, 0.5, 5000.0, -2.0, 0.06, 1e-30, -1e-30, 0.0, 10.0, 4095.0, 7000.0])
    local = torch.stack([-torch.ones(len(depth)), -torch.ones(len(depth)), depth], 1).to(F64)
    g = changed(make_gaussians(local, HOME), scales=5.0, opacities=0.9)
    found = projected(g, make_camera_view(16, 12, 12.0, T_world_cam=HOME), bits, device)
    assert found.index.tolist() == [2, 5, 6, 7, 8, 9, 3, 0, 10, 11, 1, 4, 12]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_refused_as_ever(bad: float) -> None:
    ops.load()
    g, view = along("camera", clustered(5))
    for bits in (16, 32):
        with pytest.raises(ValueError, match="means holds"):
            projected(changed(g, means=g.means + bad), view, bits, torch.device("cpu"))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_no_gaussians(sensor: str, device: torch.device) -> None:
    _, view = along(sensor, clustered(1))
    assert len(projected(no_gaussians(), view, 16, device).index) == 0


@pytest.mark.parametrize("bits", [0, 15, 33])
def test_the_operator_refuses_other_numbers_of_bits(bits: int, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"depth_bits is {bits}, but must be 16, 24 or 32"):
        projected(*along("lidar", clustered(3)), bits, device)


# ---- renders


def blended(g: WorldGaussians, view: CameraView, bits: int, device: torch.device) -> Blend:
    plan = replace(plan_of(device), depth_bits=bits)
    here = WorldGaussians(**{k: v.to(device) for k, v in vars(to_float32(g)).items()})
    seen = cast_view(view_float32(view), torch.float32, device)
    pairs = native.tile(native.project(here, seen, plan=plan), seen, plan=plan)
    return native.blend(here, here.sh[:, 0].abs().contiguous(), rays(seen), pairs, seen, plan)


def most_moved(g: WorldGaussians, view: CameraView, key: Tensor) -> Tensor:  # [R, 3]
    """Bound of the change of pixels where Gaussians of one key change places. An exchange of neighbours in a ray's list moves its pixel
    by T a_i a_j |c_i - c_j|, and exchanges of neighbours make any order of a group, with each pair exchanged once at most."""
    alpha, _ = all_responses(g, oracle_rays(view))
    colours, pairs = g.sh[:, 0].abs(), (key[:, None] == key[None]).triu(1)
    apart = (colours[:, None] - colours[None]).abs() * pairs[..., None]
    return torch.einsum("ri,rj,ijc->rc", alpha, alpha, apart)


@pytest.mark.parametrize("bits", BITS)
def test_pixels_move_by_no_more_than_gaussians_with_one_key_differ(bits: int, device: torch.device) -> None:
    """Against all bits, whose outputs are the reference's (tests/native/test_parity_render.py). Over the bound: rounding, and a ray that
    ends at a transmittance of 1e-4 may end a Gaussian earlier or later."""
    view = view_float32(make_camera_view(33, 31, 30.0, T_world_cam=HOME))
    local = in_frustum(view, 300, 3, 9, 0.1)
    depth = clustered(300).to(F64)
    g = make_gaussians(local * (depth / local[:, 2])[:, None], HOME, scales=(0.1, 0.8), opacities=(0.2, 0.9))
    g = replace(g, means=torch.cat([g.means[:, :2], depth[:, None]], 1))
    found, expected = (blended(g, view, b, device).features.cpu().to(F64) for b in (bits, 32))
    bound, off = most_moved(g, cast_view(view, F64), keys(depth.float(), bits)), (found - expected).abs()
    print("OFF", bits, off.max(), bound.max(), (off - bound).max())
    assert (off <= bound + 3e-4).all()
    assert off.max() > 1e-2  # it is no empty promise


@pytest.mark.parametrize("bits", BITS)
def test_a_scene_that_nobody_arranged(bits: int, device: torch.device) -> None:
    """Distances are as they come: many of 3000 Gaussians share 16 bits with another, but few of those overlap."""
    view = view_float32(make_camera_view(33, 31, 30.0))
    g = make_gaussians(in_frustum(view, 3000, 2, 60, 0.1), scales=(0.02, 1.0))
    found, expected = (blended(g, view, b, device).features.cpu() for b in (bits, 32))
    assert float((found - expected).abs().mean()) <= 1e-5


# ---- training


@pytest.mark.parametrize("one_launch", [True, False])
def test_training_steps_of_several_views(one_launch: bool, device: torch.device) -> None:
    """Behind others of `all`, in one launch for all views or one after another: as without the option, since 24 bits tell all of these
    Gaussians apart."""
    if drivers_of(device) == "cpu":
        pytest.skip("warp tiles run over the CUDA drivers: set NUREC_LITE_EMULATE_CUDA=1")
    of_both = (
        stages_with(device, names, one_launch=one_launch)
        for names in ((*WITHOUT_WAITING, "short_keys"), WITHOUT_WAITING)
    )
    found, expected = (learned(stages, state_for(stages, device)) for stages in of_both)
    assert_learned_alike(found, expected, device)
