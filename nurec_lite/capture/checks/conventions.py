# SPDX-License-Identifier: Apache-2.0
"""Conventions that poses may be written in, and the one that fits the motions that the sweeps show.

Letters: n poses at the middles of a lidar's sweeps. Axes are described by the directions of x, y and z on the vehicle.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate, chain, permutations, product

import torch
from torch import Tensor

from nurec_lite.capture.checks.corrected import with_mounting, with_poses, with_ranges, with_rays
from nurec_lite.capture.checks.motion import Motions, Poses
from nurec_lite.capture.checks.register import exp, log
from nurec_lite.capture.checks.tilts import posed_with, turn_of, turned, words_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import invert

# excess of motions under a convention that fits, at most, and how many times less than under poses as they are
FITS, BETTER = 0.7, 3.0
# the same where the excess under the poses as they are is not more than right poses may have
CLOSELY, CLEARLY = 0.35, 2.2
SHIFTS = 10  # frames that poses may be early or late
SAME_SCALE = 0.07  # a scale is 1 within this
MOVED = 0.5  # metres that a lidar moves, at least, for a scale to be known
PENALTY = 0.05  # of excess, for a scale or for other axes: the plainest convention is named first
# penalty of a rig that does not move along its x axis, and the part of its way that it does at least
BESIDE, AHEAD = 0.3, 0.8
TIE, ALSO = 0.1, 2  # of excess: another convention fits about as well; number of those that are named
PLAIN = ("mount", "shift", "reading", "scale", "ranges", "rig", "lidar")  # families that may share a sentence
MADE = "where the capture was made"
INVERTED, RELATIVE = "they are inverted (T_rig_world)", "each is relative to the frame before or after it"
_WORDS = {0: ("forward", "backward"), 1: ("left", "right"), 2: ("up", "down")}


class Blamed(Enum):
    """The possible places of a mistake."""

    POSES = 1  # several lidars disagree with them
    LIDAR = 2  # another one agrees with the poses
    EITHER = 3  # there is one lidar


@dataclass(frozen=True)
class Convention:
    """A way to read the poses, or the mounting and the rays of a lidar."""

    meaning: str  # completes "the poses fit if"
    remedy: str
    posed: Tensor  # [m, 4, 4] T_a_b of the lidar, of each motion
    corrected: Callable[[Capture], Capture]
    penalty: float = 0.0
    lidar: str | None = None  # with a wrong mounting or wrong rays; None: the poses are wrong
    mirrors: bool = False
    within: float = math.nan  # metres of error of the points that it places, once it fits
    family: str = ""  # a sentence names the best convention of a family
    ranges: float = 1.0  # factor of the lidar's ranges
    others: "tuple[Convention, ...]" = ()  # fit about as well

    def odds(self, motions: Motions, mirrored: Collection[str]) -> float:
        """The excess and all that speaks against the convention; the least is the best."""
        ways = motions.of_rig(motions.posed if self.lidar else self.posed)[:, :3, 3]
        ahead = float(ways[:, 0].sum() / ways.norm(dim=1).sum().clamp(min=1e-6))
        beside = BESIDE * (abs(ahead) < AHEAD) + PENALTY * (ahead < 0)
        seen = self.mirrors and self.lidar in mirrored
        return motions.excess(self.posed) + self.penalty + beside - BESIDE * seen


def fitting(
    capture: Capture,
    motions: Motions,  # known ones
    poses: Poses,
    blamed: Blamed,
    mirrored: Collection[str],  # lidars with rays that turn the other way than they say
) -> Convention | None:
    """The convention that gives the motions that the sweeps show; None: no known one."""
    given = motions.excess(motions.posed)
    most = min(FITS, given / BETTER) if given > 1 else min(CLOSELY, given / CLEARLY)
    conventions = [
        *(_conventions(capture, motions, poses) if blamed is not Blamed.LIDAR else ()),
        *(_of_lidar(motions) if blamed is not Blamed.POSES else ()),
    ]
    fit = [convention for convention in conventions if motions.excess(convention.posed) < most]
    known = {id(c): c.odds(motions, mirrored) for c in fit}
    best = min(fit, key=lambda c: known[id(c)], default=None)
    if best is None:
        return None
    alike = {best.family: best}
    for c in sorted(fit, key=lambda c: known[id(c)]):
        if known[id(c)] <= known[id(best)] + TIE and c.family in PLAIN:
            alike.setdefault(c.family, c)
    if "reading" in alike:  # a key says the same
        alike.pop("mount", None)
    best, *others = alike.values()
    return replace(best, within=motions.apart(best.posed), others=tuple(others[:ALSO]))


def _conventions(capture: Capture, motions: Motions, poses: Poses) -> Iterator[Convention]:
    times = {name: torch.tensor([f.time_mid for f in capture.sweeps if f.sensor == name]).double() for name in poses}
    for reading in capture.readings:
        read = {name: reading.poses(t) for name, t in times.items()}
        yield _of_poses(reading.meaning, reading.remedy, read, motions, family="reading")
    for name, remedy, change in _families(capture):
        changed = {lidar: change(T) for lidar, T in poses.items()}
        also, family = f"{name} and " if name else "", _family(name)
        yield _of_poses(name, remedy, changed, motions, PENALTY, family)
        yield from _scaled(also, changed, motions)
        if name in ("", INVERTED, RELATIVE):
            yield from _turned(also, changed, motions)
    yield from _of_positions(poses, motions)
    yield from _of_rig(poses, motions)


def _family(name: str) -> str:
    """Family of a reading of _families by the end or the beginning of its name."""
    kinds = {"they are those of": "mount", " too early": "shift", " too late": "shift"}
    return next((family for words, family in kinds.items() if words in name), name)


# ---- the poses


Change = Callable[[Tensor], Tensor]  # [n, 4, 4] -> [n, 4, 4]


def _of_poses(
    meaning: str, remedy: str, poses: Poses, motions: Motions, penalty: float = 0.0, family: str = ""
) -> Convention:
    return Convention(meaning, remedy, motions.posed_by(poses), with_poses(poses), penalty, family=family or meaning)


def _families(capture: Capture) -> Iterator[tuple[str, str, Change]]:
    """Possible meanings of poses, each with its remedy and its reading; the first leaves them as they are."""
    yield "", "", lambda T: T
    yield INVERTED, f"invert them {MADE}", invert
    yield RELATIVE, f"chain them {MADE}", _chained
    yield "their rotations are transposed", f"transpose the rotations {MADE}", _transposed
    for sensor, T_rig_sensor in _mountings(capture):
        lidar = sensor in {known.name for known in capture.lidars}
        mended = "multiply them by the inverse of its mounting" + (", or correct T_rig_lidar" if lidar else "")
        remedy = f"{mended} {MADE}"
        yield f"they are those of {sensor}", remedy, _mounted(T_rig_sensor)
    for k in chain.from_iterable((k, -k) for k in range(1, SHIFTS + 1)):
        way = "early" if k > 0 else "late"
        yield (
            f"they are {abs(k)} frame{'s' * (abs(k) > 1)} too {way}",
            f"give each frame its own pose {MADE}",
            _shifted(k),
        )
    yield "their rotations are in degrees", f"give rotations in radians {MADE}", _in_radians(math.pi / 180)
    yield "their rotations were turned into radians twice", f"give them in radians {MADE}", _in_radians(180 / math.pi)


def _chained(T: Tensor) -> Tensor:
    start = torch.eye(4, dtype=T.dtype)
    return torch.stack(list(accumulate((start, *T[:-1]), torch.matmul)))


def _transposed(T: Tensor) -> Tensor:
    turned = T.clone()
    turned[:, :3, :3] = T[:, :3, :3].transpose(1, 2)
    return turned


def _mountings(capture: Capture) -> Iterator[tuple[str, Tensor]]:
    yield from ((camera.name, camera.T_rig_cam.double()) for camera in capture.cameras[:1])
    yield from ((lidar.name, lidar.T_rig_lidar.double()) for lidar in capture.lidars)


def _mounted(T_rig_sensor: Tensor) -> Change:
    return lambda T: T @ invert(T_rig_sensor)


def _shifted(k: int) -> Change:
    """Frame i has the pose of frame i + k."""
    return lambda T: T[(torch.arange(len(T)) + k).clamp(0, len(T) - 1)]


def _in_radians(factor: float) -> Change:
    def change(T: Tensor) -> Tensor:
        steps = torch.cat([log(T[:1])[:, :3], log(invert(T[:-1]) @ T[1:])[:, :3]]) * factor
        turned = torch.stack(list(accumulate(exp(torch.cat([steps, torch.zeros_like(steps)], dim=1)), torch.matmul)))
        turned[:, :3, 3] = T[:, :3, 3]
        return turned

    return change


# ---- scales and axes


def _scaled(also: str, poses: Poses, motions: Motions) -> Iterator[Convention]:
    s = _scale(motions.posed_by(poses), motions)
    if s is not None and abs(s - 1) > SAME_SCALE:
        what = (
            f"{also}their translations are too {'small' if s > 1 else 'large'} by a factor of {_plain(max(s, 1 / s))}"
        )
        longer = {name: _with_positions(T, s * T[:, :3, 3]) for name, T in poses.items()}
        remedy, penalty = f"multiply their translations by {_plain(s)} {MADE}", (3 if also else 2) * PENALTY
        yield _of_poses(what, remedy, longer, motions, penalty, also or "scale")


def _scale(posed: Tensor, motions: Motions) -> float | None:
    """The factor that makes the ways those that the sweeps show."""
    ways, said = motions.measured[:, :3, 3], posed[:, :3, 3]
    s = float((ways * said).sum() / said.square().sum().clamp(min=1e-12))
    return s if 1e-4 < s < 1e4 and float(ways.norm(dim=1).median()) > MOVED else None


def _plain(number: float) -> str:
    """Writes a number with three digits and without an exponent."""
    return f"{float(f'{number:.3g}'):f}".rstrip("0").rstrip(".")


def _with_positions(T: Tensor, positions: Tensor) -> Tensor:
    moved = T.clone()
    moved[:, :3, 3] = positions
    return moved


def _turned(also: str, poses: Poses, motions: Motions) -> Iterator[Convention]:
    """Axes of the vehicle other than x forward, y left, z up."""
    remedy = f"turn them into axes with x forward, y left and z up {MADE}"
    for B in signed_permutations():
        x, y, z = directions(B)
        hand, dear = ("", 1.5) if float(torch.linalg.det(B)) > 0 else ("left-handed ", 2)
        changed = {name: four(B) @ T @ four(B).T for name, T in poses.items()}
        meaning = f"{also}they are in {hand}axes with x {x}, y {y} and z {z}"
        yield _of_poses(meaning, remedy, changed, motions, dear * PENALTY + _changes(B))


def _of_positions(poses: Poses, motions: Motions) -> Iterator[Convention]:
    """Positions in a world with other axes than that of the rotations."""
    for B in signed_permutations():
        changed = {name: _with_positions(T, T[:, :3, 3] @ B.T) for name, T in poses.items()}
        meaning = f"their positions, unlike their rotations, are in other axes: {_rows(B)} are right"
        yield _of_poses(meaning, f"give positions as {_rows(B)} {MADE}", changed, motions, 3 * PENALTY + _changes(B))


def four(B: Tensor) -> Tensor:  # [3, 3] -> [4, 4]
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = B
    return T


def signed_permutations() -> Iterator[Tensor]:
    """All matrices [3, 3] that exchange or reverse axes, but for the identity."""
    for order in permutations(range(3)):
        for signs in product((1.0, -1.0), repeat=3):
            B = torch.diag(torch.tensor(signs, dtype=torch.float64))[:, list(order)]
            if float(B.trace()) < 3:
                yield B


def _changes(B: Tensor) -> float:
    """A penalty: the fewer axes change, the plainer."""
    return 0.2 * PENALTY * int((B.diagonal() != 1).sum())


def directions(B: Tensor) -> list[str]:
    """Directions on the vehicle, in words, of axes x, y and z that B [3, 3] maps to the vehicle's axes."""
    rows = B.abs().argmax(0).tolist()
    return [_WORDS[row][int(B[row, k] < 0)] for k, row in enumerate(rows)]


def _rows(B: Tensor) -> str:
    """Text of the rows, such as (y, -x, z)."""
    return f"({', '.join(('-' if row.sum() < 0 else '') + 'xyz'[int(row.abs().argmax())] for row in B)})"


def _of_rig(poses: Poses, motions: Motions) -> Iterator[Convention]:
    """A rig that is turned against all its sensors."""
    R = turn_of(motions)
    if R is not None:
        changed = {name: T @ four(R) for name, T in poses.items()}
        meaning = f"the mountings of all sensors are turned {words_of(R)} on the rig"
        remedy = f"turn them so, or multiply T_world_rig by this turn from the right, {MADE}"
        yield _of_poses(meaning, remedy, changed, motions, 2.2 * PENALTY, "rig")


# ---- a lidar


def _of_lidar(motions: Motions) -> Iterator[Convention]:
    """Returns the conventions that fit the motions of one lidar."""
    lidar, rig, R, s = motions.lidar, motions.of_rig(motions.posed), turn_of(motions), _scale(motions.posed, motions)
    X = lidar.T_rig_lidar.double()
    if R is not None:
        yield Convention(
            f"T_rig_lidar of {lidar.name} is turned {words_of(R)}", f"turn it so {MADE}", posed_with(motions, R),
            with_mounting(lidar.name, lambda T: turned(T, R)), 2 * PENALTY, lidar.name, family="lidar",
        )  # fmt: skip
    if s is not None and abs(s - 1) > SAME_SCALE:
        many = f"too {'large' if s > 1 else 'small'} by a factor of {_plain(max(s, 1 / s))}"
        yield Convention(
            f"the ranges of {lidar.name} are {many}", f"multiply ranges by {_plain(1 / s)} {MADE}",
            _with_positions(motions.posed, s * motions.posed[:, :3, 3]), with_ranges(lidar.name, 1 / s), 2.2 * PENALTY,
            lidar.name, family="ranges", ranges=1 / s,
        )  # fmt: skip
    yield Convention(
        f"T_rig_lidar of {lidar.name} is inverted", f"invert it {MADE}", X @ rig @ invert(X),
        with_mounting(lidar.name, invert), 1.5 * PENALTY, lidar.name,
    )  # fmt: skip
    for B in signed_permutations():  # rays d are B d in the lidar's axes: read as stored, a motion T is B^-1 T B
        yield Convention(
            f"the rays of {lidar.name} are in other axes", f"give their directions as {_rows(B)} {MADE}",
            four(B).T @ motions.posed @ four(B), with_rays(lidar.name, B), 4 * PENALTY + _changes(B), lidar.name,
            float(torch.linalg.det(B)) < 0,
        )  # fmt: skip
