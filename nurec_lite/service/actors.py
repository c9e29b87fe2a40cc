# SPDX-License-Identifier: Apache-2.0
"""Actors where requests place them.

A served scene keeps its tensors: the keyframes of its tracks are written in place, so that recorded CUDA graphs stay valid. A track that a
request names stands where the request says. A moving track that it does not name is absent, unless `unlisted` is recorded; a parked one
stays. ID@SOURCE inserts a copy of the actor SOURCE. Simulators name all actors of their traffic, also those that were removed, or that
nothing was learned of: these are not drawn, unless `unknown` is refused.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nurec_lite.geometry.tracks import Tracks, joined, moves
from nurec_lite.scene.edit import Trajectory, copy_of, with_copy
from nurec_lite.scene.scene import Scene
from nurec_lite.service.checks import LONGEST_ID, Moment, Placed
from nurec_lite.service.errors import BUSY, MISSING, RequestError

ABSENT, RECORDED = "absent", "recorded"  # unlisted
SKIPPED, REFUSED = "skipped", "refused"  # unknown
PARKED_M = 1.0  # radius in metres of a track that does not move
NEVER = 1e12  # seconds, when an absent track would exist
MARGIN_S = 0.1  # seconds that a placed actor exists before and after a frame: clocks of cameras may be late
MOST_COPIES = 32  # inserted actors of a scene
SEPARATOR = "@"
SHOWN = 20  # ids that a message lists
MOVED_S = 1e-3  # seconds between keyframes that say the same
log = logging.getLogger("nurec_lite")


class Actors:
    """The scene that is rendered, and the state of its tracks."""

    def __init__(
        self,
        scene: Scene,
        unlisted: str,  # ABSENT or RECORDED
        removed: Sequence[str] = (),  # ids of tracks without Gaussians, after edits
        unknown: str = SKIPPED,  # or REFUSED
    ) -> None:
        self._plain, self._unlisted, self._unknown = scene, unlisted, unknown
        self._named_once: set[str] = set()  # unknown ids that the log has
        self.ids = tuple(name for name in scene.tracks.ids if name not in removed)
        self._slots: Counter[str] = Counter()  # copies of each actor that the rendered scene has room for
        self._state: tuple[object, ...] | None = None  # that the keyframes have; None: that of the captured scene
        self._begin(scene)

    def state(self, objects: Sequence[Placed], moment: Moment) -> tuple[object, ...]:
        """Requests of equal states share a launch; RequestError for a copy of an actor that there is not."""
        objects = [one for one in objects if self._is_known(one.track)]
        copies = sum(one.track not in self.ids for one in objects)
        if copies > MOST_COPIES:
            raise RequestError(
                f"dynamic_objects inserts {copies} actors, but may insert {MOST_COPIES}; send fewer", BUSY
            )
        return (moment, *objects) if objects else ()

    def _is_known(self, track: str) -> bool:
        """Whether it is drawn. The log names an unknown one once; RequestError where the caller meant one of ours."""
        if self._source(track) in self.ids:
            return True
        known = f"the tracks are {', '.join(self.ids[:SHOWN])}; NAME{SEPARATOR}TRACK inserts a copy"
        known = known if self.ids else "the scene has no actors; leave it out"
        flaw = f"dynamic_objects names '{track:.{LONGEST_ID}}', but {known}"
        if self._unknown == REFUSED or SEPARATOR in track:
            raise RequestError(flaw, MISSING)
        if track not in self._named_once and len(self._named_once) < SHOWN:
            self._named_once.add(track)
            log.warning("%s. It is not drawn (unknown=%s refuses such requests)", flaw, REFUSED)
        return False

    @torch.no_grad()
    def placed(self, state: tuple[object, ...]) -> Scene:
        """The scene with its actors in that state."""
        moment, objects = (state[0], state[1:]) if state else (Moment(0, 0), ())
        assert isinstance(moment, Moment)
        named = self._named([one for one in objects if isinstance(one, Placed)])
        if state != self._state:
            self._write(moment, named)
            self._state = state
        return self.scene

    def _begin(self, scene: Scene) -> None:
        learned = scene.learned_tracks().to("cpu", torch.float64)
        tracks = replace(_doubled(learned), margin=max(learned.margin, MARGIN_S))
        self._tracks = replace(
            tracks, translations=tracks.translations.detach(), quaternions=tracks.quaternions.detach()
        )
        parts = (self._tracks.select([k]) for k in range(len(tracks)))
        self._parked = [moves(part, PARKED_M) is False for part in parts]
        own = self._tracks.to(scene.sky.device, scene.track_translations.dtype)
        self.scene = replace(
            scene, tracks=own, track_translations=own.translations.clone(), track_quaternions=own.quaternions.clone()
        )
        self._state = None

    # ---- copies

    def _source(self, track: str) -> str:
        """The actor that gives the Gaussians: the track itself, or the original of a copy. Ids may hold the separator, too."""
        if track in self.ids:
            return track
        return max((name for name in self.ids if track.endswith(SEPARATOR + name)), key=len, default=track)

    def _slot(self, source: str, k: int) -> str:
        """A name for the track of a copy that no track of the scene has."""
        name = f"{k}{SEPARATOR}{source}"
        while name in self._plain.tracks.ids:
            name = f"{SEPARATOR}{name}"
        return name

    def _named(self, objects: Iterable[Placed]) -> dict[str, Placed]:
        """Objects by the ids of the rendered scene's tracks; adds slots for copies that it lacks."""
        named, used = {}, Counter[str]()
        for one in objects:
            source = self._source(one.track)
            if source == one.track:
                named[one.track] = one
            else:
                named[self._slot(source, used[source])] = one
                used[source] += 1
        if any(count > self._slots[source] for source, count in used.items()):
            self._widen(used)
        return named

    def _widen(self, used: Counter[str]) -> None:
        """Room for these copies, and for those of earlier requests while there are not too many."""
        both = used | self._slots
        self._slots = both if sum(both.values()) <= MOST_COPIES else used
        scene = self._plain
        for source, count in sorted(self._slots.items()):
            for k in range(count):
                scene = with_copy(scene, copy_of(self._plain, source, self._slot(source, k), _nowhere()))
        self._begin(scene)

    # ---- keyframes

    def _write(self, moment: Moment, named: dict[str, Placed]) -> None:
        tracks = self._tracks
        times, t, q = tracks.times.clone(), tracks.translations.clone(), tracks.quaternions.clone()
        for k, name in enumerate(tracks.ids):
            rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
            if name in named:
                times[rows], t[rows], q[rows] = _keys(named[name], moment, rows.stop - rows.start)
            elif k >= len(self._plain.tracks) or (self._unlisted == ABSENT and not self._parked[k]):
                times[rows] = NEVER + MOVED_S * torch.arange(rows.stop - rows.start)
        self.scene.tracks.times.copy_(times)
        self.scene.track_translations.copy_(t)
        self.scene.track_quaternions.copy_(q)


def _keys(one: Placed, moment: Moment, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """[n] times, [n, 3] translations, [n, 4] quaternions: the first key at the start, all others from the end on."""
    start, end = (torch.tensor(pose, dtype=torch.float64) for pose in (one.ends.start, one.ends.end))
    lasts = moment.end - moment.start
    if lasts <= 0:
        end, lasts = start, MOVED_S
    times = moment.start + torch.cat([torch.zeros(1), lasts + MOVED_S * torch.arange(count - 1)]).double()
    poses = torch.stack([start, *[end] * (count - 1)])
    return times, poses[:, 4:], poses[:, :4]


def _doubled(tracks: Tracks) -> Tracks:
    """The tracks with two keyframes at least."""
    parts = []
    for k in range(len(tracks)):
        part = tracks.select([k])
        if len(part.times) == 1:
            part = replace(
                part, offsets=(0, 2), times=torch.cat([part.times, part.times + MOVED_S]),
                translations=part.translations.repeat(2, 1), quaternions=part.quaternions.repeat(2, 1),
            )  # fmt: skip
        parts.append(part)
    return joined(parts, tracks.margin)


def _nowhere() -> Trajectory:
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    return Trajectory(NEVER + torch.arange(2).double(), zeros, torch.tensor([[1.0, 0, 0, 0]] * 2, dtype=torch.float64))
