# SPDX-License-Identifier: Apache-2.0
"""Actors of requests: moved, removed and inserted as they are asked for, in the tensors that are rendered anyway."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_scene

from nurec_lite.geometry.se3 import quat_normalize
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.edit import with_moved_actors, without_actors
from nurec_lite.scene.scene import Scene
from nurec_lite.service.actors import ABSENT, MOST_COPIES, PARKED_M, RECORDED, REFUSED, SHOWN, Actors
from nurec_lite.service.checks import Ends, Moment, Placed
from nurec_lite.service.errors import RequestError

WHEN = Moment(0.4, 0.5)
MIDDLE = 0.45
TURNED = (0.6, 0.0, 0.0, 0.8)  # w, x, y, z


def scene() -> Scene:
    return tiny_scene()


def moving() -> list[str]:
    tracks = scene().tracks
    parts = [tracks.select([k]) for k in range(len(tracks))]
    far = [float((part.translations - part.translations[0]).norm(dim=1).max()) for part in parts]
    return [name for name, metres in zip(tracks.ids, far, strict=True) if metres > PARKED_M]


def parked() -> list[str]:
    return [name for name in scene().tracks.ids if name not in moving()]


def at(track: str, x: float, end: float | None = None) -> Placed:
    return Placed(track, Ends((*TURNED, x, 2.0, 1.0), (*TURNED, x if end is None else end, 2.0, 1.0)))


def placed(actors: Actors, objects: Sequence[Placed], moment: Moment = WHEN) -> Scene:
    return actors.placed(actors.state(objects, moment))


def seen(
    scene: Scene, track: str, time: float = MIDDLE
) -> torch.Tensor:  # [n, 3] means in the world; none where it is absent
    valid = interpolate(scene.learned_tracks(), torch.tensor([time], dtype=torch.float64)).valid[0]
    there = torch.cat([torch.ones(1, dtype=torch.bool), valid])[scene.gaussians.node]
    means = collect_gaussian_parameters(scene, time).means
    assert len(means) == int(there.sum())
    return means[scene.gaussians.node[there] == scene.tracks.ids.index(track) + 1]


def test_there_are_both_kinds() -> None:
    assert len(moving()) == 2 and len(parked()) == 2
    for kind in (moving(), parked()):
        assert any(len(seen(scene(), track)) for track in kind)


@pytest.mark.parametrize("unlisted", [ABSENT, RECORDED])
def test_without_objects_parked_actors_stay_and_moving_ones_are_as_asked(unlisted: str) -> None:
    found = placed(Actors(scene(), unlisted), [])
    for track in scene().tracks.ids:
        wanted = seen(scene(), track)  # empty for an actor without measurements
        if unlisted == RECORDED or track in parked():
            torch.testing.assert_close(seen(found, track), wanted)
        else:
            assert len(seen(found, track)) == 0


@pytest.mark.parametrize("track", [moving()[0], parked()[0]])
def test_an_actor_stands_and_drives_where_the_request_says(track: str) -> None:
    actors = Actors(scene(), ABSENT)
    standing = actors.placed(actors.state([at(track, 8.0, 10.0)], WHEN))
    k = standing.tracks.ids.index(track)
    poses = interpolate(standing.learned_tracks(), torch.tensor([0.4, MIDDLE, 0.5], dtype=torch.float64))
    torch.testing.assert_close(poses.translations[:, k, 0], torch.tensor([8.0, 9.0, 10.0]))
    torch.testing.assert_close(quat_normalize(poses.quaternions[1, k]), torch.tensor(TURNED))
    torch.testing.assert_close(poses.velocities[1, k], torch.tensor([20.0, 0.0, 0.0]), rtol=1e-4, atol=1e-3)
    assert bool(poses.valid[:, k].all())


def test_the_next_request_finds_no_trace_of_the_last() -> None:
    actors, track = Actors(scene(), RECORDED), parked()[0]
    before = seen(placed(actors, []), track)
    assert not torch.equal(seen(placed(actors, [at(track, 50.0)]), track), before)
    assert torch.equal(seen(placed(actors, []), track), before)


def test_tensors_stay_in_their_places() -> None:
    """A recorded graph reads them there."""
    actors = Actors(scene(), ABSENT)
    addresses = {name: value.data_ptr() for name, value in actors.scene.parameters().items()}
    for objects in ([], [at(moving()[0], 3.0)], [at(parked()[1], 4.0)]):
        found = actors.placed(actors.state(objects, WHEN))
        assert {name: value.data_ptr() for name, value in found.parameters().items()} == addresses
        assert found is actors.scene


def test_a_copy_is_inserted_and_the_source_stays() -> None:
    actors, source = Actors(scene(), RECORDED), parked()[0]
    found = placed(actors, [at(f"visitor@{source}", 30.0), at(f"another@{source}", 40.0)])
    own, copies = seen(found, source), [seen(found, f"{k}@{source}") for k in (0, 1)]
    assert len(copies[0]) == len(copies[1]) == len(own)
    assert sorted(float(one[:, 0].mean()) for one in copies) == pytest.approx([30, 40], abs=2)
    torch.testing.assert_close(own, seen(scene(), source))
    assert len(seen(placed(actors, []), f"0@{source}")) == 0


def test_memory_of_copies_does_not_grow_for_ever() -> None:
    actors, ids = Actors(scene(), ABSENT), scene().tracks.ids
    for source in ids:
        placed(actors, [at(f"{k}@{source}", float(k)) for k in range(MOST_COPIES // 2)])
    assert len(actors.scene.tracks) <= len(ids) + MOST_COPIES


@pytest.mark.parametrize("moment", [Moment(0.4, 0.4), Moment(900.0, 900.1)])
def test_an_exposure_of_no_time_and_one_after_the_drive(moment: Moment) -> None:
    actors, track = Actors(scene(), ABSENT), moving()[0]
    means = seen(placed(actors, [at(track, 8.0)], moment), track, moment.start)
    assert len(means) > 0 and bool(means.isfinite().all())


def test_equal_requests_share_a_state_and_others_do_not() -> None:
    actors, one = Actors(scene(), ABSENT), at(moving()[0], 3.0)
    assert actors.state([one], WHEN) == actors.state([at(moving()[0], 3.0)], Moment(0.4, 0.5))
    assert actors.state([one], WHEN) != actors.state([one], Moment(0.4, 0.6)) != actors.state([], WHEN)
    assert actors.state([], WHEN) == actors.state([], Moment(0.0, 0.1))


def test_ids_that_hold_the_separator_are_no_copies() -> None:
    """A track of an edit may be called so: it drives as recorded, can be placed, and can be the source of a copy."""
    ids = scene().tracks.ids
    own = f"0@{ids[0]}"
    named = replace(scene(), tracks=replace(scene().tracks, ids=(*ids[:-1], own)))
    actors = Actors(named, RECORDED)
    torch.testing.assert_close(seen(placed(actors, []), own), seen(named, own))
    assert float(seen(placed(actors, [at(own, 30.0)]), own)[:, 0].mean()) == pytest.approx(30, abs=2)
    found = placed(actors, [at(f"x@{own}", 30.0), at(f"y@{ids[0]}", 40.0)])
    assert found.tracks.ids[len(ids) :] == (f"@0@{ids[0]}", f"0@{own}")
    assert [len(seen(found, name)) > 0 for name in found.tracks.ids[len(ids) :]] == [True, True]


def test_objects_that_are_no_actors_are_not_drawn_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A simulator names all actors of its traffic, also those that the scene has lost by an edit, or never learned."""
    one, gone = moving()
    actors = Actors(without_actors(scene(), [gone]), ABSENT, (gone,))
    for _ in range(2):
        state = actors.state([at("nobody", 0.0), at(one, 8.0), at(gone, 9.0)], WHEN)
        assert state == actors.state([at(one, 8.0)], WHEN)
    for name, text in zip(("nobody", gone), caplog.messages, strict=True):
        assert f"names '{name}', but the tracks are" in text and "It is not drawn (unknown=refused refuses" in text
    assert len(seen(actors.placed(state), one)) > 0
    for k in range(100):
        assert actors.state([at(f"nobody {k}", 0.0)], WHEN) == ()
    assert len(caplog.messages) <= SHOWN


def test_what_is_not_there_is_refused() -> None:
    gone = moving()[0]
    actors = Actors(without_actors(scene(), [gone]), ABSENT, (gone,), REFUSED)
    for track in (gone, f"x@{gone}", "nobody"):
        with pytest.raises(RequestError, match=f"dynamic_objects names '{track}', but the tracks are") as error:
            actors.state([at(track, 0.0)], WHEN)
        assert error.value.status == "NOT_FOUND" and gone not in str(error.value).partition("but")[2]
    with pytest.raises(RequestError, match="names 'x@nobody', but the tracks are"):
        Actors(scene(), ABSENT).state([at("x@nobody", 0.0)], WHEN)
    many = [at(f"{k}@{parked()[0]}", 0.0) for k in range(MOST_COPIES + 1)]
    with pytest.raises(RequestError, match=f"inserts {MOST_COPIES + 1} actors, but may insert {MOST_COPIES}"):
        actors.state(many, WHEN)


def test_a_scene_without_actors_is_served() -> None:
    alone = without_actors(with_moved_actors(scene(), []), ["actors"])
    actors = Actors(alone, ABSENT, alone.tracks.ids, REFUSED)
    assert actors.ids == () and len(placed(actors, []).gaussians) == len(alone.gaussians)
    with pytest.raises(RequestError, match="dynamic_objects names 'car', but the scene has no actors; leave it out"):
        actors.state([at("car", 0.0)], WHEN)
