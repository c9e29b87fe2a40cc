# SPDX-License-Identifier: Apache-2.0
"""The stage render_views: a scene from several views in one launch a stage, or from a few in one launch of all (kernels/raster_warps/views,
nurec_lite/native/inference_graphs.py), for rendering without training. On CUDA alone.

Letters: V views, N Gaussians, S static and A moving; R rays of all views.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.memory import MemoryShortError
from nurec_lite.base.ranges import span
from nurec_lite.base.rows import rows_of
from nurec_lite.base.transfer import upload
from nurec_lite.geometry.tracks import exist, key_rows
from nurec_lite.native.batched_views import begins_of
from nurec_lite.native.capacity import rounded_up
from nurec_lite.native.inference_graphs import MAX_CAPTURED_VIEWS, InferenceGraphs
from nurec_lite.native.operators.activate import activate
from nurec_lite.native.operators.move_actors import ActorArrays
from nurec_lite.native.operators.rays import pixels
from nurec_lite.native.operators.render_views import SceneArrays, SensorRays
from nurec_lite.native.operators.shared import has_lens, has_per_ray_origins, packed_view
from nurec_lite.native.warps import BEAMS, HEIGHT, MAX_LISTS, WIDTH, lists_of
from nurec_lite.scene.gaussians import BACKGROUND, seen
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import CameraView, LidarView

AnyView = CameraView | LidarView
Rendering = CameraImage | LidarReturns
Queued = tuple[Sequence[Rendering], Tensor]  # renders of views, and [2] int64 capacity that their lists need
Capacities = tuple[int, int]  # Gaussians seen, and entries
SLACK = 1.25  # capacity relative to the need of a launch of the same views
MAX_CAPACITY = 1 << 31  # as the operator takes it
UNLIMITED = (-1, -1)  # the host waits for the true number of entries
MAX_SPLIT_TILES = (
    20_000  # warp tiles; with fewer a launch would wait for its longest lists, so these are cut into segments
)
SEGMENT_ENTRIES = 384  # of one, as conf/opt/balanced_tiles.yaml has it


class BatchedRenderer:
    """Renders images and returns as the stages of warp tiles do, up to rounding, with any options of a training. Remembers where the
    background ends and the capacity that lists need, so that the host waits once a launch."""

    def __init__(self) -> None:
        self._capacities: dict[tuple[str, int, int], Capacities] = {}  # by sensor, V and N
        self._recorded = InferenceGraphs()
        self._most: dict[str, int] = {}  # views of a sensor that memory sufficed for, once it was too little
        self._node: Tensor | None = None  # the node, at its version, that the following holds for:
        self._version = -1
        self._begins = torch.zeros(1, dtype=torch.int64)  # [K + 2] first row of each node, and N
        self._still = 0

    @torch.no_grad()
    def __call__(self, stages: Any, scene: Scene, views: Sequence[AnyView]) -> tuple[Rendering, ...]:
        """The render of each view, in their order. UserError where there is no memory for even one."""
        found: dict[int, Rendering] = {}
        corrected = [stages.render.correct(view, scene.calibration) for view in views]
        for group in _by_sensor(corrected):
            with span("render_views"):
                some = [corrected[k] for k in group]
                found |= dict(zip(group, self._fitting(scene, some), strict=True))
        return tuple(found[k] for k in range(len(views)))

    def _fitting(self, scene: Scene, views: Sequence[AnyView]) -> list[Rendering]:
        """Views in groups: as many in each as fit into memory and into a launch."""
        sensor, found, first = views[0].sensor.name, [], 0  # type: str, list[Rendering], int
        most = max(1, MAX_LISTS // max(map(lists_of, views)))
        while first < len(views):
            some = views[first : first + min(most, self._most.get(sensor, most))]
            try:
                found += self._rendered(scene, some)
                first += len(some)
            except torch.OutOfMemoryError:
                if len(some) == 1:
                    raise MemoryShortError(
                        f"there is not enough memory on the GPU to render {sensor} from {len(scene.gaussians)} Gaussians; "
                        "use device=cpu, or a larger data.downscale"
                    ) from None
                self._most[sensor] = len(some) // 2
        return found

    def _rendered(self, scene: Scene, views: Sequence[AnyView]) -> Sequence[Rendering]:
        """Renders views; renders again with more capacity if that of the last launch was too small."""
        self._remember(scene)
        key = views[0].sensor.name, len(views), len(scene.gaussians)
        capacity = self._capacities.get(key, UNLIMITED)
        while True:
            found, needed = self._launched(scene, views, capacity)
            required = needed.tolist()
            enough = capacity == UNLIMITED or all(n <= most for n, most in zip(required, capacity, strict=True))
            wanted = (min(MAX_CAPACITY, rounded_up(int(SLACK * n))) for n in required)
            capacity = self._capacities[key] = tuple(map(max, capacity, wanted))  # type: ignore[assignment]
            if enough:
                return found

    def _launched(self, scene: Scene, views: Sequence[AnyView], capacity: Capacities) -> Queued:
        """Launches views: a few views by a recorded graph, once their capacity is known."""
        if len(views) <= MAX_CAPTURED_VIEWS and capacity != UNLIMITED:
            reads = scene.gaussians.node, self._begins, scene.tracks, *scene.parameters().values()
            found = self._recorded(views, reads, capacity, lambda places: self._queued(scene, places, capacity))
            if found is not None:
                return found
        return self._queued(scene, views, capacity)

    def _queued(self, scene: Scene, views: Sequence[AnyView], capacity: Capacities) -> Queued:
        gaussians = self._gathered(scene, views)
        rows = torch.stack([packed_view(view) for view in views])
        if isinstance(views[0], CameraView):
            return self._images(gaussians, rows, views, scene.sky, capacity)  # type: ignore[arg-type]
        return self._sweeps(gaussians, rows, views, capacity)  # type: ignore[arg-type]

    def _gathered(self, scene: Scene, views: Sequence[AnyView]) -> SceneArrays:
        """Static Gaussians as they are stored, and moving ones at the time of each view; transparent where they are absent."""
        g, tracks, s = scene.gaussians, scene.learned_tracks(), self._still
        times = torch.stack([view.moment() for view in views])
        keys = (key_rows(tracks.offsets, tracks.times.device), tracks.times, tracks.translations, tracks.quaternions)
        starts, track = self._begins[1:] - s, g.node[s:] - 1
        local = seen(activate(g), isinstance(views[0], LidarView))
        means, quats, velocities, rotations = torch.ops.nurec_lite.move_actors(
            ActorArrays(g.means[s:], local["quats"][s:], starts, *keys, times)
        )
        required = rows_of(exist(tracks, times), track, dim=1)
        return SceneArrays(
            local["means"][:s], local["quats"][:s], means, quats, velocities, local["scales"],
            local["opacities"][:s], local["opacities"][s:] * required, rows_of(rotations, track, dim=1),
            g.sh0, g.sh_rest, local["lidar"],
        )  # fmt: skip

    def _remember(self, scene: Scene) -> None:
        node = scene.gaussians.node
        if node is not self._node or node._version != self._version:  # relocations write into it
            self._begins, self._node, self._version = scene.first_rows(), node, node._version
            self._still = int(self._begins[BACKGROUND + 1])

    def _images(
        self, gaussians: SceneArrays, rows: Tensor, views: Sequence[CameraView], sky: Tensor, capacity: Capacities
    ) -> Queued:
        view, v = views[0], len(views)
        camera = view.camera
        none = rows.new_empty(0)
        rays = SensorRays(*pixels(view), none, none.long())
        size = [camera.width, camera.height, WIDTH, HEIGHT]
        warp_tiles = v * lists_of(view)
        out, distance, transmittance, _, directions, needed = self._blended(
            gaussians, rows, rays, size, 1, has_per_ray_origins(view), has_lens(view), warp_tiles, capacity
        )
        image = torch.ops.nurec_lite.over_sky(out, transmittance, sky.contiguous(), directions)
        shape = v, camera.height, camera.width
        of_views = image.view(*shape, 3), distance.view(shape), (1 - transmittance).view(shape)
        return [CameraImage(*one) for one in zip(*(t.unbind(0) for t in of_views), strict=True)], needed

    def _sweeps(self, gaussians: SceneArrays, rows: Tensor, views: Sequence[LidarView], capacity: Capacities) -> Queued:
        assert all(view.targets is None for view in views), "targets are for learning ranges"
        cells = views[0].lidar.cells(BEAMS, device=rows.device)
        sizes = [len(view.directions) for view in views]
        directions, fractions = (torch.cat([getattr(view, f) for view in views]) for f in ("directions", "fractions"))
        few = len(views) <= MAX_CAPTURED_VIEWS  # a launch that may be captured copies nothing from the host
        begins = begins_of(sizes, rows.device) if few else upload(torch.tensor([0, *sizes]).cumsum(0), rows.device)
        rays = SensorRays(directions, fractions, cells.edges, begins)
        out, distance, transmittance, median, _, needed = self._blended(
            gaussians, rows, rays, [], cells.columns, True, False, sum(sizes) // 32, capacity
        )
        returns = distance, median, out, transmittance
        return [LidarReturns(*one) for one in zip(*(t.split(sizes) for t in returns), strict=True)], needed

    def _blended(
        self,
        gaussians: SceneArrays,
        rows: Tensor,  # [V, 84]
        rays: SensorRays,
        size: list[int],
        columns: int,
        moving: bool,
        lenses: bool,
        warp_tiles: int,
        capacity: Capacities,
    ) -> tuple[Tensor, ...]:
        """Features [R, C], distance, transmittance, median [R], directions [R, 3] in the world, needed capacity [2]."""
        entries = SEGMENT_ENTRIES if warp_tiles <= MAX_SPLIT_TILES else 0  # else lists are whole
        found: tuple[Tensor, ...] = torch.ops.nurec_lite.render_views(
            gaussians, rows, rays, size, columns, moving, lenses, entries, capacity
        )
        return found


def _by_sensor(views: Sequence[AnyView]) -> list[list[int]]:
    """Numbers of the views that may be rendered together: those of one sensor, all with rays that move or all without."""
    groups: dict[tuple[int, bool], list[int]] = {}
    for k, view in enumerate(views):
        groups.setdefault((id(view.sensor), has_per_ray_origins(view)), []).append(k)
    return list(groups.values())
