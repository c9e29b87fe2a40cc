# SPDX-License-Identifier: Apache-2.0
"""Ray casting against the simulator's solids, in the precision of the world: float32 for images, float64 for ranges.

Rays come in packets of neighbours; a packet is tested only against the solids whose bounding spheres meet its cone.
Letters: P solids (row 0 is the ground), K owners (moving cars, and last the world itself), T times,
S packets of r rays, n selected rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.simulate.packets import RayPackets, Spheres
from nurec_lite.capture.simulate.solids import FACES, Material, Solid

MIN_RANGE_M = 0.05  # a ray hits nothing nearer
MAX_GROUND_M = 2000.0  # ground beyond counts as sky


@dataclass(frozen=True)
class World:
    """P solids as tables. The rows of one owner follow one another; poses of the owners come with the rays."""

    planes: Tensor  # [P, FACES, 4] in the owner's frame: normal and offset
    from_owner: Tensor  # [P, 3, 4] rigid: the solid's own frame from its owner's
    centres: Tensor  # [P, 3] owner's frame
    half: Tensor  # [P, 3] half the size
    reach: Tensor  # [P] radius of the bounding sphere
    faces: Tensor  # [P] planes of a hull; 0: an ellipsoid
    material: Tensor  # [P] int64
    colour: Tensor  # [P, 3]
    trim: Tensor  # [P, 3]
    owner: Tensor  # [P] int64, 0 to K - 1
    groups: tuple[tuple[Tensor, Tensor], ...]  # K times: rows of its hulls, of its ellipsoids


@dataclass(frozen=True)
class Rays:
    """S packets of r rays in the world, and the poses of the owners at the T times of rays."""

    origins: Tensor  # [S, r, 3]
    directions: Tensor  # [S, r, 3] unit
    slots: Tensor  # [S, r] int64 index of the time, below T
    rotations: Tensor  # [T, K, 3, 3] world from owner
    positions: Tensor  # [T, K, 3]

    def to(self, dtype: torch.dtype) -> "Rays":
        tensors = (self.origins, self.directions, self.rotations, self.positions)
        origins, directions, rotations, positions = (x.to(dtype) for x in tensors)
        return Rays(origins, directions, self.slots, rotations, positions)

    def select(self, packets: Tensor) -> "Rays":
        kept = (self.origins[packets], self.directions[packets], self.slots[packets])
        return Rays(*kept, self.rotations, self.positions)

    def in_owner_frame(self, owner: int) -> tuple[Tensor, Tensor]:  # origins, directions [S, r, 3] in the owner's frame
        if owner == self.rotations.shape[1] - 1:
            return self.origins, self.directions
        rotation = self.rotations[self.slots, owner]
        shifted = self.origins - self.positions[self.slots, owner]
        return _rotate_back(rotation, shifted), _rotate_back(rotation, self.directions)


def _rotate_back(rotation: Tensor, v: Tensor) -> Tensor:  # [..., 3, 3], [..., 3] -> R^T v
    return (rotation * v[..., :, None]).sum(-2)


def _rotate(rotation: Tensor, v: Tensor) -> Tensor:  # [..., 3, 3], [..., 3] -> R v
    return (rotation * v[..., None, :]).sum(-1)


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
    faces = torch.tensor([len(solid.planes or ()) for solid in solids])
    is_ball = faces == 0
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
        faces=faces.to(device),
        material=torch.tensor([int(solid.material) for solid in solids], device=device),
        colour=table([solid.colour for solid in solids]),
        trim=table([solid.trim for solid in solids]),
        owner=owner_of.to(device),
        groups=tuple((hulls, balls) for hulls, balls in groups),
    )


# Intersection


def _hull_distances(
    planes: Tensor,  # [m, L, FACES, 4] L hulls a packet
    origins: Tensor,  # [m, 1, r, 3]
    directions: Tensor,  # [m, 1, r, 3]
) -> Tensor:  # [m, L, r] metres to the ray's entry; infinite if it misses
    """Distances to hulls by the slab test: the ray is inside from the last plane that it enters to the first that it leaves (Kay, Kajiya
    1986)."""
    normals = planes[..., :3].transpose(-1, -2)
    speed = directions @ normals
    speed = torch.where(speed.abs() < 1e-12, 1e-12, speed)
    t = (planes[..., None, :, 3] - origins @ normals) / speed
    enter = torch.where(speed < 0, t, -torch.inf).amax(-1)
    leave = torch.where(speed > 0, t, torch.inf).amin(-1)
    return torch.where((enter < leave) & (enter > MIN_RANGE_M), enter, torch.inf)


def _ball_distances(
    scaled: Tensor,  # [m, L, 3, 4] L ellipsoids a packet: frames in units of their radii, so that they are unit spheres
    origins: Tensor,  # [m, 1, r, 3]
    directions: Tensor,  # [m, 1, r, 3]
) -> Tensor:  # [m, L, r]
    """Computes the ray's nearest point to the centre first, for precision."""
    rotated = scaled[..., :3].transpose(-1, -2)
    d = directions @ rotated
    o = origins @ rotated + scaled[..., None, :, 3]
    square = d.square().sum(-1)
    middle = -(o * d).sum(-1) / square
    discriminant = 1 - (o + middle[..., None] * d).square().sum(-1)
    t = middle - (discriminant.clamp(min=0) / square).sqrt()
    return torch.where((discriminant > 0) & (t > MIN_RANGE_M), t, torch.inf)


def _nearest_hits(
    tables: Tensor,  # [n, ...] the first argument of `distances` for n solids
    pairs: tuple[Tensor, Tensor],  # of packets with these, at least one
    distances: Callable[[Tensor, Tensor, Tensor], Tensor],
    origins: Tensor,  # [S, r, 3]
    directions: Tensor,  # [S, r, 3]
) -> tuple[
    Tensor, Tensor, Tensor
]:  # the packets with pairs; of their nearest hits the distance [., r] and the number of the solid [., r]
    """Tests rays against solids in rounds. A packet takes part until its list ends; the fewer packets are left, the more
    solids a round has."""
    packets, row_of, counts = pairs[0].unique_consecutive(return_inverse=True, return_counts=True)
    counts, order = counts.sort(descending=True, stable=True)
    longest = int(counts[0])
    n_left = (counts[None, :] > torch.arange(longest, device=counts.device)[:, None]).sum(1).tolist()
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    row, packets = place[row_of], packets[order]
    starts = counts[place].cumsum(0) - counts[place]
    slot = torch.arange(len(row), device=row.device) - starts[row_of]
    lists = torch.zeros(len(packets), longest, dtype=torch.int64, device=row.device)
    valid = torch.zeros(len(packets), longest, dtype=torch.bool, device=row.device)
    lists[row, slot], valid[row, slot] = pairs[1], True
    o, d = origins[packets, None], directions[packets, None]
    best = torch.full_like(o[:, 0, :, 0], torch.inf)
    found = torch.full_like(best, -1, dtype=torch.int64)
    first = 0
    while first < longest:
        m = n_left[first]
        which = lists[:m, first : first + max(1, len(packets) // m)]
        shown = valid[:m, first : first + which.shape[1], None]  # False beyond the end of a list
        t, nearest = torch.where(shown, distances(tables[which], o[:m], d[:m]), torch.inf).min(dim=1)
        found[:m] = torch.where(t < best[:m], which.gather(1, nearest), found[:m])
        best[:m] = torch.minimum(best[:m], t)
        first += which.shape[1]
    return packets, best, found


def cast(
    world: World,
    rays: Rays,
    parallel: bool = False,  # the rays of a packet are nearly parallel: towards the sun
) -> tuple[Tensor, Tensor]:  # distance [S, r] in metres (infinite: sky), row of the solid [S, r] (-1: sky)
    descent = -rays.directions[..., 2]
    ground = torch.where(descent > 1e-9, rays.origins[..., 2] / descent.clamp(min=1e-9), torch.inf)
    best = torch.where((ground > MIN_RANGE_M) & (ground < MAX_GROUND_M), ground, torch.inf)
    row = torch.where(best < torch.inf, 0, -1)
    scaled, every = world.from_owner / world.half[:, :, None], RayPackets.of(rays.origins, rays.directions, parallel)
    for owner, (hulls, balls) in enumerate(world.groups):
        some = None if owner == len(world.groups) - 1 else _near_car(world, rays, owner, every)
        if some is not None and not len(some):
            continue
        origins, directions = (rays if some is None else rays.select(some)).in_owner_frame(owner)
        packets = every if some is None else RayPackets.of(origins, directions, parallel)
        for rows, table, distances in ((hulls, world.planes, _hull_distances), (balls, scaled, _ball_distances)):
            pairs = packets.pairs(Spheres(world.centres[rows], world.reach[rows]))
            if not len(pairs[0]):
                continue
            here, t, which = _nearest_hits(table[rows], pairs, distances, origins, directions)
            here = here if some is None else some[here]
            row[here] = torch.where(t < best[here], rows[which], row[here])
            best[here] = torch.minimum(best[here], t)
    return best, row


def _near_car(world: World, rays: Rays, owner: int, packets: RayPackets) -> Tensor:
    """Returns the numbers of the packets that may hit a car, tested by the sphere that holds it at all times."""
    rows, places = torch.cat(world.groups[owner]), rays.positions[:, owner]
    middle = places.mean(0)
    reach = (world.centres[rows].norm(dim=1) + world.reach[rows]).amax() + (places - middle).norm(dim=1).amax()
    return packets.pairs(Spheres(middle[None], reach[None] + 0.01))[0]


@dataclass(frozen=True)
class Surface:
    """Hits of n rays, in the world and in the solid's own frame."""

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
    distance: Tensor,  # [S, r]
    row: Tensor,  # [S, r]
    spread: float,  # radians between neighbouring rays
) -> tuple[Tensor, Surface]:  # [S, r] bool: the n rays that hit; their hits
    hit = row >= 0
    row, t = row[hit], distance[hit]
    owner, slot = world.owner[row], rays.slots[hit]
    rotation, position = rays.rotations[slot, owner], rays.positions[slot, owner]
    d_world = rays.directions[hit]
    origin, d = _rotate_back(rotation, rays.origins[hit] - position), _rotate_back(rotation, d_world)
    frame, half, at = world.from_owner[row], world.half[row], origin + t[:, None] * d
    own = _rotate(frame[:, :, :3], at) + frame[:, :, 3]
    ball = _rotate_back(frame[:, :, :3], F.normalize(own / half.square(), dim=1))
    normal = torch.where((world.faces[row] == 0)[:, None], ball, _hull_normals(world.planes[row], origin, d))
    return hit, Surface(
        distance=t, direction=d_world, point=rays.origins[hit] + t[:, None] * d_world,
        normal=_rotate(rotation, normal), local=own, local_normal=_rotate(frame[:, :, :3], normal),
        local_direction=_rotate(frame[:, :, :3], d), half=half, material=world.material[row],
        colour=world.colour[row], trim=world.trim[row], row=row, spread=t.new_tensor(spread),
    )  # fmt: skip
