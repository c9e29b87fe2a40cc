# SPDX-License-Identifier: Apache-2.0
"""Several ranks train one scene: the same result as one process with that batch, also across resumes, and an end of all if one ends."""

import math
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from ranked import CONTEXT, LONGEST, Started
from stepping import everything, steps
from tiny_capture import tiny_capture, tiny_config, tiny_scene, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.alive import alive
from nurec_lite.base.alive import started as start_of
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.place import Place
from nurec_lite.base.ranks import Ranks, begin
from nurec_lite.capture.checks.starts import Start
from nurec_lite.capture.types import CaptureError
from nurec_lite.cli.command import mended
from nurec_lite.config import Config
from nurec_lite.opt.post.no_sync import NoSync
from nurec_lite.scene.calibration import add_starts
from nurec_lite.training import loop
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.loop import train
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.spread import exchanged, exchanging, shared, spread, with_scene_of_first
from nurec_lite.training.start import make_state
from nurec_lite.training.whole_messages import EarlyMessage

CPU = torch.device("cpu")
FUSED = ("fused_interp", "fused_adam", "fused_colour", "fused_harmonics")
ROUNDING = {"rtol": 1e-3, "atol": 1e-4}  # after 9 steps; sums of two ranks are rounded in another order
EPS = 1e-6  # of Adam: a gradient of rounding alone, of another sign in two ranks, would move a Gaussian by a whole step
PLAN = ShotPlan(tiny_capture(), seed=3, lidar_rays=64)
TINY = replace(tiny_config().model, points=100, raised_points=20, far_points=20)


def batch(n: int) -> dict[str, Any]:
    return {"batch": {"images": n, "sweeps": n, "scale_rates": True, "one_launch": True}}


def ranks_of(rank: int, size: int) -> Ranks:
    found = Ranks()
    found.place = Place(rank, size, rank, size)
    return found


# ---- the share of a rank


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_frames_and_rays_of_all_ranks_are_those_of_the_step(size: int) -> None:
    whole = replace(PLAN, images_a_step=4, sweeps_a_step=4)
    parts = [shared(whole, ranks_of(rank, size)) for rank in range(size)]
    for step in (0, 3):
        loaded = [part.load(step) for part in parts]
        images = [shot.index for shots in loaded for shot in shots.images]
        rays = torch.cat([shot.sweep.ranges for shots in loaded for shot in shots.sweeps])
        assert images == [shot.index for shot in whole.load(step).images]
        assert torch.equal(rays, torch.cat([shot.sweep.ranges for shot in whole.load(step).sweeps]))


@pytest.mark.parametrize(
    "plan, size, said",
    [
        ({"images_a_step": 3, "sweeps_a_step": 2}, 2, "images of a step: 3 .*opt.batch.images=4"),
        ({"images_a_step": 4, "sweeps_a_step": 1}, 2, "sweeps of a step: 1 .*opt.batch.sweeps=2"),
        ({"images_a_step": 64, "sweeps_a_step": 64}, 64, "images of a step: 16 .*start at most 16 ranks"),
    ],
)
def test_frames_that_cannot_be_shared_equally_are_refused(plan: dict[str, int], size: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        shared(replace(PLAN, **plan), ranks_of(0, size))


def test_ranks_read_a_report_of_no_sync_after_a_fixed_number_of_steps() -> None:
    assert not NoSync(1.5, alone=False)._early and NoSync(1.5)._early


# ---- the same result


def trained(rank: int, n: int, images: int, fused: bool, sweeps_every: int = 1) -> dict[str, Any]:
    """All tensors that n steps change, with relocations after 4 and 8, and each rank's own decision before it took over the first one's."""
    ranks, decided = begin("cpu"), []
    stages = exchanging(base_stages("native", CPU) if fused else reference_stages(), ranks)
    inner = stages.update.rearrange

    def noted(stages: Any, state: Any, n_new: int) -> None:
        inner(stages, state, n_new)
        decided.append({name: value.detach().numpy().copy() for name, value in everything(state).items()})

    options = {name: parameters_of(name) for name in FUSED} if fused else {}
    stages = spread(build_stages(options | batch(images), stages.replaced(rearrange=noted)), ranks)
    state = tiny_state()
    for group in state.optimizer.param_groups:
        group["eps"] = EPS
    state.plan = stages.feed.frames(replace(state.plan, lidar_rays=64, sweeps_every=sweeps_every))
    steps(stages, state, n)
    sent, each = exchanged(stages), getattr(stages.update.reduce, "_bytes", None)
    ranks.leave()
    end = {name: value.detach().numpy() for name, value in everything(state).items()}
    return {"end": end, "decided": decided, "sent": sent.get("exchanged_bytes_a_step"), "each": each}


def bytes_of(
    end: dict[str, Any],
    views: int | None,  # of a rank, with factors of harmonics; None: these are written
    sweeps: bool = True,
) -> int:
    """Bytes of a step, by hand."""
    numbers = {name: -(-end[name].size // 64) * 64 for name in tiny_scene().parameters()}
    written = sum(numbers.pop(name) for name in ("sh0", "sh_rest"))
    harmonics = written + 64 if views is None else views * (6 * len(end["means"]) + 64)
    if not sweeps:
        del numbers["lidar_logits"]
    return 4 * (sum(numbers.values()) + 64 + harmonics)


@pytest.mark.parametrize("n, images, fused", [(9, 2, False), (9, 2, True), (5, 4, True), (2, 6, True)])
def test_two_ranks_train_as_one_process_with_that_batch(n: int, images: int, fused: bool, tmp_path: Path) -> None:
    tiny_scene()
    first, second = Started(2, partial(trained, n=n, images=images, fused=fused), tmp_path / "said.txt").results()
    one = trained(0, n, images, fused)
    assert len(first["decided"]) == n // 4
    assert first["sent"] == bytes_of(first["end"], images // 2 if fused and images <= 4 else None)  # 4 coefficients
    for a, b in zip([*first["decided"], first["end"]], [*second["decided"], second["end"]], strict=True):
        assert all((a[name] == b[name]).all() for name in a), "ranks decide alike, bit by bit"
    for name, value in one["end"].items():
        torch.testing.assert_close(torch.tensor(first["end"][name]), torch.tensor(value), **ROUNDING, msg=name)
    assert (first["end"]["node"] == one["end"]["node"]).all()


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_without_sweeps_sends_no_gradient_of_the_lidar(fused: bool, tmp_path: Path) -> None:
    work = partial(trained, n=3, images=2, fused=fused, sweeps_every=2)
    first, second = Started(2, work, tmp_path / "said.txt").results()
    assert first["each"] == {kind: bytes_of(first["end"], 1 if fused else None, kind) for kind in (True, False)}
    assert first["sent"] == first["each"][True]
    for name, value in work(0)["end"].items():
        assert (first["end"][name] == second["end"][name]).all(), "ranks update alike, bit by bit"
        torch.testing.assert_close(torch.tensor(first["end"][name]), torch.tensor(value), **ROUNDING, msg=name)


class _WithoutGradient(torch.autograd.Function):
    """A formula that leaves the gradient of its parameters to the update."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradients[0] * 2, None, None


def test_gradients_that_nobody_writes_are_not_sent() -> None:
    parameters = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)]
    message, x = EarlyMessage(parameters, 0.5), torch.ones(3, requires_grad=True)
    _WithoutGradient.apply(x, *parameters).sum().backward()
    assert x.grad is not None and message.work is None and not message.wanted
    message.close()


# ---- the verdict of the checks


def judged(rank: int, out: Path, wrong: bool) -> tuple[list[int], Any]:
    """The step of this rank's verdict, and the cameras' rotations at the end. The first rank has checked for all."""
    ranks, made, seen = begin("cpu"), config(6), list[int]()
    made = replace(made, model=replace(made.model, calibrate=True))
    stages = spread(build_stages(made.opt, exchanging(reference_stages(), ranks)), ranks)
    state = with_scene_of_first(make_state(made, tiny_capture(), CPU, None, stages.feed.frames), ranks)
    known = state.scene.calibration
    assert known is not None

    def accept() -> None:
        seen.append(state.step)
        if ranks.first and wrong:
            raise CaptureError("the clocks of two sensors differ by 80 ms")
        if ranks.first:
            add_starts(known, {known.cameras[0]: Start(2.0, 0.03)})

    state.accept = accept
    with mended("train"):
        train(stages, state, out / "checkpoint.pt")
    ranks.leave()
    return seen, known.camera_rotations.detach().numpy()


def test_ranks_begin_while_the_first_one_checks_the_capture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All take the verdict after the same step, and the corrections of cameras that come with it."""
    monkeypatch.setattr(loop, "UNCHECKED", 3)
    found = Started(2, partial(judged, out=tmp_path, wrong=False), tmp_path / "said.txt").results()
    (first, rotations), (second, others) = found
    assert first == second == [3] and (rotations == others).all()
    assert math.degrees(-float(others[0, 1])) == pytest.approx(2.0, abs=0.5)


def test_ranks_end_where_the_first_one_finds_the_capture_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loop, "UNCHECKED", 3)
    ranks = Started(2, partial(judged, out=tmp_path, wrong=True), tmp_path / "said.txt")
    codes, said = ranks.codes(), ranks.said.read_text()
    assert codes == [2, 2] and not (tmp_path / "checkpoint.pt").exists()
    assert said.count("error") == 1 and "clocks of two sensors" in said, said


# ---- resumes, and ends


def config(n_steps: int, resume: Path | None = None, **train: Any) -> Config:
    made = tiny_config(steps=n_steps, model=TINY, opt=batch(2))
    return replace(made, train=replace(made.train, lidar_rays=64, resume=resume and f"{resume}/checkpoint.pt", **train))


def train_in(out: Path, made: Config) -> None:
    """Trains like the command, without its checks of the capture and its report."""
    out.mkdir(exist_ok=True)
    ranks = begin("cpu")
    stages = spread(build_stages(made.opt, exchanging(reference_stages(), ranks)), ranks)
    state = make_state(made, tiny_capture(), torch.device("cpu"), None, stages.feed.frames)
    if ranks.size > 1 and made.train.resume is None:
        state = with_scene_of_first(state, ranks)
    train(stages, state, out / "checkpoint.pt")
    ranks.leave()


def started(out: Path, made: Config, before: Started | None = None) -> Started:
    def work(rank: int) -> None:
        if before is not None:
            time.sleep(rank)  # the other one comes first, and finds addresses of earlier ranks
        with mended("train"):
            train_in(out, made)

    return Started(2, work, out.with_suffix(".txt"), before)


def scene_of(out: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(out / "checkpoint.pt", "cpu")["scene"]["parameters"]


def test_one_rank_goes_on_with_two_ranks_and_two_with_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    train_in(one, config(2))
    started(two, config(2)).results()
    started(tmp_path / "one-two", config(4, one)).results()
    train_in(tmp_path / "two-one", config(4, two))
    ends = [scene_of(tmp_path / name) for name in ("one-two", "two-one")]
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], **ROUNDING, msg=name)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_killed_ends_all_with_one_sentence_and_a_whole_checkpoint(lost: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ranks = started(out, config(100_000, checkpoint_seconds=0.1))
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(ranks.processes[lost].pid, signal.SIGKILL)
    codes, said = ranks.codes(), ranks.said.read_text()
    assert codes[lost] == -signal.SIGKILL and codes[1 - lost] == 2
    errors = [line for line in said.splitlines() if "error" in line.lower()]
    assert len(errors) == 1 and f"rank {lost} of 2 ended unexpectedly" in errors[0] and "train.resume=" in errors[0], (
        said
    )
    step = load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"]
    train_in(tmp_path / "on", config(int(step) + 1, out))


def test_ranks_that_torchrun_restarts_go_on(tmp_path: Path) -> None:
    """Its store still has the addresses of those that have ended, and the cause of their end."""
    out = tmp_path / "run"
    ranks = started(out, config(100_000, checkpoint_seconds=0.1))
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(ranks.processes[0].pid, signal.SIGKILL)
    assert ranks.codes() == [-signal.SIGKILL, 2]
    step = int(load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"])
    started(out, config(step + 2, out), ranks).results()
    assert load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"] == step + 2


def test_ranks_save_and_end_if_torchrun_is_killed(tmp_path: Path) -> None:
    """Nobody else could stop them."""
    out = tmp_path / "run"
    receiver, sender = CONTEXT.Pipe(duplex=False)

    def parent() -> None:
        os.environ["TORCHELASTIC_RUN_ID"] = "none"
        begun = started(out, config(100_000, checkpoint_seconds=0.5))  # with the store of the ranks
        sender.send([(process.pid, start_of(process.pid)) for process in begun.processes])
        time.sleep(LONGEST)

    torchrun = CONTEXT.Process(target=parent)
    torchrun.start()
    assert receiver.poll(LONGEST)
    ranks = receiver.recv()
    deadline = time.monotonic() + LONGEST
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    torchrun.kill()
    torchrun.join()
    while any(alive(*rank) for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    said = out.with_suffix(".txt").read_text()
    step = load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"]
    assert not any(alive(*rank) for rank in ranks) and f"stopped after step {step}; go on with" in said, said


def test_an_error_of_all_ranks_is_one_sentence(tmp_path: Path) -> None:
    ranks = started(tmp_path / "run", replace(config(3), opt=batch(3)))
    assert ranks.codes() == [2, 2]
    said = ranks.said.read_text()
    assert said.count("error") == 1 and "2 ranks cannot share equally" in said
