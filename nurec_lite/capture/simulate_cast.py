# SPDX-License-Identifier: Apache-2.0
"""Rays of the simulator meet its solids. Everything works in the precision of the world: float32 for images, float64 for ranges.

Letters: P solids (row 0 is the ground), K owners (moving cars, and last the world itself), T times, R rays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.simulate_solids import FACES, Material, Solid

NEAR = 0.05  # metres; nothing nearer is seen
FAR = 2000.0  # metres; ground beyond counts as sky
_BUDGET = {"cpu": 2**18, "cuda": 2**26}  # ray-solid pairs looked at together


@dataclass(frozen=True)
class World:
    """P solids as tables. The rows of one owner follow one another; poses of the owners come with the rays."""

    planes: Tensor  # [P, FACES, 4] in the owner's frame: normal and offset
    from_owner: Tensor  # [P, 3, 4] rigid: the solid's own frame from its owner's
    centres: Tensor  # [P, 3] owner's frame
    half: Tensor  # [P, 3] half the size
    reach: Tensor  # [P] radius of the bounding sphere
    is_ball: Tensor  # [P] bool
    material: Tensor  # [P] int64
    colour: Tensor  # [P, 3]
    trim: Tensor  # [P, 3]
    owner: Tensor  # [P] int64, 0 to K - 1
    groups: tuple[tuple[Tensor, Tensor], ...]  # K times: rows of its hulls, of its ellipsoids


@dataclass(frozen=True)
class Rays:
    """R rays in the world, and the poses of the owners at the T times at which rays are cast."""

    origins: Tensor  # [R, 3]
    directions: Tensor  # [R, 3] unit
    slots: Tensor  # [R] int64, which of the T times
    rotations: Tensor  # [T, K, 3, 3] world from owner
    positions: Tensor  # [T, K, 3]

    def to(self, dtype: torch.dtype) -> "Rays":
        tensors = (self.origins, self.directions, self.rotations, self.positions)
        origins, directions, rotations, positions = (x.to(dtype) for x in tensors)
        return Rays(origins, directions, self.slots, rotations, positions)

    def seen_from(self, owner: int) -> tuple[Tensor, Tensor]:  # origins, directions [R, 3] in the owner's frame
        if owner == self.rotations.shape[1] - 1:
            return self.origins, self.directions
        rotation = self.rotations[self.slots, owner]
        shifted = self.origins - self.positions[self.slots, owner]
        return _turn_back(rotation, shifted), _turn_back(rotation, self.directions)


def _turn_back(rotation: Tensor, v: Tensor) -> Tensor:  # [R, 3, 3], [R, 3] -> R^T v
    return (rotation * v[:, :, None]).sum(1)


def _turn(rotation: Tensor, v: Tensor) -> Tensor:  # [R, 3, 3], [R, 3] -> R v
    return (rotation * v[:, None, :]).sum(2)


# The world as tables


def _own_frame(solid: Solid) -> Tensor:  # [3, 4]
    c, s = (
        torch.cos(torch.tensor(solid.yaw, dtype=torch.float64)),
        torch.sin(torch.tensor(solid.yaw, dtype=torch.float64)),
    )
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    rotation = torch.stack([c, s, zero, -s, c, zero, zero, zero, one]).view(3, 3)
    shift = -rotation @ torch.tensor(solid.centre, dtype=torch.float64)
    return torch.cat([rotation, shift[:, None]], dim=1)


def _owner_planes(solid: Solid, frame: Tensor) -> Tensor:  # [FACES, 4]
    if solid.planes is None:
        return torch.zeros(FACES, 4, dtype=torch.float64)
    planes = torch.tensor(solid.planes + solid.planes[:1] * (FACES - len(solid.planes)), dtype=torch.float64)
    return torch.cat([planes[:, :3] @ frame[:, :3], planes[:, 3:] - planes[:, :3] @ frame[:, 3:]], dim=1)


GROUND = Solid(Material.GROUND, (1.0, 1.0, 1.0), (0.5, 0.5, 0.5), planes=((0.0, 0.0, 1.0, 0.0),))


def build_world(
    owned: list[list[Solid]],  # K lists of solids, the last those of the world itself
    dtype: torch.dtype,
    device: torch.device | str,
) -> World:
    solids = [GROUND] + [solid for group in owned for solid in group]
    owner = [len(owned) - 1] + [k for k, group in enumerate(owned) for _ in group]
    frames = [_own_frame(solid) for solid in solids]

    def table(rows: list) -> Tensor:
        return torch.tensor(rows, dtype=torch.float64).to(device, dtype)

    half = table([solid.size for solid in solids]) / 2
    is_ball = torch.tensor([solid.planes is None for solid in solids])
    owner_of = torch.tensor(owner)
    is_ground = torch.arange(len(solids)) == 0
    groups = []
    for k in range(len(owned)):
        mine = (owner_of == k) & ~is_ground
        groups.append(tuple((mine & kind).nonzero()[:, 0].to(device) for kind in (~is_ball, is_ball)))
    return World(
        planes=torch.stack([_owner_planes(s, f) for s, f in zip(solids, frames, strict=True)]).to(device, dtype),
        from_owner=torch.stack(frames).to(device, dtype),
        centres=table([solid.centre for solid in solids]),
        half=half,
        reach=torch.where(is_ball.to(device), half.amax(1), half.norm(dim=1)),
        is_ball=is_ball.to(device),
        material=torch.tensor([int(solid.material) for solid in solids], device=device),
        colour=table([solid.colour for solid in solids]),
        trim=table([solid.trim for solid in solids]),
        owner=owner_of.to(device),
        groups=tuple((hulls, balls) for hulls, balls in groups),
    )


# Intersection


def _hull_distances(
    planes: Tensor,  # [n, FACES, 4]
    origins: Tensor,  # [R, 3]
    directions: Tensor,  # [R, 3]
) -> Tensor:  # [R, n] metres to where a ray enters, infinite where it does not
    """A ray is inside a convex hull from the last plane that it enters by to the first that it leaves by (Kay and Kajiya 1986)."""
    enter = origins.new_full((len(origins), len(planes)), NEAR)
    leave = torch.full_like(enter, torch.inf)
    for normal, offset in zip(planes[:, :, :3].unbind(1), planes[:, :, 3].unbind(1), strict=True):
        speed = directions @ normal.T
        speed = torch.where(speed.abs() < 1e-12, 1e-12, speed)
        t = (offset - origins @ normal.T) / speed
        enter = torch.where(speed < 0, torch.maximum(enter, t), enter)
        leave = torch.where(speed > 0, torch.minimum(leave, t), leave)
    return torch.where((enter < leave) & (enter > NEAR), enter, torch.inf)


def _ball_distances(
    frames: Tensor,  # [n, 3, 4]
    half: Tensor,  # [n, 3]
    origins: Tensor,  # [R, 3]
    directions: Tensor,  # [R, 3]
) -> Tensor:  # [R, n]
    """In units of the radii the ellipsoid is the unit sphere; the point nearest to its centre is found first, for precision."""
    scaled = frames / half[:, :, None]
    o = torch.stack([origins @ row[:, :3].T + row[:, 3] for row in scaled.unbind(1)])
    d = torch.stack([directions @ row[:, :3].T for row in scaled.unbind(1)])
    square = d.square().sum(0)
    middle = -(o * d).sum(0) / square
    room = 1 - (o + middle * d).square().sum(0)
    t = middle - (room.clamp(min=0) / square).sqrt()
    return torch.where((room > 0) & (t > NEAR), t, torch.inf)


def _in_cone(world: World, rows: Tensor, origins: Tensor, directions: Tensor) -> Tensor:
    """Rows whose bounding spheres meet the cone that holds all the rays."""
    apex, axis = origins.mean(0), F.normalize(directions.mean(0), dim=0)
    opening = torch.acos((directions @ axis).min().clamp(-1, 1))
    reach = world.reach[rows] + (origins - apex).norm(dim=1).max()
    to_centre = world.centres[rows] - apex
    distance = to_centre.norm(dim=1).clamp(min=1e-6)
    angle = torch.acos((to_centre @ axis / distance).clamp(-1, 1))
    return rows[angle <= opening + torch.asin((reach / distance).clamp(max=1)) + 1e-3]


def _in_beam(world: World, rows: Tensor, origins: Tensor, directions: Tensor) -> Tensor:
    """Rows whose bounding spheres meet the beam of (nearly) parallel rays from origins that may lie far apart."""
    axis = F.normalize(directions.mean(0), dim=0)
    side = F.normalize(torch.linalg.cross(axis, axis.roll(1)), dim=0)
    basis = torch.stack([side, torch.linalg.cross(axis, side), axis], dim=1)
    starts, centres, reach = origins @ basis, world.centres[rows] @ basis, 1.05 * world.reach[rows] + 0.05
    low, high = starts.amin(0), starts.amax(0)
    above = (centres[:, 2] + reach) > low[2]
    beside = (centres[:, :2] + reach[:, None] > low[:2]) & (centres[:, :2] - reach[:, None] < high[:2])
    return rows[above & beside.all(1)]


def cast(
    world: World,
    rays: Rays,
    parallel: bool = False,  # the rays are nearly parallel: towards the sun
) -> tuple[Tensor, Tensor]:  # distance [R] in metres (infinite: sky), row of the solid [R] (-1: sky)
    descent = -rays.directions[:, 2]
    ground = torch.where(descent > 1e-9, rays.origins[:, 2] / descent.clamp(min=1e-9), torch.inf)
    best = torch.where((ground > NEAR) & (ground < FAR), ground, torch.inf)
    row = torch.where(best < torch.inf, 0, -1)
    block = max(1, _BUDGET[rays.origins.device.type] // len(rays.origins))
    for owner, kinds in enumerate(world.groups):
        origins, directions = rays.seen_from(owner)
        for is_ball, rows in enumerate(kinds):
            meets = (_in_beam if parallel else _in_cone)(world, rows, origins, directions)
            for some in meets.split(block) if len(meets) else ():
                if is_ball:
                    distances = _ball_distances(world.from_owner[some], world.half[some], origins, directions)
                else:
                    distances = _hull_distances(world.planes[some], origins, directions)
                nearest, which = distances.min(dim=1)
                row = torch.where(nearest < best, some[which], row)
                best = torch.minimum(best, nearest)
    return best, row


@dataclass(frozen=True)
class Surface:
    """What n rays hit: there, in the world and in the solid's own frame."""

    distance: Tensor  # [n] metres
    direction: Tensor  # [n, 3] of the ray, world
    point: Tensor  # [n, 3] world
    normal: Tensor  # [n, 3] world, unit, outwards
    local: Tensor  # [n, 3] point, own frame of the solid, metres from its centre
    local_normal: Tensor  # [n, 3]
    local_direction: Tensor  # [n, 3]
    half: Tensor  # [n, 3] half the solid's size
    material: Tensor  # [n]
    colour: Tensor  # [n, 3]
    trim: Tensor  # [n, 3]
    row: Tensor  # [n] of the solid
    spread: Tensor  # [] radians between neighbouring rays

    @property
    def cosine(self) -> Tensor:  # [n] of the angle of incidence
        return -(self.normal * self.direction).sum(1).clamp(-1, -1e-3)

    def select(self, index: Tensor) -> "Surface":
        kept = {n: getattr(self, n)[index] for n in self.__dataclass_fields__ if n != "spread"}
        return Surface(**kept, spread=self.spread)

    def footprint(
        self,
        tangent: Tensor,  # [n, 3] unit, along the surface
        direction: Tensor,  # [n, 3] of the ray, in the same frame
    ) -> Tensor:  # [n] metres that a ray's cone covers along the tangent: 1 / cosine longer in the plane of incidence
        c2 = self.cosine.square()
        share = (direction * tangent).sum(1).square() / (1 - c2).clamp(min=1e-4)
        return self.distance * self.spread * (1 + share.clamp(max=1) * (1 / c2 - 1)).sqrt()


def _hull_normals(planes: Tensor, origins: Tensor, directions: Tensor) -> Tensor:  # [n, FACES, 4], [n, 3] -> [n, 3]
    speed = (planes[:, :, :3] * directions[:, None]).sum(2)
    gap = planes[:, :, 3] - (planes[:, :, :3] * origins[:, None]).sum(2)
    t = torch.where(speed < -1e-12, gap / torch.where(speed < -1e-12, speed, -1.0), -torch.inf)
    face = t.argmax(dim=1)
    return planes[torch.arange(len(planes), device=planes.device), face, :3]


def surface(
    world: World,
    rays: Rays,
    distance: Tensor,  # [R]
    row: Tensor,  # [R]
    spread: float,  # radians between neighbouring rays
) -> tuple[Tensor, Surface]:  # the n rays that hit something, what they hit
    hit = (row >= 0).nonzero()[:, 0]
    row, t = row[hit], distance[hit]
    owner, slot = world.owner[row], rays.slots[hit]
    rotation, position = rays.rotations[slot, owner], rays.positions[slot, owner]
    d_world = rays.directions[hit]
    origin, d = _turn_back(rotation, rays.origins[hit] - position), _turn_back(rotation, d_world)
    frame, half, at = world.from_owner[row], world.half[row], origin + t[:, None] * d
    own = _turn(frame[:, :, :3], at) + frame[:, :, 3]
    ball = _turn_back(frame[:, :, :3], F.normalize(own / half.square(), dim=1))
    normal = torch.where(world.is_ball[row][:, None], ball, _hull_normals(world.planes[row], origin, d))
    return hit, Surface(
        distance=t, direction=d_world, point=rays.origins[hit] + t[:, None] * d_world,
        normal=_turn(rotation, normal), local=own, local_normal=_turn(frame[:, :, :3], normal),
        local_direction=_turn(frame[:, :, :3], d), half=half, material=world.material[row],
        colour=world.colour[row], trim=world.trim[row], row=row, spread=t.new_tensor(spread),
    )  # fmt: skip
