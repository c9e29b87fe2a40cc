# SPDX-License-Identifier: Apache-2.0
"""The option `fused_ssim`: the loss and its gradient are those of the plain one, which is asked in float64."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from operators import check_schema
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from benchmarks.opt import bench_fused_ssim
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.opt.all.fused_ssim import image_loss
from nurec_lite.training import losses
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {"fused_ssim": parameters_of("fused_ssim")}
SIZES = (  # of images; strips are 128 numbers wide, which are 42 2/3 pixels, and 24 rows high
    (1, 1), (1, 43), (2, 3), (5, 5), (11, 11), (23, 42), (24, 43), (25, 44), (30, 1), (49, 86), (60, 31),
)  # fmt: skip
WEIGHTS = (0.0, 0.2, 1.0)


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def noisy_pair(size: tuple[int, int], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Smooth with noise; some pixels are equal, some rendered ones lie beyond 0 and 1."""
    y, x = torch.meshgrid(*(torch.linspace(0, 3, n) for n in size), indexing="ij")
    smooth = 0.5 + 0.4 * torch.sin(torch.stack([x + y, 2 * x - y, x * y], dim=-1))
    target = (smooth + 0.05 * torch.randn(*size, 3)).clamp(0, 1)
    rendered = torch.where(torch.rand(*size, 1) < 0.3, target, smooth + 0.3 * torch.randn(*size, 3))
    return rendered.to(device), target.to(device)


def with_gradients(loss, pair: tuple[Tensor, Tensor], weight: float) -> list[Tensor]:
    """The loss, and 3 times its gradients."""
    leaves = [image.clone().requires_grad_() for image in pair]
    value = loss(*leaves, weight)
    return [value.detach(), *torch.autograd.grad(3 * value, leaves)]


def assert_close(found: list[Tensor], expected: list[Tensor], part: float = 2e-5) -> None:
    """Compares relative to the largest number of each tensor."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == torch.float32
        assert float((a.double() - b).abs().max()) <= part * float(b.abs().max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients(size: tuple[int, int], weight: float, device: str) -> None:
    pair = noisy_pair(size, device)
    expected = with_gradients(losses.image_loss, tuple(image.double() for image in pair), weight)
    assert_close(with_gradients(image_loss, pair, weight), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_as_near_to_the_truth_as_the_plain_one(device: str) -> None:
    """The hardest case for single precision is a bright image of little contrast, where variances are differences of equal numbers."""
    target = 0.9 + 0.01 * torch.rand(60, 70, 3)
    pair = (target + 0.01 * torch.randn_like(target)).to(device), target.to(device)
    truth = with_gradients(losses.image_loss, tuple(image.double() for image in pair), 1.0)
    found = [with_gradients(loss, pair, 1.0)[1] for loss in (image_loss, losses.image_loss)]
    ours, plain = ((gradient - truth[1]).norm() for gradient in found)
    assert ours <= plain


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_flat_and_equal_images(value: float, device: str) -> None:
    """No gradient, no NaN: SSIM is 1 and L1 0 in every pixel."""
    flat = torch.full((26, 45, 3), value, device=device)
    loss, d_rendered, d_target = with_gradients(image_loss, (flat, flat), 0.2)
    assert float(loss) == 0
    assert not d_rendered.any() and not d_target.any()


@pytest.mark.parametrize("device", DEVICES)
def test_an_image_and_another_that_has_nothing_to_do_with_it(device: str) -> None:
    """Negative similarities."""
    pair = torch.rand(30, 50, 3, device=device), torch.rand(30, 50, 3, device=device)
    expected = with_gradients(losses.image_loss, tuple(image.double() for image in pair), 0.2)
    assert_close(with_gradients(image_loss, pair, 0.2), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_images_with_strides(device: str) -> None:
    """Channels first in memory, and every other column of a wider one; gradients have the images' shapes."""
    a, b = noisy_pair((25, 44), device)
    strided = torch.zeros(25, 88, 3, device=device)[:, ::2].copy_(a), b.movedim(-1, 0).contiguous().movedim(0, -1)
    assert_close(
        with_gradients(image_loss, strided, 0.2), [x.double() for x in with_gradients(image_loss, (a, b), 0.2)], 0
    )


@pytest.mark.parametrize("device", DEVICES)
def test_only_what_is_asked_for(device: str) -> None:
    rendered, target = noisy_pair((9, 13), device)
    both = with_gradients(image_loss, (rendered, target), 0.2)
    for k, leaf in enumerate((rendered, target)):
        leaf.requires_grad_()
        (alone,) = torch.autograd.grad(3 * image_loss(rendered, target, 0.2), leaf)
        leaf.requires_grad_(False)
        assert torch.equal(alone, both[1 + k])


@pytest.mark.parametrize("device", DEVICES)
def test_twice_the_same_bits(device: str) -> None:
    pair = noisy_pair((60, 90), device)
    for a, b in zip(with_gradients(image_loss, pair, 0.2), with_gradients(image_loss, pair, 0.2), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_are_whole_ones(device: str) -> None:
    """Schema, fake kernel and gradient agree, also for torch.compile."""
    rendered, target = noisy_pair((7, 9), device)
    d_loss, slopes = torch.ones((), device=device), torch.randn(3, 7, 9, 3, device=device)
    check_schema(torch.ops.nurec_lite.image_loss.default, (rendered.requires_grad_(), target, 0.2))
    args = rendered.detach(), target, 0.2, slopes, d_loss
    check_schema(torch.ops.nurec_lite.image_loss_backward.default, args)


@pytest.mark.parametrize(
    ("rendered", "target", "error", "sentence"),
    [
        (torch.zeros(0, 5, 3), torch.zeros(0, 5, 3), ValueError, "height of rendered is 0"),
        (torch.zeros(5, 0, 3), torch.zeros(5, 0, 3), ValueError, "width of rendered is 0"),
        (torch.zeros(5, 4, 4), torch.zeros(5, 4, 4), ValueError, "rendered has shape"),
        (torch.zeros(5, 4, 3), torch.zeros(4, 5, 3), ValueError, "target has shape"),
        (torch.zeros(5, 4, 3).double(), torch.zeros(5, 4, 3), TypeError, "rendered is Double, but must be Float"),
        (torch.zeros(5, 4, 3), torch.zeros(5, 4, 3).byte(), TypeError, "target is Byte, but must be Float"),
    ],
)
def test_what_does_not_fit_is_refused(rendered: Tensor, target: Tensor, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        image_loss(rendered, target)


# ---- in training


def test_the_option_swaps_the_loss() -> None:
    assert build_stages(OPTIONS).changes.claims == {"image_loss": "fused_ssim"}


def test_steps_are_those_without_it() -> None:
    """Three, before anything is relocated."""
    found = []
    for options in (OPTIONS, {}):
        state, stages = tiny_state(tiny_config()), build_stages(options, base_stages("native", torch.device("cpu")))
        for state.step in range(3):
            terms = step(stages, state).terms
        found.append((float(terms["image"]), state.scene.parameters()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-3)
    for name, value in found[0][1].items():
        close(value, found[1][1][name])


@pytest.mark.gpu
def test_a_graph_of_it_is_replayed() -> None:
    """Forward and backward are captured once, and take the images of their launch."""
    rendered, target = noisy_pair((40, 60), "cuda")
    rendered.requires_grad_()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        torch.autograd.grad(image_loss(rendered, target), rendered)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        loss = image_loss(rendered, target)
        (gradient,) = torch.autograd.grad(loss, rendered)
    other = noisy_pair((40, 60), "cuda")
    with torch.no_grad():
        rendered.copy_(other[0]), target.copy_(other[1])
    graph.replay()
    expected = with_gradients(image_loss, other, 0.2)
    assert torch.equal(loss, expected[0])
    assert_close([3 * gradient], [expected[1].double()], 1e-6)  # there the three is within the rounding


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "40x30", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_ssim.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {(row["version"], row["on"]) for row in report["rows"]} == {
        (version, f"40x30 {what}") for version in ("plain", "fused") for what in ("forward", "and backward")
    }
    assert bench_fused_ssim.least_bytes("40x30", "and backward") == 4 * 3 * 40 * 30 * 11
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(bench_fused_ssim.VERSIONS, "plain", lambda a, b, w: 1.01 * losses.image_loss(a, b, w))
    assert bench_fused_ssim.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["plain, 40x30"]
    assert {row["version"] for row in report["rows"]} == {"fused"}
