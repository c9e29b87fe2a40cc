# SPDX-License-Identifier: Apache-2.0
"""Colours of the simulated street: materials and sky. Linear light, 0 to about 1.

Patterns are averaged over the footprint of their ray in closed form, or are smooth: small images do not shimmer.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.simulate.cast import Surface
from nurec_lite.capture.simulate.noise import band, pulses, uniform_field, value_noise
from nurec_lite.capture.simulate.solids import AXLE, CLEARANCE, SIDE_INSET, WHEEL_RADIUS, Material
from nurec_lite.capture.simulate.world import CROSSING_EVERY, CROSSING_HALF, FIRST_CROSSING, KERB, PAVEMENT, bend

SUN = (-0.42, -0.50, 0.76)  # direction towards it: behind us, to the right
SUN_LIGHT = (1.75, 1.62, 1.40)
SKY_LIGHT = (0.30, 0.36, 0.46)
HAZE = (0.66, 0.76, 0.88)


def mix(a: Tensor, b: Tensor, share: Tensor) -> Tensor:  # [n, 3], [n, 3] or [3], [n] -> [n, 3]
    return a + share[:, None] * (b - a)


def _rgb(like: Tensor, *colour: float) -> Tensor:  # [3]
    return like.new_tensor(colour)


def _grain(s: Surface, points: Tensor, size: float, amount: float, *keys: Tensor | int) -> Tensor:  # [n, 1] about 1
    """Speckles of a size in metres that fade where a ray's footprint grows to that size: only large images show any."""
    fade = (1 - s.distance * s.spread / s.cosine / size).clamp(0, 1)
    return (1 + amount * fade * (value_noise(points / size, *keys) - 0.5))[:, None]


def _ground(s: Surface, seed: int) -> Tensor:
    """Asphalt with markings, kerb, pavement, grass; side streets cut through all of it."""
    x, y = s.point[:, 0], s.point[:, 1]
    middle, angle = bend(x)
    along, zero = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1), torch.zeros_like(x)
    across = (y - middle) * along[:, 0]
    foot_x = s.footprint(torch.cat([along, zero[:, None]], dim=1), s.direction)
    foot_y = s.footprint(torch.stack([-along[:, 1], along[:, 0], zero], dim=1), s.direction)
    flat = s.point[:, :2]
    patches = value_noise(flat / 2.5, seed, 1)
    asphalt = _rgb(x, 0.085, 0.087, 0.095) * (0.75 + 0.5 * patches)[:, None] * _grain(s, flat, 0.03, 0.7, seed, 13)
    paving = _rgb(x, 0.34, 0.32, 0.29) * (0.85 + 0.3 * value_noise(flat / 1.5, seed, 2))[:, None]
    grass = _rgb(x, 0.13, 0.21, 0.05) * (0.6 + 0.8 * value_noise(flat / 0.9, seed, 3))[:, None]
    white = _rgb(x, 0.72, 0.72, 0.68)
    from_crossing = torch.remainder(x - FIRST_CROSSING + CROSSING_EVERY / 2, CROSSING_EVERY) - CROSSING_EVERY / 2
    mouth = band(from_crossing, -CROSSING_HALF, CROSSING_HALF, foot_x)
    road = band(across, -KERB, KERB, foot_y)
    colour = mix(grass, paving, band(across, -PAVEMENT, PAVEMENT, foot_y))
    colour = mix(colour, _rgb(x, 0.50, 0.48, 0.45), band(across, -KERB - 0.22, KERB + 0.22, foot_y))
    colour = mix(colour, asphalt, torch.maximum(road, mouth))
    plain = 1 - band(from_crossing, -8.0, CROSSING_HALF, foot_x)
    dashes = pulses(x, 6.0, 0.5, foot_x) * band(across, -0.10, 0.10, foot_y) * plain
    edges = band(across.abs(), 3.28, 3.42, foot_y) * plain
    zebra = band(from_crossing, -7.2, -4.4, foot_x) * pulses(across, 1.1, 0.5, foot_y) * road
    return mix(colour, white, (dashes + edges + zebra).clamp(max=1))


def _wall(s: Surface, seed: int) -> Tensor:
    """Rows of windows in light frames, one to three metres apart as the wall's length wants it; a door in front."""
    gable_end = s.local_normal[:, 0].abs() > s.local_normal[:, 1].abs()
    half = torch.where(gable_end, s.half[:, 1], s.half[:, 0])
    u = torch.where(gable_end, s.local[:, 1], s.local[:, 0])
    v = s.local[:, 2] + s.half[:, 2]
    axis = F.one_hot(gable_end.to(torch.int64), 3).to(u.dtype)
    foot_u = s.footprint(axis, s.local_direction)
    foot_v = s.footprint(axis.roll(2, dims=1) * 0 + _rgb(u, 0, 0, 1), s.local_direction)
    period = 2 * half / ((2 * half - 0.8) / 2.7).floor().clamp(min=1)
    rows, columns = pulses(v, 3.0, 0.50, foot_v), pulses(u + half, period, 1.25 / period, foot_u)
    framed = pulses(v, 3.0, 0.60, foot_v) * pulses(u + half, period, 1.60 / period, foot_u)
    front = (s.local_normal[:, 1] < -0.5).to(u.dtype)
    doorway = band(u, -0.85, 0.85, foot_u) * band(v, 0.0, 2.55, foot_v) * front
    door = band(u, -0.60, 0.60, foot_u) * band(v, 0.0, 2.30, foot_v) * front
    cell = torch.stack([((u + half) / period).floor(), (v / 3.0).floor()]).to(torch.int64)
    chance = uniform_field(seed, s.row, cell[0], cell[1]).to(u.dtype)
    bright = (0.25 + 0.75 * torch.remainder(v / 3.0, 1.0)) * (0.4 + 0.6 * chance)
    glass = _rgb(u, 0.10, 0.15, 0.22) * bright[:, None] + _rgb(u, 0.20, 0.17, 0.12) * (chance > 0.8)[:, None]
    stains = 0.88 + 0.24 * value_noise(torch.stack([u, v], dim=1) / 1.7, seed, s.row)
    courses = 0.85 + 0.15 * pulses(v, 0.3, 0.9, 2 * foot_v)
    grain = _grain(s, torch.stack([u, v], dim=1), 0.05, 0.25, seed, 14) * courses[:, None]
    wall = mix(s.colour * stains[:, None] * grain, s.colour * 0.5, band(v, -1.0, 0.55, foot_v))
    wall = mix(wall, s.trim, (framed * (1 - doorway) + doorway).clamp(0, 1))
    wall = mix(wall, glass, rows * columns * (1 - doorway))
    return mix(wall, s.colour.roll(1, dims=1) * 0.45, door) * (0.8 + 0.2 * (v / 2.5).clamp(max=1))[:, None]


def _roof(s: Surface, seed: int) -> Tensor:
    tilt = F.normalize(
        torch.stack([torch.zeros_like(s.distance), -s.local_normal[:, 2], s.local_normal[:, 1]], 1), dim=1
    )
    courses = pulses(s.local[:, 2], 0.45, 0.5, s.footprint(tilt, s.local_direction))
    tiles = s.colour * (0.8 + 0.2 * courses + 0.25 * value_noise(s.local / 1.2, seed, s.row))[:, None]
    return torch.where((s.local_normal[:, 2].abs() < 0.2)[:, None], s.trim, tiles)


def foliage_normal(s: Surface, seed: int) -> Tensor:  # [n, 3]
    """Ruffles normals of leaves, so that a crown does not look like a balloon."""
    ruffle = torch.stack([value_noise(s.point / 0.4, seed, 10 + axis) - 0.5 for axis in range(3)], dim=1)
    return F.normalize(s.normal + 1.3 * ruffle, dim=1)


def _leaves(s: Surface, seed: int) -> Tensor:
    """Clumps of light and dark, finer ones only where the footprint lets them be seen; darker below."""
    fine = (1 - s.distance * s.spread / 0.15).clamp(0, 1)
    clumps = value_noise(s.point / 0.55, seed, 4) + fine * (value_noise(s.point / 0.22, seed, 5) - 0.5)
    height = (s.local[:, 2] / s.half[:, 2]).clamp(-1, 1)
    shade = (0.35 + 1.25 * clumps).clamp(min=0.15) * (0.85 + 0.2 * height)
    hue = 1 + 0.35 * _rgb(shade, 1.0, 0.2, -0.5) * (value_noise(s.point / 1.6, seed, 6) - 0.5)[:, None]
    return s.colour * hue * shade[:, None] * _grain(s, s.point, 0.06, 1.2, seed, 15)


def _body(s: Surface, seed: int) -> Tensor:
    """Paint over dark sills, with lamps and number plates at the ends."""
    x, y, z = (s.local / s.half).unbind(1)
    foot = s.distance * s.spread / s.half[:, 2]
    hub = torch.hypot(
        s.local[:, 0].abs() - 2 * AXLE * s.half[:, 0], s.local[:, 2] + s.half[:, 2] + CLEARANCE - WHEEL_RADIUS
    )
    dark = torch.maximum(band(z, -2.0, -0.62, foot), band(hub, -1.0, WHEEL_RADIUS + 0.06, s.distance * s.spread))
    colour = mix(s.colour * (0.88 + 0.12 * z)[:, None], _rgb(x, 0.03, 0.03, 0.03), dark)
    ends = (s.local_normal[:, 0].abs() > 0.8).to(x.dtype)
    lamps = band(z, -0.05, 0.48, foot) * band(y.abs(), 0.58, 0.93, foot) * ends
    lamp = torch.where((x > 0)[:, None], _rgb(x, 0.85, 0.85, 0.80), _rgb(x, 0.55, 0.02, 0.02))
    plate = band(z, -0.42, -0.12, foot) * band(y, -0.28, 0.28, foot) * ends
    grille = band(z, -0.05, 0.35, foot) * band(y, -0.45, 0.45, foot) * ends * (x > 0)
    colour = mix(colour, _rgb(x, 0.02, 0.02, 0.02), grille)
    return mix(mix(colour, _rgb(x, 0.75, 0.75, 0.70), plate), lamp, lamps)


def cabin_glass(s: Surface) -> Tensor:  # [n] share of the footprint that is window
    """Windows all around, between pillars that lean with the cabin's sides, below the roof."""
    x, y, z = s.local.unbind(1)
    foot = s.distance * s.spread
    up = (z / s.half[:, 2] + 1) / 2  # 0 at the foot, 1 at the roof
    rear, front = s.trim[:, 0] * up - s.half[:, 0], s.half[:, 0] - s.trim[:, 1] * up
    width = s.half[:, 1] - SIDE_INSET * up
    side = band(x, rear + 0.10, front - 0.08, foot) * (1 - band(x, -0.06, 0.06, foot))
    ends = band(y, 0.07 - width, width - 0.07, foot)
    is_side = s.local_normal[:, 1].abs() > s.local_normal[:, 0].abs()
    window = torch.where(is_side, side, ends) * band(z, 0.04 - s.half[:, 2], s.half[:, 2] - 0.07, foot)
    return torch.where(s.local_normal[:, 2] > 0.9, torch.zeros_like(window), window)


def _cabin(s: Surface, seed: int) -> Tensor:
    up = (s.local[:, 2] / s.half[:, 2] + 1) / 2
    glass = _rgb(up, 0.035, 0.05, 0.065) * (0.5 + 1.2 * up)[:, None]
    return mix(s.colour, glass, cabin_glass(s))


def _wheel(s: Surface, seed: int) -> Tensor:
    radius = torch.hypot(s.local[:, 0], s.local[:, 2])
    return mix(s.colour, s.trim, band(radius, -1.0, 0.6 * WHEEL_RADIUS, s.distance * s.spread))


def _plain(s: Surface, seed: int) -> Tensor:
    return s.colour


_PAINTS: dict[Material, Callable[[Surface, int], Tensor]] = {
    Material.GROUND: _ground, Material.WALL: _wall, Material.ROOF: _roof, Material.LEAVES: _leaves,
    Material.BODY: _body, Material.CABIN: _cabin, Material.WHEEL: _wheel, Material.PLAIN: _plain,
}  # fmt: skip


def albedo(
    s: Surface,
    seed: int,
) -> Tensor:  # [n, 3]
    result = torch.zeros_like(s.colour)
    for material, paint in _PAINTS.items():
        here = (s.material == int(material)).nonzero()[:, 0]
        if len(here):
            result[here] = paint(s.select(here), seed)
    return result


def lit(
    s: Surface,
    colour: Tensor,  # [n, 3] albedo
    sunlit: Tensor,  # [n] 1 where the sun reaches
    seed: int,
) -> Tensor:  # [n, 3]
    """Lambert's law for the sun, a sky that is brighter above, light through leaves, and haze with distance."""
    sun = F.normalize(_rgb(colour, *SUN), dim=0)
    facing = (s.normal * sun).sum(1).clamp(min=0)
    leaves = (s.material == int(Material.LEAVES)).nonzero()[:, 0]
    facing[leaves] = (0.25 + 0.75 * (foliage_normal(s.select(leaves), seed) * sun).sum(1)).clamp(min=0)
    sunlit = sunlit.clone()
    sunlit[leaves] = 0.45 + 0.55 * sunlit[leaves]  # some light comes through
    direct = facing * sunlit
    ambient = 0.65 + 0.35 * s.normal[:, 2]
    light = direct[:, None] * _rgb(colour, *SUN_LIGHT) + ambient[:, None] * _rgb(colour, *SKY_LIGHT)
    return mix(colour * light, _rgb(colour, *HAZE), 1 - torch.exp(-(s.distance / 260).square()))


def sky(
    directions: Tensor,  # [n, 3] unit
    seed: int,
) -> Tensor:  # [n, 3]
    """Colours of the sky: pale at the horizon, blue above, with soft clouds and a glow about the sun."""
    up = directions[:, 2].clamp(min=0)
    colour = mix(_rgb(up, *HAZE).expand(len(up), 3), _rgb(up, 0.24, 0.46, 0.86), 1 - torch.exp(-3.0 * up))
    plane = directions[:, :2] / (up + 0.25)[:, None]
    billows = 0.65 * value_noise(1.6 * plane, seed, 7) + 0.35 * value_noise(3.7 * plane, seed, 8)
    cloud = ((billows - 0.45) / 0.3).clamp(0, 1) * (up / 0.12).clamp(max=1)
    colour = mix(colour, _rgb(up, 0.96, 0.97, 0.98), 0.85 * cloud * cloud * (3 - 2 * cloud))
    angle = torch.acos((directions @ F.normalize(_rgb(up, *SUN), dim=0)).clamp(-1, 1))
    return colour + torch.exp(-(angle / math.radians(6)).square())[:, None] * _rgb(up, 1.0, 0.95, 0.8)
