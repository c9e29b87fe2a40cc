# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d
from tiny_capture import tiny_capture
from torch import Tensor
from torch.autograd import gradcheck

from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.scene.bilateral import variation
from nurec_lite.scene.calibration import Calibration, none_known
from nurec_lite.splat.render import LidarReturns
from nurec_lite.splat.views import LidarView
from nurec_lite.training.losses import (
    LossWeights,
    backward,
    calibration_terms,
    check_terms,
    drop_loss,
    exposure_regulariser,
    image_loss,
    lidar_loss,
    regularisers,
    ssim,
    with_range_targets,
)

F64 = torch.float64


def ssim_by_definition(a: np.ndarray, b: np.ndarray) -> float:
    """Pixel by pixel: the 11x11 neighbourhood, zero outside the image, weighted by a Gaussian of sigma 1.5 that sums to 1."""
    at = np.arange(-5, 6)
    window = np.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * 1.5**2))
    window = (window / window.sum())[..., None]
    padded_a, padded_b = (np.pad(x, ((5, 5), (5, 5), (0, 0))) for x in (a, b))
    values = []
    for i, j in np.ndindex(a.shape[:2]):
        x, y = padded_a[i : i + 11, j : j + 11], padded_b[i : i + 11, j : j + 11]
        mx, my = (window * x).sum((0, 1)), (window * y).sum((0, 1))
        vx, vy = (window * x * x).sum((0, 1)) - mx**2, (window * y * y).sum((0, 1)) - my**2
        cxy = (window * x * y).sum((0, 1)) - mx * my
        values.append((2 * mx * my + 1e-4) * (2 * cxy + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))
    return float(np.mean(values))


def ssim_by_scipy(a: np.ndarray, b: np.ndarray) -> float:
    def blur(x: np.ndarray) -> np.ndarray:
        for axis in (0, 1):
            x = gaussian_filter1d(x, 1.5, axis=axis, mode="constant", radius=5)
        return x

    mx, my = blur(a), blur(b)
    vx, vy, cxy = blur(a * a) - mx**2, blur(b * b) - my**2, blur(a * b) - mx * my
    return float(np.mean((2 * mx * my + 1e-4) * (2 * cxy + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))))


def noisy_pair(height: int, width: int) -> tuple[Tensor, Tensor]:
    a = torch.rand(height, width, 3, dtype=F64)
    return a, (a + 0.2 * torch.randn_like(a)).clamp(0, 1)


@pytest.mark.parametrize("size", [(17, 23), (11, 11), (5, 30), (1, 1)])
def test_ssim_is_its_definition(size: tuple[int, int]) -> None:
    a, b = noisy_pair(*size)
    assert float(ssim(a, b)) == pytest.approx(ssim_by_definition(a.numpy(), b.numpy()), abs=1e-12)


def test_ssim_agrees_with_scipy_in_single_precision() -> None:
    a, b = noisy_pair(60, 80)
    assert float(ssim(a.float(), b.float())) == pytest.approx(ssim_by_scipy(a.numpy(), b.numpy()), abs=1e-5)


def test_ssim_of_equal_images_is_one_and_symmetric() -> None:
    a, b = noisy_pair(20, 30)
    assert float(ssim(a, a)) == pytest.approx(1, abs=1e-12)
    assert float(ssim(a, b)) == pytest.approx(float(ssim(b, a)), abs=1e-12)
    assert float(ssim(a, b)) < 0.99


def test_ssim_gradient() -> None:
    a, b = noisy_pair(3, 4)
    assert gradcheck(lambda x: ssim(x, b), a.requires_grad_())


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_ssim_gradient_is_finite_on_flat_images(value: float) -> None:
    a = torch.full((12, 12, 3), value, requires_grad=True)
    ssim(a, torch.full((12, 12, 3), value)).backward()
    assert a.grad is not None and a.grad.isfinite().all()


def test_image_loss_mixes_l1_and_ssim() -> None:
    a, b = noisy_pair(13, 15)
    l1 = float((a - b).abs().mean())
    assert float(image_loss(a, b)) == pytest.approx(0.8 * l1 + 0.2 * (1 - ssim_by_definition(a.numpy(), b.numpy())))
    assert float(image_loss(a, b, ssim_weight=0)) == pytest.approx(l1)
    assert float(image_loss(a, a)) == pytest.approx(0, abs=1e-12)


def rays(returned: list[bool]) -> tuple[LidarReturns, Sweep]:
    """Three rays: rendered ranges 10, 20, 30 and measured ones 12, 0, 29."""
    hit = torch.tensor(returned)
    returns = LidarReturns(
        distance=torch.tensor([10.0, 20, 30], requires_grad=True),
        median=torch.tensor([10.0, 20, 30]),
        features=torch.tensor([[0.5, 0.2], [0.9, 0.6], [0.1, 0.5]], requires_grad=True),  # intensity and drop
        transmittance=torch.zeros(3),
    )
    ranges, intensities = torch.tensor([12.0, 0, 29]) * hit, torch.tensor([0.25, 0, 0.4]) * hit
    return returns, Sweep(torch.zeros(3, 3), ranges, intensities, torch.zeros(3), torch.zeros(3).long(), hit)


def lidar_view_of(n: int) -> LidarView:
    lidar = Lidar("lidar", torch.eye(4, dtype=torch.float64), torch.zeros(1))
    return LidarView(torch.eye(4), torch.eye(4), 0.0, 0.1, lidar, torch.zeros(n, 3), torch.zeros(n))


def test_lidar_loss_by_hand() -> None:
    terms = lidar_loss(*rays([True, False, True]))
    assert set(terms) == {"range", "intensity", "drop"}
    assert terms["range"].item() == pytest.approx((2 + 1) / 2)
    assert terms["intensity"].item() == pytest.approx((0.25 + 0.3) / 2)
    assert terms["drop"].item() == pytest.approx(-(math.log(0.8) + math.log(0.6) + math.log(0.5)) / 3)


def test_a_range_that_is_known_as_what_it_misses_by() -> None:
    returns, sweep = rays([True, False, True])
    terms = lidar_loss(returns, sweep, with_targets=True)
    assert terms["range"].item() == pytest.approx((10 + 30) / 2)
    assert {k: v for k, v in terms.items() if k != "range"} == {
        k: v for k, v in lidar_loss(returns, sweep).items() if k != "range"
    }


def test_targets_are_the_ranges_of_what_returned() -> None:
    _, sweep = rays([True, False, True])
    view = lidar_view_of(3)
    assert with_range_targets(view, sweep, 0).targets is None
    found = with_range_targets(view, sweep, 2.5).targets
    assert found is not None and found.tolist() == [[12, 2.5], [0, 0], [29, 2.5]]


def test_a_mean_range_may_be_right_where_no_surface_is() -> None:
    """Two walls, and the return between them: the expected range has no gradient, every Gaussian's own has."""
    t, w = torch.tensor([4.0, 8.0]), torch.tensor([0.5, 0.5], requires_grad=True)
    expected, missed = (w * t).sum(), (w * (t - 6).abs().clamp(max=1)).sum()
    assert float((expected - 6).abs()) == 0
    (gradient,) = torch.autograd.grad(missed, w)
    assert gradient.tolist() == [1, 1]


def test_lidar_loss_has_no_gradient_where_nothing_returned() -> None:
    returns, sweep = rays([True, False, True])
    backward(lidar_loss(returns, sweep), LossWeights())
    assert returns.distance.grad is not None and returns.features.grad is not None
    torch.testing.assert_close(returns.distance.grad, 0.1 * torch.tensor([-0.5, 0, 0.5]))
    assert returns.features.grad[1, 0] == 0


def test_lidar_loss_without_returns_is_zero_not_nan() -> None:
    returns, sweep = rays([False, False, False])
    terms = lidar_loss(returns, sweep)
    assert terms["range"].item() == 0 and terms["intensity"].item() == 0
    assert terms["drop"].item() == pytest.approx(-(math.log(0.2) + math.log(0.6) + math.log(0.5)) / 3)
    backward(terms, LossWeights())
    assert returns.distance.grad is not None and (returns.distance.grad == 0).all()


def test_no_rays_at_all() -> None:
    nothing = torch.zeros(0)
    sweep = Sweep(nothing.view(0, 3), nothing, nothing, nothing, nothing.long(), nothing.bool())
    assert all(
        float(term) == 0
        for term in lidar_loss(LidarReturns(nothing, nothing, nothing.view(0, 2), nothing), sweep).values()
    )


def test_certain_but_wrong_ray_drop_costs_a_finite_amount() -> None:
    loss = drop_loss(torch.tensor([0.0, 1.0]), torch.tensor([False, True]))
    assert float(loss) == pytest.approx(-math.log(1e-6), rel=0.01)
    assert float(drop_loss(torch.tensor([1.0, 0.0]), torch.tensor([False, True]))) == pytest.approx(0, abs=1e-5)


def test_regularisers_and_weights() -> None:
    opacities = torch.tensor([0.2, 0.6])
    terms = regularisers(opacities, opacities, torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
    assert terms.keys() == {"opacity", "scale"}
    terms["exposure"] = exposure_regulariser(torch.tensor([[[0.0, 0, 0], [3.0, 0, 0]]]))
    assert terms["opacity"].item() == pytest.approx(0.4) and terms["scale"].item() == pytest.approx(3.5)
    assert terms["exposure"].item() == pytest.approx(1.5)


def test_each_term_goes_backward_by_its_weight() -> None:
    """A term that nothing is learned from goes nowhere."""
    terms = {name: torch.tensor(2.0, requires_grad=True) for name in ("opacity", "scale", "exposure")}
    backward(terms | {"tie": torch.tensor(1.0)}, LossWeights(opacity=10, scale=100, exposure=1000))
    assert [float(term.grad) for term in terms.values()] == [10, 100, 1000]  # type: ignore[arg-type]
    both = torch.tensor(3.0, requires_grad=True)
    backward({"opacity": both * both, "scale": 2 * both}, LossWeights(opacity=10, scale=100))
    assert both.grad is not None and float(both.grad) == 10 * 6 + 100 * 2
    backward({"tie": torch.tensor(1.0)}, LossWeights())


def test_two_opacities_are_pressed_alike_and_tied() -> None:
    camera, lidar = (torch.tensor(o, requires_grad=True) for o in ([0.2, 0.6, 0.5], [0.3, 0.2, 0.5]))
    terms = regularisers(camera, lidar, torch.ones(3, 3))
    assert terms["opacity"].item() == pytest.approx((1.3 + 1.0) / 3)
    assert terms["tie"].item() == pytest.approx((0.1 + 0.4 - 2 * 0.005) / 3)  # 0.005: of the rounded bottom
    for opacities in (camera, lidar):
        (slope,) = torch.autograd.grad(terms["opacity"], opacities, retain_graph=True)
        torch.testing.assert_close(slope, torch.full((3,), 1 / 3))  # the gradient of one opacity alone
    slopes = torch.autograd.grad(terms["tie"], [camera, lidar])
    expected = torch.tensor([-1.0, 1, 0]) / 3  # equal ones stay
    torch.testing.assert_close(slopes, (expected, -expected))


@pytest.mark.parametrize("n", [31, 1000, 34199])
def test_equal_weights_of_tie_and_opacity_leave_the_lesser_exactly_where_it_is(n: int) -> None:
    """Adam divides by the size of a gradient: rounding errors would move Gaussians that no ray sees as fast as any."""
    camera, lidar = (torch.randn(n).requires_grad_() for _ in range(2))
    opacities = torch.sigmoid(camera), torch.sigmoid(lidar)
    backward(regularisers(*opacities, torch.ones(n, 3)), LossWeights(opacity=0.01, tie=0.01))
    apart = (opacities[0] - opacities[1]).abs() > 0.011
    for logits, lesser in ((camera, camera < lidar), (lidar, lidar < camera)):
        assert logits.grad is not None and not logits.grad[lesser & apart].any()
        assert bool((logits.grad[~lesser & apart] > 0).all())


@pytest.mark.gpu
def test_losses_do_not_wait_for_the_gpu() -> None:
    returns, sweep = rays([True, False, True])
    returns = LidarReturns(*(getattr(returns, f).detach().cuda() for f in LidarReturns.__dataclass_fields__))
    sweep, image = sweep.to("cuda"), torch.rand(20, 30, 3, device="cuda", requires_grad=True)
    target = torch.rand_like(image)
    image_loss(image, target).backward()  # loads the libraries
    torch.cuda.set_sync_debug_mode("error")
    try:
        backward({"image": image_loss(image, target)} | lidar_loss(returns, sweep), LossWeights())
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_what_corrections_cost() -> None:
    """Mean squares: of poses in metres, where a radian counts as ten and a second of a clock as one; of exposures, and ten times their
    change from knot to knot."""
    generator = torch.Generator().manual_seed(3)
    shapes = {
        "rig_rotations": (5, 3), "rig_translations": (5, 3), "camera_rotations": (2, 3), "camera_translations": (2, 3),
        "exposure_drift": (2, 5, 2, 3), "vignetting": (2, 3), "camera_offsets": (2,),
    }  # fmt: skip
    values = {k: torch.randn(shape, generator=generator, dtype=torch.float64) for k, shape in shapes.items()}
    found = calibration_terms(Calibration(torch.arange(5.0), ("a", "b"), **values))
    means = {k: v.square().mean() for k, v in values.items()}
    turns, shifts = (
        means["rig_rotations"] + means["camera_rotations"],
        means["rig_translations"] + means["camera_translations"],
    )
    changes = (values["exposure_drift"][:, 1:] - values["exposure_drift"][:, :-1]).square().mean()
    torch.testing.assert_close(found["calibration"], 100 * turns + shifts + means["camera_offsets"])
    torch.testing.assert_close(found["drift"], means["exposure_drift"] + 10 * changes + means["vignetting"])
    assert calibration_terms(None) == {} and "bilateral" not in found


def test_what_grids_cost() -> None:
    """The cost is their variation, and beside the drift of exposures their own mean square."""
    calibration = none_known(tiny_capture(), 0.1, "cpu", [4, 3, 2])
    assert calibration.bilateral is not None and calibration.exposure_drift.numel() > 0
    calibration.bilateral += torch.randn(calibration.bilateral.shape, generator=torch.Generator().manual_seed(3))
    found = calibration_terms(calibration)
    torch.testing.assert_close(found["bilateral"], variation(calibration.bilateral))
    torch.testing.assert_close(found["drift"], calibration.bilateral.square().mean())


def test_a_term_that_an_option_leaves_out_is_named() -> None:
    """The term is new in the plain stages, and the stage of an option does not know it."""
    terms = {name: torch.tensor(1.0) for name in ("image", "opacity", "scale", "exposure")}
    check_terms(terms, LossWeights())
    with pytest.raises(AssertionError, match=r"the step has no loss term scale: a stage of an option leaves it out"):
        check_terms({name: term for name, term in terms.items() if name != "scale"}, LossWeights())
    check_terms({name: term for name, term in terms.items() if name != "scale"}, LossWeights(scale=0))
