# SPDX-License-Identifier: Apache-2.0
"""Sweeps as files in KITTI's layout: from the simulator, from the real drive, and altered as other programs write them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nurec_lite.capture.kitti.points import read_points
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.survey import survey
from nurec_lite.capture.kitti.sweeps import make_sweep
from nurec_lite.capture.simulate import SimulationConfig, simulate
from nurec_lite.geometry.lidar import Sweep

Points = np.ndarray  # [n, 4] float32
Change = Callable[[Points], Points]
TURN = 2 * np.pi


def simulated(beams: int, steps: int, elevation_deg: tuple[float, float], seed: int, n: int = 3) -> list[Points]:
    """Sweeps spread over a simulated drive, in KITTI's order; rays that did not return are left out, as in KITTI's files."""
    config = SimulationConfig(seed=seed, beams=beams, azimuth_steps=steps, elevation_deg=elevation_deg)
    capture = simulate(config)
    return [kitti_order(capture.sweeps[i].load()) for i in np.linspace(0, config.frames - 1, n).astype(int)]


def kitti_order(sweep: Sweep) -> Points:
    kept = sweep.select(sweep.returned)
    points = np.concatenate([kept.directions * kept.ranges[:, None], kept.intensities[:, None]], axis=1)
    return points[np.lexsort((azimuth(points), -kept.rings.numpy()))].astype("<f4")


def azimuth(points: Points) -> np.ndarray:  # [n] 0 to 2 pi
    return np.arctan2(points[:, 1], points[:, 0]) % TURN


def rings(points: Points) -> np.ndarray:  # [n] in KITTI's order: a ring ends where azimuth falls
    return np.concatenate([[0], np.cumsum(np.diff(azimuth(points)) < -np.pi)])


def distance(points: Points) -> np.ndarray:  # [n]
    return np.linalg.norm(points[:, :3], axis=1)


def write(folder: Path, sweeps: list[Points], change: Change = lambda points: points) -> list[Path]:
    paths = [folder / f"{i:010d}.bin" for i in range(len(sweeps))]
    for path, points in zip(paths, sweeps, strict=True):
        path.write_bytes(np.ascontiguousarray(change(points), dtype="<f4").tobytes())
    return paths


def read(folder: Path, sweeps: list[Points], change: Change = lambda points: points) -> tuple[Scan, list[Sweep]]:
    """The drive's scan, and its sweeps with forward time 7 s and a period of 0.1 s."""
    paths = write(folder, sweeps, change)
    scan = survey(paths)
    return scan, [make_sweep(read_points(path), scan, 7.0, 0.1, name=path.name) for path in paths]


# ---- orders


def in_columns(points: Points, step: float = TURN / 2048, clockwise: bool = True, start: float = np.pi) -> Points:
    sign = 1 if clockwise else -1
    column = np.floor(sign * (start - azimuth(points)) % TURN / step)
    return points[np.lexsort((rings(points), column))]


def stored(points: Points, start: float = 0.0, sense: int = 1, up: bool = False) -> Points:
    ring = rings(points)
    return points[np.lexsort((sense * (azimuth(points) - start) % TURN, -ring if up else ring))]


def shuffled(points: Points) -> Points:
    return points[np.random.default_rng(2).permutation(len(points))]


def twice(points: Points, blocks: bool) -> Points:
    """The strongest return and the last one, which lies farther for a third of the rays."""
    rng, last = np.random.default_rng(1), points.copy()
    farther = rng.random(len(points)) < 0.3
    last[farther, :3] *= rng.uniform(1.05, 1.5, farther.sum())[:, None].astype("f4")
    last[:, 3] *= 0.8
    return np.concatenate([points, last]) if blocks else np.stack([points, last], axis=1).reshape(-1, 4)


# ---- crops


def front(points: Points) -> Points:
    return points[(points[:, 0] > 0) & (np.abs(points[:, 1]) < points[:, 0])]


def frustum(points: Points) -> Points:  # of KITTI's image_02
    ahead = points[points[:, 0] > 0]
    u, v = 721 * -ahead[:, 1] / ahead[:, 0] + 609, 721 * -ahead[:, 2] / ahead[:, 0] + 172
    return ahead[(u > 0) & (u < 1242) & (v > 0) & (v < 375)]


def box(points: Points) -> Points:  # as detectors are trained on
    x, y, z = points[:, :3].T
    return points[(x > 0) & (x < 70.4) & (np.abs(y) < 40) & (z > -3) & (z < 1)]


def thinned(points: Points, share: float = 0.5) -> Points:
    return points[np.random.default_rng(0).random(len(points)) < share]


def voxels(points: Points, size: float = 0.2) -> Points:
    """Means of the points of each voxel, in the order of the voxels."""
    _, voxel, counts = np.unique(
        np.floor(points[:, :3] / size).astype(int), axis=0, return_inverse=True, return_counts=True
    )
    sums = np.zeros((len(counts), 4))
    np.add.at(sums, voxel.ravel(), points)
    return sums / counts[:, None]
