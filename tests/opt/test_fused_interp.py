# SPDX-License-Identifier: Apache-2.0
"""The option `fused_interp`: it collects the same as the baseline, and training goes the same way."""

from collections.abc import Hashable
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_state
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.transfer import HostFuture
from nurec_lite.geometry.tracks import exist, spans
from nurec_lite.opt.post.fused_interp import SPARE_SHARE, FusedCollect
from nurec_lite.scene.collect import collect_at, collect_gaussian_parameters
from nurec_lite.scene.gaussians import LIDAR_VALUES, WorldGaussians, activate
from nurec_lite.scene.scene import Scene
from nurec_lite.training.state import TrainState

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FUSED = {"fused_interp": parameters_of("fused_interp")}
BOTH = FUSED | {"collect_once": parameters_of("collect_once")}
FIELDS = ("means", "quats", "scales", "opacities", "sh", "frames", "lidar", "velocities")


@pytest.fixture(autouse=True)
def built() -> None:
    build_stages(FUSED, base_stages("native", torch.device("cpu")))


def scene_on(device: str) -> Scene:
    scene = tiny_state().scene
    g = type(scene.gaussians)(**{k: v.to(device) for k, v in vars(scene.gaussians).items()})
    own = {k: getattr(scene, k).to(device) for k in ("sky", "track_translations", "track_quaternions", "exposure")}
    return replace(scene, gaussians=g, tracks=scene.tracks.to(device), **own)


def collected(scene: Scene, *times: float) -> list[WorldGaussians]:
    return [parted.whole() for parted in FusedCollect()(scene, on_device(scene, *times))]


def on_device(scene: Scene, *times: float) -> Tensor:  # [Q] float64
    return torch.tensor(times, dtype=torch.float64, device=scene.tracks.times.device)


def middle(scene: Scene) -> float:
    return 0.5 * float(scene.tracks.times.min() + scene.tracks.times.max())


def arrived(arrival: HostFuture) -> bool:
    arrival.result()  # waits for them
    return True


def assert_close(a: Tensor, b: Tensor) -> None:
    """1e-5 of the largest number."""
    a, b = a.detach(), b.detach()
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * max(float(b.abs().max()), 1e-3) if b.numel() else 0)


def test_the_option_swaps_collect() -> None:
    assert build_stages(FUSED).changes.claims == {"collect": "fused_interp"}
    assert build_stages(BOTH).changes.claims == {"collect": "fused_interp", "gather": "collect_once"}


@pytest.mark.parametrize("device", DEVICES)
def test_all_present(device: str) -> None:
    scene = scene_on(device)
    time = middle(scene)
    (world,), expected = collected(scene, time), collect_gaussian_parameters(scene, time)
    assert len(world) == len(expected)
    for name in FIELDS:
        assert_close(getattr(world, name), getattr(expected, name))


@pytest.mark.parametrize("device", DEVICES)
def test_absent_actors_are_transparent(device: str) -> None:
    scene = scene_on(device)
    before = float(scene.tracks.times.min()) - 100
    (world,), expected = collected(scene, before), collect_gaussian_parameters(scene, before)
    there = scene.gaussians.node == 0
    assert 0 < len(expected) == int(there.sum()) < len(world)
    assert bool((world.opacities[~there] == 0).all())
    for name in FIELDS:
        assert_close(getattr(world, name)[there], getattr(expected, name))


@pytest.mark.parametrize("device", DEVICES)
def test_each_time_has_the_opacities_of_the_sensor_that_looks(device: str) -> None:
    scene, looks = scene_on(device), (False, True, True)
    with torch.no_grad():
        scene.gaussians.lidar_logits[:, LIDAR_VALUES] -= 2 * torch.rand(len(scene.gaussians), device=device)
    times = on_device(scene, *[middle(scene)] * 3)
    found, expected = (collect(scene, times, by_lidar=looks) for collect in (FusedCollect(), collect_at))
    for parted, world in zip(found, expected, strict=True):
        assert_close(parted.whole().opacities, world.opacities)
    assert not torch.equal(found[0].opacities, found[1].opacities)


@pytest.mark.parametrize("device", DEVICES)
def test_before_the_background_s_number_has_come(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All Gaussians are moved, those of the background by a track that stands at the origin: the same, with the same gradients."""
    scene, found = scene_on(device), []
    leaves = {k: v.requires_grad_() for k, v in scene.parameters().items() if k not in ("sky", "exposure")}
    for late in (True, False):
        collect = FusedCollect()
        with monkeypatch.context() as patch:
            patch.setattr(HostFuture, "done", (lambda arrival: False) if late else arrived)
            (parted,) = collect(scene, on_device(scene, middle(scene)))
        background, spare = int((scene.gaussians.node == 0).sum()), len(scene.gaussians) // SPARE_SHARE
        assert len(parted.still_means) == (0 if late else background - spare)
        world = parted.whole()
        loss = sum((getattr(world, name) * torch.cos(getattr(world, name))).sum() for name in FIELDS)
        found.append((world, torch.autograd.grad(loss, list(leaves.values()))))
    for name in FIELDS:
        assert_close(getattr(found[0][0], name), getattr(found[1][0], name))
    for gradient, expected in zip(found[0][1], found[1][1], strict=True):
        assert_close(gradient, expected)


def test_actors_that_exist() -> None:
    tracks = tiny_state().scene.tracks
    first = tracks.times[torch.tensor(tracks.offsets[:-1])]
    margin = replace(tracks, margin=0.5)
    assert bool((exist(margin, first - 0.4).diagonal() == 1).all())
    assert bool((exist(margin, first - 0.6).diagonal() == 0).all())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    """Gradients of random sums over all collected tensors, at two times at once, against the baseline's."""
    found = []
    for fused in (True, False):
        scene = scene_on(device)
        leaves = {k: v.detach().clone().requires_grad_() for k, v in scene.parameters().items()}
        g = replace(scene.gaussians, **{k: leaves[k] for k in type(scene.gaussians).trained()})
        scene = replace(scene, gaussians=g, **{k: leaves[k] for k in ("track_translations", "track_quaternions")})
        times = (middle(scene), middle(scene) + 0.03)
        worlds = collected(scene, *times) if fused else [collect_gaussian_parameters(scene, t) for t in times]
        generator = torch.Generator().manual_seed(0)
        loss = torch.zeros((), device=device)
        for world in worlds:
            for name in FIELDS:
                value = getattr(world, name)
                loss = loss + (torch.randn(value.shape, generator=generator).to(device) * value).sum()
        names = [n for n in leaves if n not in ("sky", "exposure")]
        found.append(dict(zip(names, torch.autograd.grad(loss, [leaves[n] for n in names]), strict=True)))
    for name, gradient in found[0].items():
        assert_close(gradient, found[1][name])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own", [False, True], ids=["", "own opacities"])
def test_opacities_of_actors_that_come_and_go(own: bool, device: str) -> None:
    """Before all tracks, among them and behind them; camera and lidar may look at the very same opacities."""
    scene, seed = scene_on(device), torch.Generator().manual_seed(0)
    (first, last), looks = spans(scene.tracks), (False, True, False, True)
    times = on_device(scene, float(first.min()) - 1, middle(scene), middle(scene), float(last.max()) + 1)
    there = F.pad(exist(scene.tracks, times), (1, 0), value=1)[:, scene.gaussians.node]
    assert not there[0].equal(there[1])
    camera, lidar = (torch.rand(len(scene.gaussians), generator=seed).to(device).requires_grad_() for _ in range(2))
    local = activate(scene.gaussians) | {"opacities": camera, "lidar_opacities": lidar if own else camera}
    slopes = torch.randn(there.shape, generator=seed).to(device)
    expected = torch.stack([local["lidar_opacities" if lidars else "opacities"] for lidars in looks]) * there
    found = torch.stack([g.opacities for g in FusedCollect()(scene, times, None, local, looks)])
    assert found.equal(expected)
    leaves = [camera, lidar] if own else [camera]
    for a, b in zip(*(torch.autograd.grad(o, leaves, slopes) for o in (found, expected)), strict=True):
        assert_close(a, b)


def one_step(options: dict[str, dict], state: TrainState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    found: dict[str, Tensor] = {}

    def keep(state: TrainState) -> None:
        found.update({n: p.grad.clone() for n, p in state.scene.parameters().items() if p.grad is not None})
        state.optimizer.zero_grad(set_to_none=True)

    stages = build_stages(options, base_stages("native", torch.device("cpu")))
    stages, state.step = stages.replaced(optimize=keep), 3
    return stages.update.learn(stages, state, stages.feed.fetch(stages, state)).terms, found


@pytest.mark.parametrize("options", [FUSED, BOTH])
def test_a_step_is_the_baseline_s(options: dict[str, dict]) -> None:
    (terms, found), (expected_terms, expected) = one_step(options, tiny_state()), one_step({}, tiny_state())
    assert terms.keys() == expected_terms.keys() and found.keys() == expected.keys()
    for name in terms:
        torch.testing.assert_close(terms[name], expected_terms[name], rtol=1e-5, atol=1e-6)
    for name in found:  # a last bit decides whether a response passes 1/255, and the sign of an error of L1
        assert float((found[name] - expected[name]).norm()) <= 1e-3 * float(expected[name].norm())


def test_rows_of_tracks_follow_the_store() -> None:
    scene, collect = tiny_state().scene, FusedCollect()
    n = len(collect(scene, on_device(scene, middle(scene)))[0])
    g = scene.gaussians
    scene.gaussians = type(g)(**{k: v[1:] for k, v in vars(g).items()})  # one of the background less
    (world,), expected = (
        [p.whole() for p in collect(scene, on_device(scene, middle(scene)))],
        collect_gaussian_parameters(scene, middle(scene)),
    )
    assert len(world) == n - 1
    for name in FIELDS:
        assert_close(getattr(world, name), getattr(expected, name))


def taken_from_the_background(node: Tensor, n: int) -> Tensor:
    """[N] nodes of a store of as many Gaussians; n of them have gone over to the first track; in order."""
    changed = node.clone()
    first = int((node == 0).sum())
    changed[first - n : first] = 1
    return changed


def known_rows(collect: FusedCollect, scene: Scene) -> Hashable | None:
    """Returns the graph key once the count of rows has reached the host; a GPU sends it while the host goes on."""
    if scene.gaussians.node.device.type == "cuda":
        torch.cuda.synchronize()
    return collect.graph_key(scene)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_tracks_follow_a_store_that_is_written_into(device: str) -> None:
    """A relocation writes into it so; no size changes, and the tensors that a recorded step reads stay where they lie."""
    scene, collect = scene_on(device), FusedCollect()
    node, time = scene.gaussians.node, on_device(scene, middle(scene))
    collect(scene, time)
    still, starts = known_rows(collect, scene), collect.moving(scene, time).tracks[0].data_ptr()
    assert still == int((node == 0).sum()) - len(node) // SPARE_SHARE
    for changed in (taken_from_the_background(node, 2), node.clone()):
        assert not bool(collect.forbids_inplace_relocation(scene, changed))
        node.copy_(changed)
        (parted,) = collect(scene, time)
        assert known_rows(collect, scene) == still == len(parted.still_means)
        assert collect.moving(scene, time).tracks[0].data_ptr() == starts
        expected, world = collect_gaussian_parameters(scene, middle(scene)), parted.whole()
        for name in FIELDS:
            assert_close(getattr(world, name), getattr(expected, name))


@pytest.mark.parametrize("device", DEVICES)
def test_a_store_that_would_take_rows_which_stay_is_refused_until_fewer_do(device: str) -> None:
    scene, collect = scene_on(device), FusedCollect()
    node, time = scene.gaussians.node, on_device(scene, middle(scene))
    collect(scene, time)
    still, changed = known_rows(collect, scene), taken_from_the_background(node, len(node) // SPARE_SHARE + 1)
    assert bool(collect.forbids_inplace_relocation(scene, changed))
    node.copy_(node.clone())  # a refused relocation writes this
    collect(scene, time)
    fewer = known_rows(collect, scene)
    assert still is not None and fewer is not None and fewer < still
    assert not bool(collect.forbids_inplace_relocation(scene, changed))


def test_more_rows_stay_only_once_more_are_the_background_s() -> None:
    """A relocation that failed has not happened: Gaussians that it would have given to the background do not count."""
    scene, collect = scene_on("cpu"), FusedCollect()
    node, time = scene.gaussians.node, on_device(scene, middle(scene))
    collect(scene, time)
    still, all_still = known_rows(collect, scene), torch.zeros_like(node)
    assert not bool(collect.forbids_inplace_relocation(scene, all_still))
    collect(scene, time)
    assert known_rows(collect, scene) == still
    node.copy_(all_still)
    assert not bool(collect.forbids_inplace_relocation(scene, all_still))
    collect(scene, time)
    assert known_rows(collect, scene) == len(node) - len(node) // SPARE_SHARE


def test_without_tracks_and_without_actors() -> None:
    scene = tiny_state().scene
    g, still = scene.gaussians, scene.gaussians.node == 0
    scene.gaussians = type(g)(**{k: v[still] for k, v in vars(g).items()})
    (world,) = collected(scene, 0.2)
    assert_close(world.means, scene.gaussians.means)
    assert not bool(world.velocities.any())


def test_a_store_in_another_order_is_an_error() -> None:
    scene = tiny_state().scene
    g = scene.gaussians
    scene.gaussians = type(g)(**{k: v.flip(0) for k, v in vars(g).items()})
    with pytest.raises(
        OptionError, match=r"needs Gaussians in the order of their nodes.*train again, or leave the option"
    ):
        FusedCollect()(scene, on_device(scene, 0.2))


def test_an_activation_that_is_known_is_used() -> None:
    scene = tiny_state().scene
    local = activate(scene.gaussians)
    assert FusedCollect()(scene, on_device(scene, 0.2), None, local)[0].scales is local["scales"]
