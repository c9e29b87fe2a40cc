# SPDX-License-Identifier: Apache-2.0
"""The operator mark_visible_blocks (kernels/project/visible_blocks.cu), and projections of visible blocks, on CUDA alone. Operators of both
devices that take blocks: test_block_operators.py."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from block_lists import any_of_blocks, flags_of
from look_scenes import lens_views, views_of
from operators import check_schema
from parity import DEVICES, cast_view
from splat_scenes import LIDAR_MOTION, POSE, make_lidar, make_lidar_view, make_pose, view_float32
from test_backward_epilogue import looking
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native.operators.project import project_to_tiles, project_to_warp_tiles
from nurec_lite.native.operators.shared import Grid, gaussian_args, has_lens, packed_view, visibility_grid
from nurec_lite.native.operators.visible_blocks import BLOCK, BlockSpheres, no_spheres, visible_blocks
from nurec_lite.native.operators.warp_tiles import group_rays, occupied_cells
from nurec_lite.scene.gaussians import Gaussians, WorldGaussians, activate
from nurec_lite.splat.project import Projection
from nurec_lite.splat.views import CameraView, LidarView

CAMERAS = ("still camera", "moving camera", "lens")
KINDS = (*CAMERAS, "sectors")
View = CameraView | LidarView
ASIDE, BEHIND = (make_pose((0.0, angle, 0.0), (0.0, 0.0, 0.0)) for angle in (0.7, math.pi))
DEEP = math.log(1e-6)  # a logit: far below the least response


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- blocks that a view may see


def views_for(kind: str, device: torch.device) -> list[View]:
    """Two views, one aside of the other; a lidar's have the rays of a sector each."""
    if kind == "sectors":
        lidar = make_lidar(12, 64)
        parts = (make_lidar_view(lidar, LIDAR_MOTION, POSE, sector) for sector in ((-0.5, 0.9), (0.6, 2.0)))
        return [cast_view(view_float32(part), torch.float32, device) for part in parts]
    views: list[Any] = lens_views(("fisheye",) * 2, device) if kind == "lens" else views_of(kind, 2, device)
    return [views[0], looking(views[1], ASIDE)]


def ring(n: int, device: torch.device, by: str = "") -> Gaussians:
    """Stored Gaussians about a sensor at POSE, a camera or one of this kind; those of a block are neighbours, and the first block is
    ahead."""
    seed = torch.Generator().manual_seed(n)
    number = torch.arange(n) // BLOCK
    angle = 0.7 * number
    ahead, aside, no = angle.cos(), angle.sin(), torch.zeros(n)
    local = torch.stack([ahead, aside, no] if by == "sectors" else [aside, no, ahead], dim=1)
    local = 6 * local + 0.2 * torch.randn(n, 3, generator=seed)
    T = POSE.float()
    g = Gaussians(
        means=local @ T[:3, :3].T + T[:3, 3], quats=torch.randn(n, 4, generator=seed),
        log_scales=torch.randn(n, 3, generator=seed) - 4, opacity_logits=torch.randn(n, generator=seed),
        sh0=torch.zeros(n, 1, 3), sh_rest=torch.zeros(n, 0, 3), lidar_logits=torch.zeros(n, 2),
        node=torch.zeros(n, dtype=torch.int64),
    )  # fmt: skip
    return Gaussians(**{k: v.to(device) for k, v in vars(g).items()})


def placed(g: Gaussians) -> WorldGaussians:
    values = activate(g)
    given = {k: values[k].contiguous() for k in ("means", "quats", "scales", "opacities", "lidar")}
    return WorldGaussians(**given, sh=g.sh(), frames=given["quats"], velocities=torch.zeros_like(g.means))


def seen_by(g: Gaussians, view: View) -> Tensor:
    """[N] bool: whether the projection calls a Gaussian visible."""
    seen = project_to_tiles(placed(g), view, None, 32).seen
    assert seen is not None
    return seen.bool()


def wanted_blocks(g: Gaussians, still: int, views: list[View]) -> Tensor:
    rows = torch.stack([seen_by(g, view) for view in views]).any(0)
    rows[still:] = True
    return any_of_blocks(rows)


def assert_blocks(found: Tensor, wanted: Tensor) -> None:
    assert flags_of(found).equal(wanted)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000, 9 * BLOCK, 9 * BLOCK + 7])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_gaussians_that_stand_still(kind: str, n: int, device: torch.device) -> None:
    """Each view alone and both together."""
    g, views = ring(n, device, kind), views_for(kind, device)
    each = [visible_blocks(g, n, [view]) for view in views]
    for view, found in zip(views, each, strict=True):
        assert_blocks(found, wanted_blocks(g, n, [view]))
    both = visible_blocks(g, n, views)
    assert_blocks(both, wanted_blocks(g, n, views))
    flags = [flags_of(found) for found in (*each, both)]
    assert flags[2].equal(flags[0] | flags[1])
    if n > 2000:
        assert not flags[0].equal(flags[1]) and all(0 < int(found[:9].sum()) < 9 for found in flags)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("n", [1, 255, 257])
def test_a_last_block_that_is_not_full(n: int, behind: bool, device: torch.device) -> None:
    """Rows after the last Gaussian make nothing visible."""
    g, view = ring(n, device), views_for("still camera", device)[0]
    views: list[View] = [looking(view, BEHIND) if behind else view]
    found = visible_blocks(g, n, views)
    assert_blocks(found, wanted_blocks(g, n, views))
    assert bool(flags_of(found)[0]) == (not behind) and not (behind and flags_of(found).any())


@pytest.mark.parametrize("still", [0, 1, 255, 256, 257, 1279, 1280, 2000])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_with_gaussians_that_move_are_visible(kind: str, still: int, device: torch.device) -> None:
    """The sensor looks back, so that the first block is hidden from it."""
    n = 9 * BLOCK
    g, views = ring(n, device, kind), [looking(views_for(kind, device)[0], BEHIND)]
    found = flags_of(visible_blocks(g, still, views))
    assert found.equal(wanted_blocks(g, still, views))
    assert bool(found[still // BLOCK :].all()) and bool(found[0]) == (still < BLOCK)


@pytest.mark.parametrize("kind", KINDS)
def test_transparent_blocks_are_hidden(kind: str, device: torch.device) -> None:
    """The first block is straight ahead; a single Gaussian that is opaque makes it visible again."""
    g, views = ring(9 * BLOCK, device, kind), views_for(kind, device)
    before = flags_of(visible_blocks(g, len(g), views))
    g.opacity_logits[:BLOCK] = DEEP
    found = flags_of(visible_blocks(g, len(g), views))
    assert before[0] and not found[0] and found[1:].equal(before[1:])
    g.opacity_logits[BLOCK - 1] = 0
    assert flags_of(visible_blocks(g, len(g), views)).equal(before)


def test_plain_cameras_and_lenses_together(device: torch.device) -> None:
    """Each row is read by the lens of its own view."""
    g = ring(9 * BLOCK, device)
    views = lens_views(("plain", "fisheye", "ftheta"), device)
    assert [has_lens(view) for view in views] == [False, True, True]
    assert_blocks(visible_blocks(g, len(g), views), wanted_blocks(g, len(g), views))
    assert_blocks(visible_blocks(g, len(g), views[:1]), wanted_blocks(g, len(g), views[:1]))


def moved(view: View, T: Tensor) -> View:
    """The view from another place of the world."""
    start, end = (T.to(T_world) @ T_world for T_world in (view.T_world_sensor_start, view.T_world_sensor_end))
    return replace(view, T_world_sensor_start=start, T_world_sensor_end=end, row=None)


def with_own_opacity(g: Gaussians, logits: Tensor) -> Gaussians:
    """The lidar has an opacity of its own."""
    return replace(g, lidar_logits=torch.cat([g.lidar_logits, logits[:, None]], dim=1))


@pytest.mark.parametrize("n", [257, 9 * BLOCK + 7])
def test_an_image_and_a_sweep_together(n: int, device: torch.device) -> None:
    """Each goes by the opacity of its own sensor, and the sweep by known groups of its rays just as well."""
    views = [views_for("still camera", device)[0], views_for("sectors", device)[1]]
    g = ring(n, device, "sectors")
    own = with_own_opacity(g, torch.where(torch.arange(n, device=device) // BLOCK % 2 == 0, 0, DEEP))
    by_lidar = replace(g, opacity_logits=own.lidar_logits[:, 2])
    wanted = [wanted_blocks(g, n, views[:1]), wanted_blocks(by_lidar, n, views[1:])]
    assert_blocks(visible_blocks(own, n, views), wanted[0] | wanted[1])
    assert_blocks(visible_blocks(own, n, views[1:]), wanted[1])
    assert isinstance(views[1], LidarView)
    assert_blocks(visible_blocks(own, n, [views[0], group_rays(views[1])]), wanted[0] | wanted[1])
    if n > 2000:
        assert wanted[1].any() and not wanted[1].equal(wanted_blocks(g, n, views[1:]))


# ---- spheres of hidden blocks


@pytest.mark.parametrize("away", [0.0, 1e5])  # metres from the origin
@pytest.mark.parametrize("n", [257, 9 * BLOCK + 7])
@pytest.mark.parametrize("kind", KINDS)
def test_spheres_of_hidden_blocks_hold_their_gaussians(kind: str, n: int, away: float, device: torch.device) -> None:
    """Visible blocks have none, nor have those that move or are all transparent."""
    shift = make_pose((0.0, 0.0, 0.0), (away, 0.0, 0.0))
    first, second = (moved(view, shift) for view in views_for(kind, device))
    g, spheres = ring(n, device, kind), no_spheres(ring(n, device))
    g.means[:, 0] += away
    g.opacity_logits[5 * BLOCK : 6 * BLOCK] = DEEP
    still = n - BLOCK - 7 if n > 2000 else n
    hidden = ~flags_of(visible_blocks(g, still, [first], spheres))
    hidden[5:6] = False
    assert spheres[:, 3].ge(0).equal(hidden) and (n < 2000 or (hidden.any() and not hidden.all()))
    reach = (2 * (255 * g.opacity_logits.sigmoid()).log().clamp(min=0)).sqrt() * g.log_scales.amax(1).exp()
    for k in hidden.nonzero().flatten().tolist():
        rows = slice(BLOCK * k, min(BLOCK * (k + 1), n))
        far = (g.means[rows].double() - spheres[k, :3]).norm(dim=1) + reach[rows]
        assert far.max() + 4e-7 * away <= spheres[k, 3] < 2 * far.max() + 0.1 + 2e-6 * away
    assert_blocks(visible_blocks(g, still, [second], spheres), wanted_blocks(g, still, [second]))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_with_a_hidden_sphere_are_not_read(kind: str, device: torch.device) -> None:
    """Their Gaussians could be anywhere; a view that sees the sphere reads them again, and `forget` lets all be read."""
    g, (view, _), known = ring(9 * BLOCK, device, kind), views_for(kind, device), BlockSpheres()
    blocks = visible_blocks(g, len(g), [view], known.of(g))
    hidden = ~flags_of(blocks)
    assert hidden.any()
    g.means[hidden.repeat_interleave(BLOCK)] = g.means[:BLOCK].mean(0)  # straight ahead
    found = flags_of(visible_blocks(g, len(g), [view], known.of(g)))
    assert found[~hidden].all() and not found.all()  # of two neighbours the view may see a sphere
    known.forget()
    assert flags_of(visible_blocks(g, len(g), [view], known.of(g))).all()


def test_another_opacity_of_the_lidar_counts_in_a_sphere(device: torch.device) -> None:
    """An image passes Gaussians by, and a sweep sees them later."""
    n = 9 * BLOCK
    camera, sweep = looking(views_for("still camera", device)[0], BEHIND), views_for("sectors", device)[0]
    g = with_own_opacity(ring(n, device, "sectors"), torch.full((n,), 3.0, device=device))
    g.opacity_logits[:] = DEEP
    spheres = no_spheres(g)
    assert not flags_of(visible_blocks(g, n, [camera], spheres)).any() and (spheres[:, 3] > 0).all()
    by_lidar = replace(g, opacity_logits=g.lidar_logits[:, 2])
    assert_blocks(visible_blocks(g, n, [sweep], spheres), wanted_blocks(by_lidar, n, [sweep]))


def test_a_new_store_and_a_relocation_reset_spheres(device: torch.device) -> None:
    g, view, known = ring(9 * BLOCK, device), views_for("still camera", device)[0], BlockSpheres()
    known.follow(g)
    visible_blocks(g, len(g), [view], known.of(g))
    first = known.of(g)
    assert (first[:, 3] > 0).any()
    known.follow(g)
    assert known.of(g) is first and (first[:, 3] > 0).any()
    g.node.copy_(g.node.clone())  # as a relocation does
    assert known.of(g) is first and (first == -1).all()
    other = ring(3 * BLOCK, device)
    known.follow(other)
    assert known.of(other).shape == (3, 4) and (known.of(other) == -1).all()


def test_no_gaussians_have_no_blocks(device: torch.device) -> None:
    for kind in KINDS:
        assert visible_blocks(ring(0, device), 0, views_for(kind, device)).tolist() == [0]


def block_arguments(device: torch.device, n: int = 7) -> dict[str, Any]:
    """Returns those of an image and a sweep."""
    g, views = ring(n, device), [views_for("still camera", device)[0], views_for("sectors", device)[0]]
    assert isinstance(views[1], LidarView)
    stored = {k: getattr(g, k) for k in ("means", "log_scales", "opacity_logits", "lidar_logits")}
    grid, columns = visibility_grid(views[1], device)
    cells = {"edges": [grid.edges], "columns": [columns], "occupied": [occupied_cells(views[1])]}
    return (
        stored
        | {"spheres": no_spheres(g), "still": n, "views": list(map(packed_view, views)), "sensors": [1, 0]}
        | cells
    )


def test_torch_s_own_checks(device: torch.device) -> None:
    check_schema(torch.ops.nurec_lite.mark_visible_blocks.default, tuple(block_arguments(device, 700).values()))


WRONG: dict[str, dict[str, Any]] = {
    "number of views is 0, but must be 1 to 16": {"views": [], "sensors": []},
    "number of views is 17, but must be 1 to 16": {"views": 17, "sensors": [1] * 17},
    "still is 8, but must be 0 to 7, the Gaussians": {"still": 8},
    "still is -1, but must be 0 to 7": {"still": -1},
    "sensors has 1 values, but there are 2 views": {"sensors": [1]},
    "sensor is 3, but must be 0, a lidar": {"sensors": [1, 3]},
    "log_scales has shape": {"log_scales": torch.zeros(6, 3)},
    "opacity_logits has shape": {"opacity_logits": torch.zeros(7, 1)},
    "lidar_logits has shape": {"lidar_logits": torch.zeros(6, 2)},
    "spheres has shape": {"spheres": torch.zeros(2, 4)},
    "occupied have 1, 1 and 0 items, but each needs one for each lidar": {"occupied": []},
    "edges, columns and occupied have 0": {"edges": []},
    "edges, columns and occupied have 1, 2 and 1": {"columns": [16, 16]},
    "occupied have 1, 1 and 1 items": {"sensors": [1, 1]},
    "spheres do not begin at a multiple of 16 bytes": {"spheres": torch.zeros(5)},
    "columns is 0": {"columns": [0]},
    "occupied has shape": {"occupied": [torch.zeros(2, 2, dtype=torch.int32)]},
    "a row of views has shape": {"views": [torch.zeros(83)] * 2},
}


def placed_on(device: torch.device, value: Any) -> Any:
    if isinstance(value, list):
        return [placed_on(device, one) for one in value]
    return value.to(device) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_refused(words: str, device: torch.device) -> None:
    args = block_arguments(device)
    changes = {k: placed_on(device, v) for k, v in WRONG[words].items()}
    if isinstance(many := changes.get("views"), int):
        changes["views"] = args["views"][:1] * many
    if "multiple of 16" in words:  # a copy to a device would begin at one
        changes["spheres"] = changes["spheres"][1:].view(1, 4)
    with pytest.raises(ValueError, match=words):
        torch.ops.nurec_lite.mark_visible_blocks(*(args | changes).values())


# ---- the projection


def places_in(projection: Projection) -> list[Tensor]:
    """Returns each Gaussian's bounds or, of a sweep, its number of candidates; and its shape."""
    assert projection.shapes is not None
    own = projection.bounds if projection.candidates is None else projection.candidates[1]
    assert own is not None
    return [own, projection.shapes]


@pytest.mark.parametrize("depth_bits", [16, 32])
@pytest.mark.parametrize("n", [1, 257, 9 * BLOCK + 7, 6000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_projection_of_visible_blocks(kind: str, n: int, depth_bits: int, device: torch.device) -> None:
    """It is that of all Gaussians; those of hidden blocks may be any."""
    g, view = ring(n, device, kind), views_for(kind, device)[0]
    blocks = visible_blocks(g, n, [view])
    plain = project_to_warp_tiles(placed(g), view, 1000, depth_bits, True)
    hidden = ~flags_of(blocks).repeat_interleave(BLOCK)[:n]
    g.means[hidden] = view.centre()  # where they would be seen
    found = project_to_warp_tiles(placed(g), view, 1000, depth_bits, True, blocks)
    assert found.count is not None and plain.count is not None and found.count.equal(plain.count)
    index = plain.index[: int(plain.count)]
    assert found.index[: int(found.count)].equal(index) and len(index) > 0 and (n < 2000 or len(index) < n)
    for a, b in zip(places_in(found), places_in(plain), strict=True):
        assert a[index].equal(b[index])
    rows = ~hidden
    assert found.seen is not None and plain.seen is not None and found.seen[rows].equal(plain.seen[rows])


def test_a_projection_of_blocks_for_something_else_is_refused(device: torch.device) -> None:
    g, view = ring(300, device), views_for("still camera", device)[0]
    blocks, none = visible_blocks(g, 300, [view]), torch.empty(0, device=device)
    arguments = gaussian_args(placed(g)), packed_view(view), 1, Grid(none, none), 1, []
    with pytest.raises(ValueError, match="only results that stay in place know them: leave them out"):
        torch.ops.nurec_lite.project(*arguments, blocks=blocks)
