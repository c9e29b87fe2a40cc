# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps with their colours, those of actors in the frames of their boxes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.transfer import upload
from nurec_lite.capture.plausible import BESIDE
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.distances import distances_between
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.steady import SteadyMotion
from nurec_lite.geometry.tracks import Tracks, exist, row_before, steady_motions

BOX_MARGIN = 1.1  # a box is enlarged by this factor to catch all points of its object
GROUND_METRES = 0.05  # above the underside of a box points belong to the object, not to the ground that it stands on


@dataclass(frozen=True)
class Points:
    """n points with measured colours and intensities."""

    xyz: Tensor  # [n, 3] metres, float64, in the frame of their node
    node: Tensor  # [n] int64: 0 background, k + 1 track k
    colour: Tensor  # [n, 3] 0 to 1; mean grey where no image saw the point
    coloured: Tensor  # [n] bool
    intensity: Tensor  # [n] 0 to 1
    weights: Tensor | None = (
        None  # [n, 2] float64: of how many each is the mean, and how many of these had a colour; None: of itself
    )

    def __len__(self) -> int:
        return len(self.xyz)

    def weighed(self) -> Tensor:  # [n, 2]
        if self.weights is not None:
            return self.weights
        return torch.stack([torch.ones_like(self.coloured), self.coloured], dim=1).double()

    def columns(self, weighed: bool) -> dict[str, Tensor]:
        """Tensors by name, with the weights if asked for."""
        found = {f: getattr(self, f) for f in self.__dataclass_fields__}
        return found | {"weights": self.weighed()} if weighed else {f: v for f, v in found.items() if f != "weights"}

    def select(
        self,
        which: Tensor,  # [n] bool, or numbers of points
    ) -> "Points":
        index = torch.nonzero(which).squeeze(-1) if which.dtype == torch.bool else which  # once for all fields
        return Points(**{f: v[index] for f, v in self.columns(self.weights is not None).items()})

    @staticmethod
    def empty(device: torch.device | str) -> "Points":
        none = torch.zeros(0, device=device)
        return Points(none.double().view(0, 3), none.long(), none.view(0, 3), none.bool(), none)

    @staticmethod
    def cat(parts: Sequence["Points"]) -> "Points":
        weighed = any(p.weights is not None for p in parts)
        columns = [p.columns(weighed) for p in parts]
        return Points(**{f: torch.cat([c[f] for c in columns]) for f in columns[0]})


class Actors(NamedTuple):
    """A actors that are there in the middle of a sweep, each with J steady motions while its rays are sent, in the order of time."""

    node: Tensor  # [A] int64, ascending: k + 1 of track k
    centre: Tensor  # [A, 3] metres, world, of a sphere that the box does not leave meanwhile
    radius: Tensor  # [A] metres
    low: Tensor  # [A, 3] metres, a corner of the box that catches points, in the object's frame
    high: Tensor  # [A, 3] the corner across
    begin: Tensor  # [A, J] seconds; the last of an actor's motions may come several times
    rate: Tensor  # [A, J] motions a second
    motion: SteadyMotion  # [A, J, ...]


def actors_in(
    tracks: Tracks,
    frames: Sequence[SweepFrame],
    device: torch.device | str = "cpu",
) -> list[Actors]:
    """The actors of each sweep, on the device; all of them by the operators of one, on the host."""
    tracks = tracks.to("cpu", torch.float64)
    times = torch.tensor([(f.time_start, f.time_end) for f in frames], dtype=torch.float64).view(-1, 2)
    beside = (0.5 * times.diff(dim=1)).clamp(min=BESIDE)
    spans = torch.cat([times[:, :1] - beside, times[:, 1:] + beside], dim=1)
    sweep, track = torch.nonzero(exist(tracks, times.mean(1)), as_tuple=True)
    counts = torch.bincount(sweep, minlength=len(frames)).tolist()
    columns = [upload(column, device).split(counts) for column in _columns(tracks, track, spans[sweep])]
    return list(map(Actors, *columns[:-4], map(SteadyMotion, *columns[-4:])))


def _columns(tracks: Tracks, track: Tensor, spans: Tensor) -> list[Tensor]:
    """[n, ...] each: the fields of `Actors` for n tracks, from the first to the last time of their spans [n, 2]."""
    first, last = (row_before(tracks, track, time) for time in spans.unbind(1))
    most = max((last - first).tolist(), default=0)
    row = torch.minimum(first[:, None] + torch.arange(most + 1), last[:, None])
    begin, rate, motion = steady_motions(tracks, track[:, None], row)
    path = motion.place(((spans[:, None] - begin[..., None]) * rate[..., None]).clamp(0, 1)).flatten(1, 2)
    centre, half = 0.5 * (path.amin(1) + path.amax(1)), 0.5 * tracks.sizes[track]
    high = BOX_MARGIN * half
    low = torch.cat([-high[:, :2], GROUND_METRES - half[:, 2:]], dim=1)
    radius = high.norm(dim=-1) + (path - centre[:, None]).norm(dim=-1).amax(1)
    return [track + 1, centre, radius, low, high, begin, rate, *motion]


def assign_to_actors(
    actors: Actors,
    sweep: Sweep,  # R rays that returned
    world: Tensor,  # [R, 3] metres
) -> tuple[Tensor, Tensor]:  # node [R], position in the node's frame [R, 3]
    """A point belongs to the box that holds it at the point's own time; to the last one of several."""
    node = torch.zeros(len(world), dtype=torch.int64, device=world.device)
    if len(actors.node) == 0 or len(world) == 0:
        return node, world
    close = distances_between(actors.centre, world) <= actors.radius[:, None]
    actor, near = torch.nonzero(close, as_tuple=True)
    local = _local(actors, actor, sweep.times[near], world[near])
    inside = ((local >= actors.low[actor]) & (local <= actors.high[actor])).all(-1)
    owner = torch.where(inside, actors.node[actor], 0)
    node = node.scatter_reduce(0, near, owner, "amax")
    row = torch.where(inside & (node[near] == owner), near, len(world))  # that of a loser is cut off
    return node, torch.cat([world, world[:1]]).index_copy(0, row, local)[:-1]


def _local(actors: Actors, actor: Tensor, times: Tensor, world: Tensor) -> Tensor:
    """[n, 3] points in the frames of actors, given by numbers, at their times."""
    passed = times[:, None] >= actors.begin[:, 1:][actor]
    one = actor, passed.sum(-1, dtype=torch.int32)  # as for colours: a GPU needs time to load the kernel of another sum
    fraction = ((times - actors.begin[one]) * actors.rate[one]).clamp(0, 1)
    motion = SteadyMotion(*(part[one] for part in actors.motion))
    return motion.to_rig(world[:, None], fraction[:, None])[:, 0]
