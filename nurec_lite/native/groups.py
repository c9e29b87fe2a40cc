# SPDX-License-Identifier: Apache-2.0
"""Tensors that the operators torch.ops.nurec_lite.* take as one list, by their names.

Letters: S Gaussians that stand still and A that move, N = S + A, V of them visible; C features; R rays; T tiles of P rays, L entries of
all tiles' lists; K tracks, M keyframes, Q query times.
"""

from typing import NamedTuple

from torch import Tensor


class GaussianArrays(NamedTuple):
    """In world space, in metres; the operators subtract the centre of the view from means when they read them."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit, wxyz
    means: Tensor  # [A, 3]
    quats: Tensor  # [A, 4]
    velocities: Tensor  # [A, 3] metres a second
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N]


class RayArrays(NamedTuple):
    """As nurec_lite.splat.views.Rays has them."""

    origins: Tensor  # [R, 3] metres, relative to the centre of the view
    directions: Tensor  # [R, 3] unit
    delays: Tensor  # [R] seconds after the middle of the view
    targets: Tensor  # [R, 2] metres, or [0, 2]: none


class Lists(NamedTuple):
    """As nurec_lite.splat.tiles.PairList has them."""

    rays: Tensor  # [T, P] int64
    offsets: Tensor  # [T + 1] int64
    gaussians: Tensor  # [L] int64, or int32 of bundles
    visible: Tensor  # [N] uint8, or [0]: not known


class Grid(NamedTuple):
    """Cells over a lidar's sphere, and the rays that lie in them."""

    directions: Tensor  # [R, 3] unit, lidar frame
    edges: Tensor  # [bands - 1] radians of elevation, ascending


class Bounds(NamedTuple):
    """As nurec_lite.splat.project.Projection has them."""

    indices: Tensor  # [V] int64
    low: Tensor  # [V, 2]
    high: Tensor  # [V, 2]


class BoundsInPlace(NamedTuple):
    """As nurec_lite.splat.project.Projection has them for bundles."""

    indices: Tensor  # [V] int64
    there: Tensor  # [1] int64, so many of the V count
    bounds: Tensor  # [N, 4]


class CandidatesInPlace(NamedTuple):
    """The same of a lidar, whose bundles are told already."""

    indices: Tensor  # [V] int64
    there: Tensor  # [1] int64
    candidates: Tensor  # [N, 8] kernels/project/warp_tiles.h
    counts: Tensor  # [N] int32, how many they are


class BandBundles(NamedTuple):
    """A lidar's bundles without their rays, and the grid of their bands."""

    first: Tensor  # this and what follows as Bundles has them
    bins: Tensor
    heights: Tensor
    directions: Tensor  # and these as Grid
    edges: Tensor


class Bundles(NamedTuple):
    """A bundles of 32 rays, of a sweep by elevation; the last three are about a lidar's, in B bands of elevation."""

    rays: Tensor  # [A, 32] int64, -1 where a bundle has fewer
    first: Tensor  # [B + 1] int32 first bundle of a band
    bins: Tensor  # [B, 2048, 2] int32 first bundle that reaches beyond the begin of a bin of azimuth, and first behind its end
    heights: Tensor  # [B, 2] radians of elevation between which a band's rays lie


class Parts(NamedTuple):
    """Of lists that were cut, what the forward pass leaves for the backward pass; S parts at most."""

    first: Tensor  # [A + 1] int64 first part of a list
    bundle: Tensor  # [S] int32 whose list a part is of, -1: there is no such part
    left: Tensor  # [S, 4 + C, P] of each ray: kernels/raster_warps/blend/segments.h
    rows: Tensor  # [N, 20] Gaussians as rays read them


class SceneArrays(NamedTuple):
    """A scene at the times of V views, as one kind of sensor sees it; world, metres."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit, wxyz
    means: Tensor  # [V, A, 3]
    quats: Tensor  # [V, A, 4]
    velocities: Tensor  # [V, A, 3] metres a second
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [S]
    moving_opacities: Tensor  # [V, A]
    frames: Tensor  # [V, A, 4] unit, world from node
    sh0: Tensor  # [N, 1, 3]
    sh_rest: Tensor  # [N, S_h - 1, 3]
    lidar: Tensor  # [N, 2]


class SensorRays(NamedTuple):
    """What V views of a sensor measure along: the P pixels of an image, or the R rays of all sweeps. Views of several cameras bring
    their pixels each, R = V P."""

    directions: Tensor  # [P, 3] or [R, 3] unit, sensor frame
    fractions: Tensor  # [P] or [R] 0 at the start of a view, 1 at its end; or [1] of all
    edges: Tensor  # [bands - 1] radians of elevation, ascending, of a lidar
    begins: Tensor  # [V + 1] int64 first ray of each sweep, of a lidar


class Turned(NamedTuple):
    """How the K nodes of Gaussians that move are turned at the times of V views."""

    rotations: Tensor  # [V, K, 4] unit, world from node
    node: Tensor  # [A] int64 row of these, a Gaussian's


class KeptViews(NamedTuple):
    """Of several views, what the forward pass leaves for the backward pass: A lists, of P of their R rays each (32 of images, 16 of
    sweeps), their L entries, H rows of Gaussians that a view may see, and the parts of lists."""

    directions: Tensor  # [R, 3] unit, world
    delays: Tensor  # [R] seconds after its middle
    table: Tensor  # [A, P] int64 rays of a list, -1 where it has fewer
    offsets: Tensor  # [A + 1] int64
    gaussians: Tensor  # [L] int32 rows, nearest first in each bundle
    places: Tensor  # [V N] int32 row of Gaussian i as view v sees it; -1: it has none
    first: Tensor  # this and what follows as Parts has them
    bundle: Tensor
    left: Tensor
    rows: Tensor  # [H, 16] or [H, 20]


class KnownArrays(NamedTuple):
    """What is learned about a capture's sensors, as nurec_lite.scene.calibration.Calibration has it, and what it is asked: C cameras, K
    knots."""

    times: Tensor  # [K] float64 seconds of the knots
    moment: Tensor  # [] float64 seconds
    mount: Tensor  # [4, 3] rows of the sensor's axes on the rig, and its place there in metres
    velocity: Tensor  # [6] the sensor's turning and motion in its own axes, radians and metres a second
    rig_rotations: Tensor  # [K, 3]
    rig_translations: Tensor  # [K, 3]
    camera_rotations: Tensor  # [C, 3]
    camera_translations: Tensor  # [C, 3]
    exposure_drift: Tensor  # [C, K, 2, 3]
    camera_offsets: Tensor  # [C] seconds


class SeenArrays(NamedTuple):
    """N Gaussians, F images, K tracks."""

    means: Tensor  # [N, 3] in the frames of their nodes
    node: Tensor  # [N] int64, 0: the world, k + 1: track k
    lookouts: Tensor  # [F, 24] camera from world, rotation and translation, and the camera as a view's row has it
    valid: Tensor  # [F, K] bool
    quaternions: Tensor  # [F, K, 4] unit
    translations: Tensor  # [F, K, 3]


class PlacementArrays(NamedTuple):
    """Where Gaussians are seen, and how their nodes are turned: K nodes."""

    still_means: Tensor  # [S, 3] metres, world
    means: Tensor  # [A, 3]
    rotations: Tensor  # [K, 4] unit, world from node
    node: Tensor  # [A] int64 row of these


class Outputs(NamedTuple):
    """What the backward pass needs of what the forward pass gave."""

    out: Tensor  # [R, C] sum of w times feature
    distance: Tensor  # [R] metres, sum of w t
    transmittance: Tensor  # [R]


class ActorArrays(NamedTuple):
    """Gaussians in the frames of their tracks, keyframes, and when they are asked for."""

    means: Tensor  # [A, 3] metres
    quats: Tensor  # [A, 4] unit
    starts: Tensor  # [K + 1] int64 rows of track k: starts[k] to starts[k + 1]
    key_offsets: (
        Tensor  # [K + 1] int64 keyframes of track k likewise; one that has none stands at the origin, not turned
    )
    key_times: Tensor  # [M] float64 seconds, ascending in each track
    translations: Tensor  # [M, 3] metres
    quaternions: Tensor  # [M, 4] of any length
    times: Tensor  # [Q] float64 seconds


class MovedGrads(NamedTuple):
    """Gradients of what was moved."""

    d_means: Tensor  # [Q, A, 3]
    d_quats: Tensor  # [Q, A, 4]
    d_velocities: Tensor  # [Q, A, 3]
    d_rotations: Tensor  # [Q, K, 4]


class ToldArrays(NamedTuple):
    """Of a scene, what makes gradients of what rays tell: S Gaussians that stand still and A that move, N = S + A, at the times of V
    views."""

    means: Tensor  # [N, 3] metres, of which the first S are read
    quats: Tensor  # [N, 4] unit, likewise
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N] for cameras
    lidar_opacities: Tensor  # [N] for lidars, or [0]: they have none of their own
    lidar: Tensor  # [N, 2]
    stored_quats: Tensor  # [N, 4] of any length, or [0, 4]: gradients are those of activations


class MovedArrays(NamedTuple):
    """Of those that move, in the world."""

    means: Tensor  # [V, A, 3]
    quats: Tensor  # [V, A, 4] unit
    velocities: Tensor  # [V, A, 3]
    rotations: Tensor  # [V, K, 4] unit, of K nodes


class GivenArrays(NamedTuple):
    """Gradients that come by other ways than rays."""

    still_means: Tensor | None  # [S, 3]
    still_quats: Tensor | None  # [S, 4]
    scales: Tensor | None  # [3 N], or [1] that stands for all, as of the next three
    opacities: Tensor | None  # [N]
    lidar_opacities: Tensor | None  # [N]
    lidar: Tensor | None  # [2 N]
