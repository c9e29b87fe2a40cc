# SPDX-License-Identifier: Apache-2.0
"""Solids that the simulated street is built of: convex hulls of at most eight planes, and ellipsoids.

A solid's own frame has its origin in the centre of its bounding box, x along its length, y along its width, z up.
"""

import math
from dataclasses import dataclass, replace
from enum import IntEnum

FACES = 8  # planes a hull; fewer are padded by repeating the first

Triple = tuple[float, float, float]
Plane = tuple[float, float, float, float]  # unit normal n and offset d: inside is n . p <= d


class Material(IntEnum):
    GROUND = 0
    WALL = 1
    ROOF = 2
    LEAVES = 3
    BODY = 4  # painted metal of a car, with its lamps
    CABIN = 5  # upper part of a car: windows, pillars and roof
    WHEEL = 6
    PLAIN = 7


@dataclass(frozen=True)
class Solid:
    """One primitive. `planes` are None for an ellipsoid that fills its bounding box."""

    material: Material
    size: Triple  # length, width, height in metres
    colour: Triple  # linear albedo, 0 to 1
    trim: Triple = (0.5, 0.5, 0.5)  # second colour: window frames, hubs
    planes: tuple[Plane, ...] | None = None
    centre: Triple = (0.0, 0.0, 0.0)  # in the frame of the owner (the world or a car)
    yaw: float = 0.0  # radians


def moved(solid: Solid, x: float, y: float, z: float, yaw: float) -> Solid:
    """The solid turned about the origin's vertical by yaw, then shifted."""
    c, s = math.cos(yaw), math.sin(yaw)
    px, py, pz = solid.centre
    return replace(solid, centre=(c * px - s * py + x, s * px + c * py + y, pz + z), yaw=solid.yaw + yaw)


def box(size: Triple) -> tuple[Plane, ...]:
    a, b, c = (0.5 * s for s in size)
    return ((1, 0, 0, a), (-1, 0, 0, a), (0, 1, 0, b), (0, -1, 0, b), (0, 0, 1, c), (0, 0, -1, c))


def tapered(size: Triple, front: float, rear: float, side: float) -> tuple[Plane, ...]:
    """A box with a top drawn in by so many metres at the front (+x), at the rear and at either side."""
    a, b, c = (0.5 * s for s in size)

    def slope(inset: float, reach: float) -> tuple[float, float, float]:  # normal (out, up) and offset
        length = math.hypot(size[2], inset)
        out, up = size[2] / length, inset / length
        return out, up, out * reach - up * c

    (f, fu, fd), (r, ru, rd), (s, su, sd) = slope(front, a), slope(rear, a), slope(side, b)
    return ((f, 0, fu, fd), (-r, 0, ru, rd), (0, s, su, sd), (0, -s, su, sd), (0, 0, 1, c), (0, 0, -1, c))


def gable(size: Triple) -> tuple[Plane, ...]:
    """A pitched roof with its ridge along x."""
    a, b, c = (0.5 * s for s in size)
    length = math.hypot(size[2], b)
    out, up = size[2] / length, b / length
    d = out * b - up * c
    return ((1, 0, 0, a), (-1, 0, 0, a), (0, out, up, d), (0, -out, up, d), (0, 0, -1, c))


def bevelled(size: Triple, hood: tuple[float, float], tail: tuple[float, float]) -> tuple[Plane, ...]:
    """A box with its upper front and rear edges planed off: hood and tail say how far along x and down z, in metres."""
    a, c = 0.5 * size[0], 0.5 * size[2]
    planes: list[Plane] = list(box(size))
    for sign, (run, drop) in ((1, hood), (-1, tail)):
        length = math.hypot(run, drop)
        n_x, n_z = drop / length, run / length
        planes.append((sign * n_x, 0, n_z, n_x * a + n_z * (c - drop)))
    return tuple(planes)


@dataclass(frozen=True)
class CarModel:
    """Proportions of a car, in metres."""

    name: str  # class of its track
    size: Triple
    belt: float  # height of the lower edge of the windows, as a share of the height
    cabin: tuple[float, float]  # rear and front end of the cabin's foot, as shares of the length from the centre
    inset: tuple[float, float]  # how far its top is drawn in at the rear and at the front


CAR_MODELS = (
    CarModel("Car", (4.2, 1.80, 1.50), 0.60, (-0.47, 0.24), (0.45, 0.75)),
    CarModel("Car", (4.6, 1.84, 1.46), 0.60, (-0.36, 0.22), (0.60, 0.80)),
    CarModel("Car", (3.7, 1.70, 1.52), 0.58, (-0.48, 0.27), (0.30, 0.65)),
    CarModel("Van", (5.0, 1.96, 2.00), 0.56, (-0.49, 0.36), (0.12, 0.70)),
)
SIDE_INSET = 0.16  # metres that the roof of a cabin is narrower than its foot, either side
WHEEL_RADIUS = 0.33
CLEARANCE = 0.17  # metres below the body
AXLE = 0.31  # from the centre to an axle, as a share of the length


def car(model: CarModel, paint: Triple) -> list[Solid]:
    """A car in the frame of its box: a body with bonnet and tail, a cabin, four wheels; all inside the box."""
    length, width, height = model.size
    floor, belt = -0.5 * height + CLEARANCE, (model.belt - 0.5) * height
    body_size = (length, width - 0.12, belt - floor)
    planes = bevelled(body_size, (0.27 * length, 0.16), (0.14 * length, 0.07))
    solids = [Solid(Material.BODY, body_size, paint, planes=planes, centre=(0.0, 0.0, 0.5 * (floor + belt)))]
    rear, front = (share * length for share in model.cabin)
    cabin_size = (front - rear, width - 0.18, 0.5 * height - belt + 0.03)
    planes = tapered(cabin_size, model.inset[1], model.inset[0], SIDE_INSET)
    centre = (0.5 * (rear + front), 0.0, 0.5 * (belt - 0.03 + 0.5 * height))
    trim = (model.inset[0], model.inset[1], 0.0)  # the texture needs to know where the pillars lean
    solids.append(Solid(Material.CABIN, cabin_size, paint, trim, planes, centre))
    for x in (-AXLE * length, AXLE * length):
        for y in (-0.5 * width + 0.08, 0.5 * width - 0.08):
            at = (x, y, WHEEL_RADIUS - 0.5 * height)
            size = (2 * WHEEL_RADIUS, 0.16, 2 * WHEEL_RADIUS)
            solids.append(Solid(Material.WHEEL, size, (0.02, 0.02, 0.022), (0.35, 0.36, 0.38), centre=at))
    return solids
