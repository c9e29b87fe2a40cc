# SPDX-License-Identifier: Apache-2.0
"""The simulated street: its course, houses, trees and parked cars.

Street coordinates: x as in the world, `across` metres to the left of the centre line. The ego car drives on the right.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.simulate.noise import uniform
from nurec_lite.capture.simulate.solids import Material, Solid, Triple, box, gable, moved
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.geometry.lens import COEFFICIENTS, LENSES

KERB = 5.5  # metres from the centre line to the edge of the road
PAVEMENT = 8.3  # to the outer edge of the pavement
FIRST_CROSSING, CROSSING_EVERY, CROSSING_HALF = 27.0, 68.0, 3.6  # metres along x: side streets
WIDEST_PINHOLE = 170  # degrees
PATTERNS = ("spinning", "rosette", "wandering")  # of the lidar
ROLLING = tuple(name for name in SHUTTERS if name != "global")
_BEND, _BEND_LENGTH = 5.0, 260.0  # metres: how far the street swings out, and its period


_LIMITS: dict[str, tuple[float, float]] = {
    "seed": (0, 2**32 - 1), "frames": (1, 10**5), "cameras": (1, 64), "width": (1, 8192), "height": (1, 8192), "beams": (1, 1024),
    "azimuth_steps": (1, 1 << 16), "samples": (1, 64), "rate_hz": (0.01, 1e4), "hfov_deg": (1, 300), "distortion": (-10, 10),
    "readout_s": (0, 1), "elevation_deg": (-90, 90), "max_range": (1, 1e5), "range_noise_m": (0, 100), "speed": (0, 100),
    "moving_cars": (0, 1000), "parked_cars": (0, 1000), "exposure_spread": (0, 1), "exposure_drift": (0, 0.9), "image_noise": (0, 1),
    "field_deg": (1, 170), "bonnet": (0, 0.9),
}  # fmt: skip


@dataclass(frozen=True)
class SimulationConfig:
    """A drive to simulate. Any number and size of sensors; the defaults make the bundled capture."""

    seed: int = 0
    frames: int = 50
    rate_hz: float = 10.0
    cameras: int = 2  # 1 looks ahead, 2 look ahead side by side, more look all around
    width: int = 192  # pixels
    height: int = 96
    hfov_deg: float = 75.0  # horizontal field of view
    lens: str = "pinhole"  # or fisheye, or ftheta
    distortion: tuple[float, ...] = ()  # coefficients of the lens (nurec_lite/geometry/lens.py)
    readout_s: float = 0.02  # rolling shutter; 0 is a global shutter
    shutter: str = "top_to_bottom"  # or bottom_to_top, left_to_right, right_to_left
    samples: int = 3  # rays a pixel, along either side
    beams: int = 32
    azimuth_steps: int = 400  # rays a beam and revolution
    elevation_deg: tuple[float, float] = (-25.0, 20.0)  # lowest and highest beam
    pattern: str = (
        "spinning"  # or as many rays as a rosette, the same in all sweeps; wandering: a rosette, another in each sweep
    )
    field_deg: float = 70.0  # full angle of a rosette
    max_range: float = 100.0  # metres
    range_noise_m: float = 0.015  # standard deviation
    drop_rays: bool = True  # weak and mirrored returns go missing
    speed: float = 8.0  # metres a second
    moving_cars: int = 3
    parked_cars: int = 14
    exposure_spread: float = 0.12  # gains of the cameras' channels lie within 1 +- this
    exposure_drift: float = 0.0  # the gain of a camera swings by this share over time, as automatic exposure does
    image_noise: float = 0.003  # standard deviation, of full scale
    bonnet: float = 0.0  # share of the images' height that the ego car's bonnet covers

    def __post_init__(self) -> None:
        for name in ("frames", "cameras", "width", "height", "samples", "beams", "azimuth_steps"):
            if getattr(self, name) < 1:
                raise CaptureError(f"{name} is {getattr(self, name)}, but must be at least 1; correct it")
        if self.lens not in LENSES:
            raise CaptureError(f"lens is '{self.lens}', but must be one of {', '.join(LENSES)}; correct it")
        if self.lens == "pinhole" and self.hfov_deg > WIDEST_PINHOLE:
            raise CaptureError(
                f"hfov_deg is {self.hfov_deg:g}, but a pinhole sees {WIDEST_PINHOLE} degrees at most; use lens fisheye"
            )
        if self.distortion and len(self.distortion) not in COEFFICIENTS[self.lens][1]:
            counts = " or ".join(map(str, COEFFICIENTS[self.lens][1]))
            raise CaptureError(
                f"distortion has {len(self.distortion)} numbers, but a {self.lens} lens has {counts}; correct it"
            )
        for name, choices in (("shutter", ROLLING), ("pattern", PATTERNS)):
            if getattr(self, name) not in choices:
                raise CaptureError(
                    f"{name} is '{getattr(self, name)}', but must be one of {', '.join(choices)}; correct it"
                )
        for name, (low, high) in _LIMITS.items():
            values = getattr(self, name)
            if not all(low <= value <= high for value in (values if isinstance(values, tuple) else (values,))):
                raise CaptureError(f"{name} is {values}, but must lie between {low:g} and {high:g}; correct it")

    @property
    def duration(self) -> float:
        return self.frames / self.rate_hz

    @property
    def travel(self) -> float:
        return self.speed * self.duration


def bend(
    x: Tensor,  # [...] metres
) -> tuple[Tensor, Tensor]:  # y of the centre line in metres, its direction in radians
    k = 2 * math.pi / _BEND_LENGTH
    return _BEND * (1 - torch.cos(k * x)), torch.atan(_BEND * k * torch.sin(k * x))


def on_street(
    x: Tensor,  # [...] metres
    across: Tensor,  # [...] metres
    heading: Tensor,  # [...] radians from the direction of the street
) -> tuple[Tensor, Tensor, Tensor]:  # world x, y, yaw
    y, direction = bend(x)
    return x - across * torch.sin(direction), y + across * torch.cos(direction), direction + heading


def place(solids: list[Solid], x: float, across: float, heading: float = 0.0, z: float = 0.0) -> list[Solid]:
    at = on_street(*(torch.tensor(v, dtype=torch.float64) for v in (x, across, heading)))
    return [moved(solid, at[0].item(), at[1].item(), z, at[2].item()) for solid in solids]


def nearest_crossing(x: float) -> float:
    """The middle of the side street that is nearest to x."""
    return FIRST_CROSSING + CROSSING_EVERY * round((x - FIRST_CROSSING) / CROSSING_EVERY)


def is_free(x: float, half_length: float) -> bool:
    """Whether so much street about x keeps out of the side streets' mouths."""
    return abs(x - nearest_crossing(x)) > CROSSING_HALF + half_length


# Solids along the street

_WALLS: tuple[Triple, ...] = (
    (0.72, 0.66, 0.55), (0.62, 0.30, 0.20), (0.80, 0.76, 0.70), (0.70, 0.52, 0.28),
    (0.50, 0.58, 0.62), (0.66, 0.44, 0.36), (0.56, 0.60, 0.46), (0.38, 0.20, 0.15),
)  # fmt: skip
_ROOFS: tuple[Triple, ...] = ((0.32, 0.10, 0.06), (0.14, 0.13, 0.14), (0.24, 0.13, 0.09), (0.20, 0.21, 0.25))
_LEAVES: tuple[Triple, ...] = (
    (0.12, 0.22, 0.05), (0.17, 0.27, 0.07), (0.08, 0.17, 0.06), (0.36, 0.23, 0.06), (0.14, 0.23, 0.05),
)  # fmt: skip


def pick(options: tuple[Triple, ...], *keys: int) -> Triple:
    return options[int(uniform(0, len(options), *keys))]


def _house(size: Triple, seed: int, key: int) -> list[Solid]:
    """Walls, and a roof pitched for houses of two floors, flat with a cornice for higher ones; front towards -y."""
    length, width, height = size
    wall = pick(_WALLS, seed, key, 1)
    white = (0.78, 0.77, 0.74)
    solids = [Solid(Material.WALL, size, wall, white, box(size), (0.0, 0.0, 0.5 * height))]
    if height > 8.0:
        rim = (length + 0.3, width + 0.3, 0.5)
        return [*solids, Solid(Material.PLAIN, rim, white, planes=box(rim), centre=(0.0, 0.0, height + 0.25))]
    top = (length + 0.4, width + 0.9, uniform(2.2, 3.2, seed, key, 2))
    roof = pick(_ROOFS, seed, key, 3)
    solids.append(Solid(Material.ROOF, top, roof, wall, gable(top), (0.0, 0.0, height + 0.5 * top[2] - 0.02)))
    flue = (0.7, 0.6, 1.6)
    at = (uniform(-0.3, 0.3, seed, key, 4) * length, 0.12 * width, height + top[2] - 0.4)
    return [*solids, Solid(Material.PLAIN, flue, (0.30, 0.16, 0.12), planes=box(flue), centre=at)]


def _tree(height: float, clumps: int, seed: int, key: int) -> list[Solid]:
    """A trunk and a crown of ellipsoids: one in the middle, the others about it."""
    leaf = pick(_LEAVES, seed, key, 1)
    trunk = Solid(Material.PLAIN, (0.36, 0.36, 1.3 * height), (0.13, 0.09, 0.06))
    r = 0.27 * height
    crown = [Solid(Material.LEAVES, (2.1 * r, 2.1 * r, 2.3 * r), leaf, centre=(0.0, 0.0, 0.68 * height))]
    for i in range(clumps):
        angle = 2.4 * i + uniform(-0.4, 0.4, seed, key, 2, i)  # the golden angle spreads them evenly
        size = r * uniform(0.9, 1.35, seed, key, 3, i)
        rise = -0.65 + 1.6 * (i + 0.5) / clumps
        up, out = 0.68 * height + r * rise, r * (0.95 - 0.45 * abs(rise))
        at = (out * math.cos(angle), out * math.sin(angle), up)
        crown.append(Solid(Material.LEAVES, (size, size, 0.9 * size), leaf, centre=at))
    return [trunk, *crown]


def _lamp() -> list[Solid]:
    post, arm, head = (0.14, 0.14, 5.6), (0.10, 1.5, 0.10), (0.22, 0.6, 0.14)
    grey = (0.22, 0.24, 0.25)
    return [
        Solid(Material.PLAIN, post, grey, planes=box(post), centre=(0.0, 0.0, 2.8)),
        Solid(Material.PLAIN, arm, grey, planes=box(arm), centre=(0.0, -0.7, 5.55)),
        Solid(Material.PLAIN, head, (0.75, 0.75, 0.70), planes=box(head), centre=(0.0, -1.3, 5.5)),
    ]


def _sign() -> list[Solid]:
    post = (0.07, 0.07, 2.6)
    return [
        Solid(Material.PLAIN, post, (0.40, 0.42, 0.44), planes=box(post), centre=(0.0, 0.0, 1.3)),
        Solid(Material.PLAIN, (0.06, 0.64, 0.64), (0.02, 0.12, 0.50), centre=(-0.05, 0.0, 2.35)),
    ]


def _hedge(length: float, seed: int, key: int) -> list[Solid]:
    size = (length, 0.8, uniform(0.9, 1.4, seed, key, 1))
    return [Solid(Material.LEAVES, size, (0.08, 0.18, 0.05), planes=box(size), centre=(0.0, 0.0, 0.5 * size[2]))]


def _houses(seed: int, side: int, start: float, end: float) -> list[Solid]:
    """A row of houses and, where they stand back, hedges before them."""
    solids, x, i = [], start, 0
    while x < end:
        key = 1000 * (side + 2) + i
        length = uniform(8.0, 13.0, seed, key, 10)
        width = uniform(8.0, 10.0, seed, key, 11)
        height = 6.0 if uniform(0, 1, seed, key, 12) < 0.6 else 3.0 * int(uniform(3, 5, seed, key, 13))
        set_back = uniform(1.6, 3.4, seed, key, 14) if height < 8 else 0.4
        middle = x + 0.5 * length
        if is_free(middle, 0.5 * length):
            turn = 0.0 if side > 0 else math.pi
            across = side * (PAVEMENT + set_back + 0.5 * width)
            solids += place(_house((length, width, height), seed, key), middle, across, turn)
            if set_back > 1:
                solids += place(_hedge(0.38 * length, seed, key), middle - 0.3 * length, side * (PAVEMENT + 0.5), turn)
                solids += place(_hedge(0.38 * length, seed, key), middle + 0.3 * length, side * (PAVEMENT + 0.5), turn)
            x += length + uniform(0.6, 4.0, seed, key, 15)
        else:
            x += 1.0
        i += 1
    return solids


def _street_furniture(seed: int, side: int, start: float, end: float) -> list[Solid]:
    """Trees on the pavement every dozen metres, lamps between them."""
    solids, turn = [], 0.0 if side > 0 else math.pi
    for i in range(int((end - start) / 12)):
        key = 5000 * (side + 2) + i
        x = start + 12 * i + uniform(0, 4, seed, key, 20) + (5 if side < 0 else 0)
        if is_free(x, 2.0):
            height = uniform(5.0, 7.5, seed, key, 21)
            solids += place(_tree(height, 11, seed, key), x, side * uniform(7.2, 7.9, seed, key, 22), turn)
        if i % 2 == (side > 0) and is_free(x + 6, 1.0):
            solids += place(_lamp(), x + 6, side * (KERB + 0.5), turn)
    return solids


def _woods(x: float, across: float, count: int, along: float, seed: int, key: int) -> list[Solid]:
    """Large trees about a point, along a line across the street (along = 0) or parallel to it (along = 1)."""
    solids = []
    for i in range(count):
        height = uniform(8.0, 13.0, seed, key + i, 1)
        step, jitter = 5.0 * (i - 0.5 * (count - 1)), uniform(-4, 4, seed, key + i, 3)
        at = (x + along * step + (1 - along) * jitter, across + (1 - along) * step + along * jitter)
        solids += place(_tree(height, 5, seed, key + i), *at)
    return solids


def scenery(config: SimulationConfig) -> list[Solid]:
    start, end = -45.0, config.travel + 95.0
    solids = _woods(end + 22.0, 0.0, 26, 0.0, config.seed, 9000) + _woods(start - 26.0, 0.0, 26, 0.0, config.seed, 9100)
    for i in range(math.ceil((end - FIRST_CROSSING) / CROSSING_EVERY)):
        x = FIRST_CROSSING + CROSSING_EVERY * i
        solids += place(_sign(), x - 8.0, -KERB - 0.4)
        for side in (-1, 1):  # a horizon for the side streets
            solids += _woods(x, 60.0 * side, 9, 1.0, config.seed, 9200 + 100 * i + 50 * (side > 0))
    for side in (-1, 1):
        solids += _houses(config.seed, side, start, end) + _street_furniture(config.seed, side, start, end)
    return solids
