# SPDX-License-Identifier: Apache-2.0
"""Nothing under a mask counts: not for the first scene, a step, its gradients, or a metric; and all renderers and losses agree on it."""

import numpy as np
import pytest
import torch
from masked_capture import MASK, repainted
from parity import DEVICES
from tiny_capture import tiny_config
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.types import Capture
from nurec_lite.evaluation import perceptual
from nurec_lite.evaluation.lpips import Lpips
from nurec_lite.evaluation.measure import Frames, evaluate
from nurec_lite.evaluation.metrics import ImageMetrics
from nurec_lite.evaluation.perceptual import Perceptual
from nurec_lite.evaluation.pictures import hatched
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.masks import blackened, reduced, seen_mean
from nurec_lite.native import ops
from nurec_lite.opt.all.fused_ssim import image_loss
from nurec_lite.scene.init import make_scene
from nurec_lite.training import losses
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

CPU = torch.device("cpu")


def trained(capture: Capture, options: tuple[str, ...] = ()) -> TrainState:
    """After two steps, the first with half of the images' width and height."""
    config = tiny_config(2)
    config.train.coarse = 0.4
    stages = build_stages({name: parameters_of(name) for name in options}, base_stages("native", CPU))
    scene = make_scene(capture, config.model, 0, "cpu")
    plan = stages.feed.frames(ShotPlan(capture, 0, 128, coarse=True))
    state = TrainState(plan, config, scene, make_optimizer(scene, config.lr), torch.Generator().manual_seed(0), CPU)
    for k in range(2):
        state.step, state.progress = k, k / 2
        step(stages, state)
    return state


def test_what_lies_under_a_mask_changes_nothing() -> None:
    """Pixels that nothing is learned from could be anything: the first scene, two steps, and the metrics have the same bits."""
    first, second = (trained(repainted(seed)) for seed in (1, 2))
    for a, b in zip(first.scene.parameters().values(), second.scene.parameters().values(), strict=True):
        assert torch.equal(a, b)
    stages = base_stages("native", CPU)
    found = [evaluate(stages, first.scene, c, Frames((4,), ())) for c in map(repainted, (1, 2))]
    assert found[0].metrics["psnr"] == found[1].metrics["psnr"] and found[0].metrics["ssim"] == found[1].metrics["ssim"]
    assert np.array_equal(found[0].images[0].truth, found[1].images[0].truth)


def test_options_learn_the_same_through_a_mask() -> None:
    plain = trained(repainted(1)).scene.parameters()
    for options in (("fused_ssim", "collect_once"),):
        for name, value in trained(repainted(2), options).scene.parameters().items():
            torch.testing.assert_close(value, plain[name], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_the_loss_and_its_gradient_are_those_of_float64(device: str) -> None:
    ops.load()
    g = torch.Generator().manual_seed(0)
    image, target = (torch.rand(24, 40, 3, generator=g, dtype=torch.float64) for _ in range(2))

    def found(loss: object, dtype: torch.dtype, where: str) -> tuple[Tensor, Tensor]:
        leaf = image.to(where, dtype).requires_grad_()
        value = loss(blackened(leaf, MASK), blackened(target.to(where, dtype), MASK), 0.2)  # type: ignore[operator]
        return value.detach().double().cpu(), torch.autograd.grad(value, leaf)[0].double().cpu()

    expected = found(losses.image_loss, torch.float64, "cpu")
    assert not expected[1][MASK].any() and bool(expected[1][~MASK].all())
    for a, b in zip(found(image_loss, torch.float32, device), expected, strict=True):
        assert float((a - b).abs().max()) <= 2e-5 * float(b.abs().max())


def test_metrics_are_those_of_what_is_seen() -> None:
    """An error in all pixels that are seen has the PSNR of such an error; one under the mask has none."""
    capture = repainted()
    frame = capture.images[0]
    target = frame.load()
    worse = (target.float() / 255 + 0.1).clamp(0, 1)
    mse = float(seen_mean((worse - target / 255).double().square(), MASK))
    assert mse == pytest.approx(float((worse - target / 255)[~MASK].double().square().mean()), rel=1e-6)
    for rendered, expected in ((worse, mse), (torch.where(MASK[..., None], 0, target / 255), 0.0)):
        metrics = ImageMetrics()
        found, structure = metrics.add(rendered, target, capture, frame).tolist()
        assert found == pytest.approx(expected, abs=1e-12) and (structure == pytest.approx(1)) == (expected == 0)


def test_flip_and_lpips_weigh_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error everywhere costs the same with a mask and without; one under the mask costs nothing."""
    layers = [
        (torch.ones(2, 3, 11, 11), torch.zeros(2)),
        *((torch.ones(2, 2, k, k), torch.zeros(2)) for k in (5, 3, 3, 3)),
    ]
    network = Lpips(layers, [torch.ones(1, 2, 1, 1)] * 5)
    monkeypatch.setattr(perceptual, "load_lpips", lambda device: network)
    target = torch.rand(80, 96, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(80, 96, dtype=torch.bool)
    mask[60:] = True
    hidden = torch.where(mask[..., None], 1 - target, target)
    for rendered, costs in ((hidden, False), (1 - target, True)):
        found = Perceptual(60, 1, CPU, LeftOut())
        found.add(rendered, target, mask)
        assert [value > 0 for value in found.summary().values()] == [costs, costs]


def test_masks_are_reduced_to_blocks_and_hatched_in_pictures() -> None:
    camera = Camera("front", 40, 24, 30, 30, 20, 12, torch.eye(4, dtype=torch.float64), mask=MASK)
    half = camera.downscaled(2)
    assert half.mask is not None and half.mask.shape == (12, 20) and half.mask is reduced(MASK, 2)
    assert bool(half.mask[7:, 1:].all()) and not half.mask[:7].any() and not half.mask[:, :1].any()
    assert camera.resized(20, 12).mask is None
    picture = np.full((24, 40, 3), 7, np.uint8)
    shown = hatched(picture, MASK)
    assert np.array_equal(hatched(picture, None), picture) and (shown[~MASK.numpy()] == 7).all()
    assert set(np.unique(shown[MASK.numpy()])) == {96, 128}
