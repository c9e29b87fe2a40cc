# SPDX-License-Identifier: Apache-2.0
"""The Gaussians, tracks and query times of benchmarks/opt/bench_fused_interp.py: invented ones of any size, or those of a capture; and a
scene of the invented size for benchmarks/opt/bench_collect_once.py."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import quat_normalize, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.density import offsets

KEY_SECONDS = 0.1  # between two keyframes of an invented track
TRACKS, KEYS, ON_ACTORS, STILL = (
    64,
    300,
    600_000,
    1_400_000,
)  # of the synthetic workload: keyframes a track, and Gaussians


@dataclass(frozen=True)
class Workload:
    """S Gaussians of the background, A of K actors sorted by track, and Q query times."""

    still_means: Tensor  # [S, 3] metres
    still_quats: Tensor  # [S, 4] unit
    means: Tensor  # [A, 3] metres, in the frame of their track
    quats: Tensor  # [A, 4] unit
    starts: Tensor  # [K + 1] int64: track k owns rows starts[k] : starts[k + 1]
    track: Tensor  # [A] int64
    tracks: Tracks
    key_offsets: Tensor  # [K + 1] int64, as tracks.offsets
    times: Tensor  # [Q] float64 seconds
    sizes: tuple[int, ...]  # Gaussians of each track, for the host

    def to(self, dtype: torch.dtype) -> "Workload":
        names = ("still_means", "still_quats", "means", "quats")
        tracks = self.tracks.to(self.means.device, dtype)
        return replace(self, tracks=tracks, **{name: getattr(self, name).to(dtype) for name in names})

    def trained(self, background: bool) -> dict[str, Tensor]:
        """Tensors with gradients, by name."""
        found = {"means": self.means, "quats": self.quats}
        found |= {"translations": self.tracks.translations, "quaternions": self.tracks.quaternions}
        return found | ({"still_means": self.still_means, "still_quats": self.still_quats} if background else {})


def make_workload(
    means: Tensor,  # [N, 3], and so on: Gaussians of all nodes
    quats: Tensor,
    node: Tensor,  # [N] int64
    tracks: Tracks,
    times: list[float],  # seconds
    device: torch.device,
) -> Workload:
    node, order = node.sort(stable=True)
    rows = torch.searchsorted(node, torch.arange(1, len(tracks) + 2, device=node.device))
    means, quats, still = means[order].to(device), quat_normalize(quats[order].to(device)), int(rows[0])
    made = Workload(
        means[:still].clone(), quats[:still].clone(), means[still:].clone(), quats[still:].clone(),
        (rows - still).to(device), (node[still:] - 1).to(device), tracks.to(device),
        torch.tensor(tracks.offsets, device=device), torch.tensor(times, dtype=torch.float64, device=device),
        tuple(rows.diff().tolist()),
    )  # fmt: skip
    for tensor in made.trained(background=True).values():
        tensor.requires_grad_()
    return made


def invented(
    tracks: int, keys: int, queries: int, actors: int, background: int, seed: int, device: torch.device
) -> Workload:
    """Cars that drive bends of their own for the whole time, some with many more Gaussians than others."""
    generator = torch.Generator().manual_seed(seed)
    node = _nodes(tracks, actors, generator)
    seconds = KEY_SECONDS * (keys - 1)
    return make_workload(
        means=torch.randn(background + actors, 3, generator=generator),
        quats=torch.randn(background + actors, 4, generator=generator),
        node=torch.cat([torch.full((background,), BACKGROUND), node]),
        tracks=_bends(tracks, keys, generator),
        times=[seconds * (q + 1) / (queries + 1) for q in range(queries)],
        device=device,
    )


def invented_scene(
    like: Scene,
    capture: Capture,
    scale: float,  # of both numbers of Gaussians
    seed: int,
) -> Scene:
    """A scene in the numbers of the benchmark: Gaussians drawn from those of another one, apart by one of their standard deviations, on
    cars that drive bends about the middle of the capture's path, from its begin."""
    generator, g = torch.Generator().manual_seed(seed), like.gaussians
    moves = _on_actors(like, capture).cpu()
    still, actors = round(STILL * scale), round(ON_ACTORS * scale)
    rows = [
        of[torch.randint(len(of), (n,), generator=generator)]
        for of, n in ((torch.where(~moves)[0], still), (torch.where(moves)[0], actors))
    ]
    node = torch.cat([torch.full((still,), BACKGROUND), _nodes(TRACKS, actors, generator)]).to(g.node.device)
    drawn = {name: getattr(g, name).detach()[torch.cat(rows).to(node.device)] for name in Gaussians.trained()}
    on_device = torch.Generator(node.device).manual_seed(seed)
    drawn["means"] = drawn["means"] + offsets(
        drawn["quats"], drawn["log_scales"], torch.ones(len(node), device=node.device), on_device
    )
    tracks = _placed(_bends(TRACKS, KEYS, generator), capture).to(node.device)
    return Scene(
        Gaussians(**drawn, node=node), like.sky, tracks, tracks.translations, tracks.quaternions, like.exposure
    )


def _placed(tracks: Tracks, capture: Capture) -> Tracks:
    """The tracks moved in time to the capture's begin, and in space to the middle of its path."""
    frames = (*capture.images, *capture.sweeps)
    begin, middle = min(f.time_start for f in frames), torch.stack([f.T_world_rig_start[:3, 3] for f in frames]).mean(0)
    return replace(
        tracks, times=tracks.times + begin, translations=tracks.translations + middle.to(tracks.translations)
    )


def _on_actors(scene: Scene, capture: Capture) -> Tensor:
    """[N] bool."""
    found = scene.gaussians.node != BACKGROUND
    if not found.any():
        raise UserError(f"capture {capture.name} has no Gaussian on an actor; name its tracks (data.tracks.file)")
    return found


def _nodes(tracks: int, actors: int, generator: torch.Generator) -> Tensor:
    """[A] of each Gaussian in order; some tracks have many more than others."""
    share = torch.randn(tracks, generator=generator).exp()
    ends = (share.cumsum(0) / share.sum() * actors).round().long()
    return torch.searchsorted(ends, torch.arange(actors), right=True).clamp(max=tracks - 1) + 1


def _bends(tracks: int, keys: int, generator: torch.Generator) -> Tracks:
    def uniform(low: float, high: float) -> Tensor:  # [K, 1]
        return low + (high - low) * torch.rand(tracks, 1, generator=generator, dtype=torch.float64)

    t = KEY_SECONDS * torch.arange(keys, dtype=torch.float64)
    yaw = uniform(-3, 3) + uniform(-0.3, 0.3) * t  # [K, keys]
    step = KEY_SECONDS * uniform(2, 15)[..., None] * torch.stack([yaw.cos(), yaw.sin(), 0 * yaw], dim=-1)
    start = torch.stack([uniform(-100, 100), uniform(-100, 100), uniform(0, 2)], dim=-1)  # [K, 1, 3]
    turn = torch.stack([0 * yaw, 0.02 * (2 * t + yaw).sin(), yaw], dim=-1)
    names = tuple(f"car_{k}" for k in range(tracks))
    return Tracks(
        names, ("Car",) * tracks, torch.tensor([4.2, 1.8, 1.5], dtype=torch.float64).repeat(tracks, 1),
        tuple(range(0, tracks * keys + 1, keys)), t.repeat(tracks), (start + step.cumsum(1)).flatten(0, 1),
        rotvec_to_quat(turn).flatten(0, 1),
    )  # fmt: skip


def captured(scene: Scene, capture: Capture, device: torch.device) -> Workload:
    """The scene's own actors and background, at the times of an image in the middle of the drive and of its sweep."""
    g, split = scene.gaussians, capture.split
    assert split is not None
    _on_actors(scene, capture)
    images = sorted((capture.images[i] for i in split.train_images), key=lambda frame: frame.time_mid)
    image = images[len(images) // 2]
    sweeps = sorted((abs(capture.sweeps[i].time_mid - image.time_mid), i) for i in split.train_sweeps)
    times = [image.time_mid, *(capture.sweeps[i].time_mid for _, i in sweeps[:1])]
    return make_workload(g.means.detach(), g.quats.detach(), g.node, scene.learned_tracks(), times, device)
