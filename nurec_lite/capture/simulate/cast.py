# SPDX-License-Identifier: Apache-2.0
"""Rays of the simulator meet its solids, in the precision of the world: float32 for images, float64 for ranges.

Rays come in bundles of neighbours; a bundle looks only at the solids with bounding spheres in its cone.
Letters: P solids (row 0 is the ground), K owners (moving cars, and last the world itself), T times,
S bundles of r rays, n of whatever is selected.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.simulate.bundles import Bundles, Spheres
from nurec_lite.capture.simulate.solids import FACES, Material, Solid

NEAR = 0.05  # metres; nothing nearer is seen
FAR = 2000.0  # metres; ground beyond counts as sky


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
    """S bundles of r rays in the world, and the poses of the owners at the T times at which rays are cast."""

    origins: Tensor  # [S, r, 3]
    directions: Tensor  # [S, r, 3] unit
    slots: Tensor  # [S, r] int64, which of the T times
    rotations: Tensor  # [T, K, 3, 3] world from owner
    positions: Tensor  # [T, K, 3]

    def to(self, dtype: torch.dtype) -> "Rays":
        tensors = (self.origins, self.directions, self.rotations, self.positions)
        origins, directions, rotations, positions = (x.to(dtype) for x in tensors)
        return Rays(origins, directions, self.slots, rotations, positions)

    def select(self, bundles: Tensor) -> "Rays":
        kept = (self.origins[bundles], self.directions[bundles], self.slots[bundles])
        return Rays(*kept, self.rotations, self.positions)

    def seen_from(self, owner: int) -> tuple[Tensor, Tensor]:  # origins, directions [S, r, 3] in the owner's frame
        if owner == self.rotations.shape[1] - 1:
            return self.origins, self.directions
        rotation = self.rotations[self.slots, owner]
        shifted = self.origins - self.positions[self.slots, owner]
        return _turn_back(rotation, shifted), _turn_back(rotation, self.directions)


def _turn_back(rotation: Tensor, v: Tensor) -> Tensor:  # [..., 3, 3], [..., 3] -> R^T v
    return (rotation * v[..., :, None]).sum(-2)


def _turn(rotation: Tensor, v: Tensor) -> Tensor:  # [..., 3, 3], [..., 3] -> R v
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
    planes: Tensor,  # [m, L, FACES, 4] L hulls a bundle
    origins: Tensor,  # [m, 1, r, 3]
    directions: Tensor,  # [m, 1, r, 3]
) -> Tensor:  # [m, L, r] metres to where a ray enters, infinite where it does not
    """A ray is in a hull from the last plane that it enters by to the first that it leaves by (Kay, Kajiya 1986)."""
    normals = planes[..., :3].transpose(-1, -2)
    speed = directions @ normals
    speed = torch.where(speed.abs() < 1e-12, 1e-12, speed)
    t = (planes[..., None, :, 3] - origins @ normals) / speed
    enter = torch.where(speed < 0, t, -torch.inf).amax(-1)
    leave = torch.where(speed > 0, t, torch.inf).amin(-1)
    return torch.where((enter < leave) & (enter > NEAR), enter, torch.inf)


def _ball_distances(
    scaled: Tensor,  # [m, L, 3, 4] L ellipsoids a bundle: frames in units of their radii, so that they are unit spheres
    origins: Tensor,  # [m, 1, r, 3]
    directions: Tensor,  # [m, 1, r, 3]
) -> Tensor:  # [m, L, r]
    """The point of the ray that is nearest to the centre is found first, for precision."""
    turned = scaled[..., :3].transpose(-1, -2)
    d = directions @ turned
    o = origins @ turned + scaled[..., None, :, 3]
    square = d.square().sum(-1)
    middle = -(o * d).sum(-1) / square
    room = 1 - (o + middle[..., None] * d).square().sum(-1)
    t = middle - (room.clamp(min=0) / square).sqrt()
    return torch.where((room > 0) & (t > NEAR), t, torch.inf)


def _meet(
    tables: Tensor,  # [n, ...] what `distances` needs of n solids
    pairs: tuple[Tensor, Tensor],  # of bundles with these, at least one
    distances: Callable[[Tensor, Tensor, Tensor], Tensor],
    origins: Tensor,  # [S, r, 3]
    directions: Tensor,  # [S, r, 3]
) -> tuple[
    Tensor, Tensor, Tensor
]:  # the bundles with pairs, and of their nearest: distance [., r], number of the solid [., r]
    """Meets rays with solids in rounds: a bundle takes part until its list ends; the fewer take part, the more solids
    in a round."""
    bundles, row_of, counts = pairs[0].unique_consecutive(return_inverse=True, return_counts=True)
    counts, order = counts.sort(descending=True, stable=True)
    longest = int(counts[0])
    n_left = (counts[None, :] > torch.arange(longest, device=counts.device)[:, None]).sum(1).tolist()
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    row, bundles = place[row_of], bundles[order]
    starts = counts[place].cumsum(0) - counts[place]
    slot = torch.arange(len(row), device=row.device) - starts[row_of]
    lists = torch.zeros(len(bundles), longest, dtype=torch.int64, device=row.device)
    valid = torch.zeros(len(bundles), longest, dtype=torch.bool, device=row.device)
    lists[row, slot], valid[row, slot] = pairs[1], True
    o, d = origins[bundles, None], directions[bundles, None]
    best = torch.full_like(o[:, 0, :, 0], torch.inf)
    found = torch.full_like(best, -1, dtype=torch.int64)
    turn = 0
    while turn < longest:
        m = n_left[turn]
        which = lists[:m, turn : turn + max(1, len(bundles) // m)]
        shown = valid[:m, turn : turn + which.shape[1], None]  # beyond the end of a list there is nothing
        t, nearest = torch.where(shown, distances(tables[which], o[:m], d[:m]), torch.inf).min(dim=1)
        found[:m] = torch.where(t < best[:m], which.gather(1, nearest), found[:m])
        best[:m] = torch.minimum(best[:m], t)
        turn += which.shape[1]
    return bundles, best, found


def cast(
    world: World,
    rays: Rays,
    parallel: bool = False,  # the rays of a bundle are nearly parallel: towards the sun
) -> tuple[Tensor, Tensor]:  # distance [S, r] in metres (infinite: sky), row of the solid [S, r] (-1: sky)
    descent = -rays.directions[..., 2]
    ground = torch.where(descent > 1e-9, rays.origins[..., 2] / descent.clamp(min=1e-9), torch.inf)
    best = torch.where((ground > NEAR) & (ground < FAR), ground, torch.inf)
    row = torch.where(best < torch.inf, 0, -1)
    scaled, every = world.from_owner / world.half[:, :, None], Bundles.of(rays.origins, rays.directions, parallel)
    for owner, (hulls, balls) in enumerate(world.groups):
        some = None if owner == len(world.groups) - 1 else _near(world, rays, owner, every)
        if some is not None and not len(some):
            continue
        origins, directions = (rays if some is None else rays.select(some)).seen_from(owner)
        bundles = every if some is None else Bundles.of(origins, directions, parallel)
        for rows, table, distances in ((hulls, world.planes, _hull_distances), (balls, scaled, _ball_distances)):
            pairs = bundles.pairs(Spheres(world.centres[rows], world.reach[rows]))
            if not len(pairs[0]):
                continue
            here, t, which = _meet(table[rows], pairs, distances, origins, directions)
            here = here if some is None else some[here]
            row[here] = torch.where(t < best[here], rows[which], row[here])
            best[here] = torch.minimum(best[here], t)
    return best, row


def _near(world: World, rays: Rays, owner: int, bundles: Bundles) -> Tensor:
    """Numbers of the bundles that may meet a car: the sphere that holds it at all times."""
    rows, places = torch.cat(world.groups[owner]), rays.positions[:, owner]
    middle = places.mean(0)
    reach = (world.centres[rows].norm(dim=1) + world.reach[rows]).amax() + (places - middle).norm(dim=1).amax()
    return bundles.pairs(Spheres(middle[None], reach[None] + 0.01))[0]


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
) -> tuple[Tensor, Surface]:  # [S, r] bool, which rays hit something (n of them), what they hit
    hit = row >= 0
    row, t = row[hit], distance[hit]
    owner, slot = world.owner[row], rays.slots[hit]
    rotation, position = rays.rotations[slot, owner], rays.positions[slot, owner]
    d_world = rays.directions[hit]
    origin, d = _turn_back(rotation, rays.origins[hit] - position), _turn_back(rotation, d_world)
    frame, half, at = world.from_owner[row], world.half[row], origin + t[:, None] * d
    own = _turn(frame[:, :, :3], at) + frame[:, :, 3]
    ball = _turn_back(frame[:, :, :3], F.normalize(own / half.square(), dim=1))
    normal = torch.where((world.faces[row] == 0)[:, None], ball, _hull_normals(world.planes[row], origin, d))
    return hit, Surface(
        distance=t, direction=d_world, point=rays.origins[hit] + t[:, None] * d_world,
        normal=_turn(rotation, normal), local=own, local_normal=_turn(frame[:, :, :3], normal),
        local_direction=_turn(frame[:, :, :3], d), half=half, material=world.material[row],
        colour=world.colour[row], trim=world.trim[row], row=row, spread=t.new_tensor(spread),
    )  # fmt: skip
