# SPDX-License-Identifier: Apache-2.0
"""The option `lazy_harmonics`: Gaussians that take their steps when they are seen come to where those are that take each when it is made,
which is asked in float64. CUDA's drivers alone have it: on a CPU these are the emulated ones."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from bundle_scenes import PLAN, driven
from launch_steps import state_for
from parity import DEVICES
from recorder_standin import install
from rounding import assert_near
from stepping import assert_close, cramped, everything, no_sync_of, steps
from tiny_capture import tiny_shots
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native.bind import native_stages
from nurec_lite.native.groups import LazyArrays, PlacementArrays
from nurec_lite.native.lazy import RING, Lag, seen_colour
from nurec_lite.opt.lazy_harmonics import arrays_of
from nurec_lite.scene.gaussians import PartedGaussians
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.stages import Stages

BETAS, EPSILON = (0.9, 0.999), 1e-15
RATES = 0.02, 0.001


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- steps of harmonics alone


class Both:
    """Harmonics that lag behind, and the same in float64 which take each step of torch's Adam."""

    def __init__(self, n: int, bands: int, device: torch.device) -> None:
        self.n, self.bands, self.device = n, bands, device
        values = torch.randn(n, 1, 3, device=device), torch.randn(n, bands - 1, 3, device=device)
        self.exact = [v.double().requires_grad_() for v in values]
        groups = [{"params": [p], "lr": lr} for p, lr in zip(self.exact, RATES, strict=True)]
        self.adam = torch.optim.Adam(groups, betas=BETAS, eps=EPSILON)
        own = [v.clone().requires_grad_() for v in values]
        self.arrays = LazyArrays(*own, *(torch.zeros_like(v) for _ in range(2) for v in values))
        self.counts = torch.zeros((), device=device), torch.zeros((), device=device)
        self.still = torch.randn(n, 3, device=device) * 3
        self.lag = Lag()

    def step(self, share: float = 0.4, failed: bool = False) -> None:
        """Of which an eye sees such a share."""
        eye, seen = torch.randn(3, device=self.device), (torch.rand(self.n, device=self.device) < share)
        with self.lag.awaiting(self.arrays, self.counts, (*BETAS, EPSILON)):
            colour = seen_colour(self.gaussians(), eye, seen.byte(), lag=self.lag, otherwise=pytest.fail)
            self.assert_colours(colour, eye, seen)
            d_colour = torch.randn_like(colour) * seen[:, None] * (torch.rand_like(colour) < 0.8)
            colour.backward(d_colour)
        flag = torch.tensor(float(failed), device=self.device)
        rates = torch.tensor([9.0, *RATES], device=self.device)
        self.lag.end(rates, (1, 2), flag)
        if not failed:
            self.exact_step(eye, d_colour, colour.detach())

    def gaussians(self) -> PartedGaussians:
        g: Any = PartedGaussians.__new__(PartedGaussians)
        none = self.still.new_empty(0)
        found = {
            "still_means": self.still, "means": none.view(0, 3), "rotations": none.view(0, 4), "nodes": none.long(),
            "sh0": self.arrays.sh0, "sh_rest": self.arrays.sh_rest,
        }  # fmt: skip
        for name, value in found.items():
            object.__setattr__(g, name, value)
        return g

    def basis(self, eye: Tensor) -> Tensor:
        return sh_basis(F.normalize(self.still.double() - eye.double(), dim=-1), self.bands)

    def assert_colours(self, colour: Tensor, eye: Tensor, seen: Tensor) -> None:
        sums = 0.5 + (self.basis(eye)[:, :, None] * torch.cat(self.exact, dim=1)).sum(dim=1)
        torch.testing.assert_close(colour.double(), sums.clamp(min=0) * seen[:, None], rtol=1e-4, atol=1e-4)

    def exact_step(self, eye: Tensor, d_colour: Tensor, colour: Tensor) -> None:
        product = self.basis(eye)[:, :, None] * (d_colour * (colour > 0)).double()[:, None]
        self.exact[0].grad, self.exact[1].grad = product[:, :1].clone(), product[:, 1:].clone()
        self.adam.step()

    def assert_same(self) -> None:
        self.lag.settle()
        for k, p in enumerate(self.exact):
            assert_near(self.arrays[k], p, 1e-4)
            assert_near(self.arrays[k + 2], self.adam.state[p]["exp_avg"], 1e-4)
            assert_near(self.arrays[k + 4], self.adam.state[p]["exp_avg_sq"], 1e-4)
        assert float(self.counts[0]) == float(self.counts[1]) == float(self.adam.state[self.exact[0]]["step"])


@pytest.mark.parametrize("bands", [1, 4, 9, 16])
@pytest.mark.parametrize("n", [0, 1, 15, 33, 127, 128, 129, 300])
def test_steps_are_those_of_torch(n: int, bands: int, device: torch.device) -> None:
    """Sizes about those of a block, seen now and then."""
    both = Both(n, bands, device)
    for _ in range(7):
        both.step()
    if n:
        both.assert_same()
        both.step()
        both.assert_same()


def test_more_steps_than_are_kept(device: torch.device) -> None:
    """Nobody misses more than half of them, seen or not."""
    both = Both(1000, 4, device)
    for _ in range(2 * RING + 5):
        both.step(share=0.004)
    both.assert_same()


def test_steps_that_fail_leave_nothing(device: torch.device) -> None:
    """Though they have seen others than the steps before and behind them."""
    both = Both(200, 9, device)
    for failed in (False, True, False, True, True, False, False):
        both.step(failed=failed)
    both.assert_same()


def test_steps_in_between_that_go_another_way(device: torch.device) -> None:
    """All have taken these when they are made."""
    both = Both(150, 4, device)
    both.step()
    both.lag.settle()
    both.assert_same()
    for k, p in enumerate(both.exact):
        p.grad = None
        with torch.no_grad():
            both.arrays[k].mul_(0.5)
            p.mul_(0.5)
    for count in both.counts:
        count.add_(1)
    for p in both.exact:
        both.adam.state[p]["step"] += 1
    both.lag.end(torch.zeros(3, device=device), (1, 2), None)
    both.step()
    both.assert_same()


def test_an_error_names_what_is_wrong(device: torch.device) -> None:
    both = Both(5, 4, device)
    both.step()
    arrays, many = both.lag._arrays, both.lag._steps
    assert arrays is not None and many is not None
    settle = torch.ops.nurec_lite.settle_harmonics
    with pytest.raises(ValueError, match=r"harmonics has 5 tensors, but must have 6"):
        settle(arrays[:5], many, *BETAS, EPSILON)
    with pytest.raises(TypeError, match="the first moment of sh_rest is Double, but must be Float"):
        settle(arrays._replace(first_sh_rest=arrays.first_sh_rest.double()), many, *BETAS, EPSILON)
    with pytest.raises(ValueError, match=r"factors has shape \[7, 4\]"):
        settle(arrays, many._replace(factors=many.factors[:7]), *BETAS, EPSILON)
    with pytest.raises(ValueError, match="rates has 2 numbers, but number 3 is asked for"):
        torch.ops.nurec_lite.end_lazy_step(many, many.factors[0, :2].contiguous(), 1, 3, None, *BETAS)
    with pytest.raises(ValueError, match="there are 4 Gaussians, but harmonics of 5"):
        placed = PlacementArrays(both.still[:4].contiguous(), *both_less(both))
        torch.ops.nurec_lite.lazy_colour(placed, both.still[0].contiguous(), None, arrays, many, *BETAS, EPSILON)


def both_less(both: Both) -> tuple[Tensor, Tensor, Tensor]:
    g = both.gaussians()
    return g.means, g.rotations, g.nodes


# ---- the option

ALL = (
    "fused_interp", "collect_once", "no_sync", "warp_cull", "tile_cull", "balanced_tiles", "fused_adam", "fused_ssim", "fused_sky",
    "fused_colour", "fused_activate", "fused_range", "fused_harmonics",
)  # fmt: skip
PLAN_OF_A_GPU = replace(PLAN, bundles=False, exact=False)


def stages_with(device: torch.device, *names: str, **own: dict[str, Any]) -> Stages:
    """As on a machine with a GPU."""
    base = replace(base_stages("native", device), device="cuda", plan=PLAN_OF_A_GPU, bind=native_stages)
    given = {name: parameters_of(name) | own.get(name, {}) for name in names}
    return build_stages(given, replace(base, **native_stages(PLAN_OF_A_GPU)))


def run(device: torch.device, names: tuple[str, ...], n: int, **how: Any) -> Any:
    """The state behind n steps, of which some relocate Gaussians, and some are done again."""
    stages = stages_with(device, *names)
    state = state_for(stages, device, **{k: v for k, v in how.items() if k == "calibrate"})
    state.config.density.every = how.get("every", 4)
    steps(cramped(stages, how["fails"]) if "fails" in how else stages, state, n)
    assert "fails" not in how or no_sync_of(stages).redone >= len(how["fails"])
    return state


@pytest.mark.parametrize("calibrate", [False, True])
def test_steps_are_those_without_it(calibrate: bool, device: torch.device) -> None:
    found = [run(device, (*ALL, *more), 3, calibrate=calibrate) for more in (("lazy_harmonics",), ())]
    assert_close(*found, 1e-3, 1e-4)


def test_steps_that_grow_and_that_are_done_again(device: torch.device) -> None:
    plain = run(device, (*ALL, "lazy_harmonics"), 10)
    again = run(device, (*ALL, "lazy_harmonics"), 10, fails={1, 2})
    assert len(again.scene.gaussians) == len(plain.scene.gaussians) > len(run(device, ALL, 1).scene.gaussians)
    for state in (plain, again):
        assert all(value.isfinite().all() for value in everything(state).values())
        kept = [state.optimizer.state[getattr(state.scene.gaussians, name)]["step"] for name in ("means", "sh0")]
        assert float(kept[0]) == float(kept[1]) == 10


def test_a_step_that_is_done_again_is_the_same(device: torch.device) -> None:
    names = (*ALL, "lazy_harmonics")
    assert_close(run(device, names, 3, fails={1}), run(device, names, 3), 1e-3, 1e-4)


def test_it_goes_with_recorded_steps(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type == "cpu":
        install(monkeypatch)
    names = (*ALL, "lazy_harmonics", "fused_project")
    assert_close(run(device, (*names, "cuda_graph"), 3, every=100), run(device, names, 3, every=100), 1e-3, 1e-4)


@pytest.mark.gpu
def test_it_goes_with_side_streams() -> None:
    device, names = driven("cuda"), (*ALL, "lazy_harmonics", "fused_project")
    assert_close(run(device, (*names, "side_streams", "cuda_graph"), 3), run(device, names, 3), 1e-3, 1e-4)


@pytest.mark.parametrize("images", [(), (0, 1)], ids=["no image", "two images"])
def test_steps_of_another_number_of_images(images: tuple[int, ...], device: torch.device) -> None:
    """Between steps of one, which leave something to take."""
    if device.type == "cuda":
        pytest.skip("these shots lie on the CPU")
    found = []
    for more in (("lazy_harmonics",), ()):
        stages = stages_with(device, *(name for name in (*ALL, *more) if name != "no_sync"))
        state = state_for(stages, device)
        for views in ((0,), images, (1,)):
            stages.schedule(stages, state)
            stages.learn(stages, state, tiny_shots(views, (0,)))
        stages.settle(stages, state)
        found.append(state)
    assert_close(*found, 1e-3, 1e-4)


def test_what_it_needs_and_where_it_stands_aside(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    below = ("fused_interp", "fused_adam", "fused_colour", "fused_harmonics")
    assert stages_with(device, *below, "lazy_harmonics").plan.lag is not None  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="requires 'fused_harmonics'"):
        stages_with(device, *below[:3], "lazy_harmonics")
    with pytest.raises(OptionError, match="without 'amp'; leave one of them out"):
        stages_with(device, *below, "amp", "lazy_harmonics")
    with pytest.raises(OptionError, match="'amp' changes the update of 'fused_adam'"):
        stages_with(device, *below, "lazy_harmonics", "amp")
    touched = {"fused_adam": {"touched_only": True}}
    with pytest.raises(OptionError, match="without touched_only"):
        stages_with(device, *below, "lazy_harmonics", **touched)
    base = base_stages("native", torch.device("cpu"))
    given = {name: parameters_of(name) for name in (*below, "lazy_harmonics")}
    with pytest.raises(OptionError, match="kernels of the GPU alone; use device=cuda"):
        build_stages(given, base)


def test_others_than_the_parameters_go_the_plain_way(device: torch.device) -> None:
    """Such as those of a scene that nobody trains: all of it has taken all steps."""
    both, asked = Both(4, 4, device), []
    found = seen_colour(both.gaussians(), both.still[0], lag=both.lag, otherwise=partial(_told, asked))
    assert found is both.still and len(asked) == 1
    state = run(device, (*ALL, "lazy_harmonics"), 2)
    arrays, counts, betas = arrays_of(state.optimizer)
    assert arrays.sh0 is state.scene.gaussians.sh0 and betas == (*BETAS, EPSILON)
    assert all(float(count) == 2 for count in counts)
    assert arrays_of(make_optimizer(state.scene, state.config.lr))[1][0].item() == 0


def _told(asked: list[Any], gaussians: PartedGaussians, eye: Tensor, seen: Tensor | None) -> Tensor:
    asked.append(eye)
    return gaussians.still_means
