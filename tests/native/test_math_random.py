# SPDX-License-Identifier: Apache-2.0
"""kernels/math/random.cuh: Philox4x32-10 is that of its paper, and its normal numbers are normal."""

import math

import numpy as np
import pytest
import torch
from kernel_math import F64, call, close
from philox import eta_of, one_round, philox
from torch import Tensor

N = 100_000  # draws
ONES = 0xFFFFFFFF
KNOWN = {  # counter and key -> words: kat_vectors of Random123, which the paper's authors distribute
    (0, 0, 0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (ONES,) * 6: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0):
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
}  # fmt: skip


def drawn(
    step: float = 1, seed: float = 0, stream: float = 1, first: int = 0
) -> Tensor:  # [N, 3] of rows from `first` on
    return call("drawn", torch.arange(first, first + N, dtype=F64)[:, None], step, seed, stream)


@pytest.mark.parametrize("given", KNOWN, ids=["zeros", "ones", "pi"])
def test_known_answers(given: tuple[int, ...]) -> None:
    found = call("philox", torch.tensor([given], dtype=F64))
    assert found[0].tolist() == list(KNOWN[given])
    assert philox(np.array([given[:4]], dtype=np.uint64), given[4:])[0].tolist() == list(KNOWN[given])  # type: ignore[arg-type]


def test_random_words_are_those_of_the_publication() -> None:
    counter = np.random.default_rng(0).integers(0, 1 << 32, (1000, 4), dtype=np.uint64)
    rows, key = torch.from_numpy(counter.astype(np.float64)), (0xFEDCBA98, 7)
    for name, reference in (("philox_round", one_round), ("philox", philox)):
        found = call(name, rows, float(key[0]), float(key[1]))
        assert np.array_equal(found.numpy().astype(np.uint64), reference(counter, key)), name


def test_uniform_numbers_lie_between_0_and_1_and_a_float_holds_them() -> None:
    words = torch.tensor([0, 1, 511, 512, 1 << 31, ONES - 512, ONES], dtype=F64)[:, None]
    words = torch.cat([words, torch.arange(0, 1 << 32, 65_537, dtype=F64)[:, None]])
    found = call("uniform_of", words)
    assert torch.equal(found, ((words / 512).floor() + 0.5) / (1 << 23))
    assert torch.equal(call("uniform_of_float", words), found)
    assert float(found.min()) == 2.0**-24 and float(found.max()) == 1 - 2.0**-24


def test_pairs_of_normal_numbers() -> None:
    turns = torch.rand(100, 1, dtype=F64)
    close(call("on_circle", turns), torch.cat([(2 * math.pi * turns).cos(), (2 * math.pi * turns).sin()], 1))
    far = torch.tensor([0.0, ONES, 1 << 31], dtype=F64)[:, None]
    found = call("normals_of", far, float(1 << 30))
    close(found.norm(dim=1, keepdim=True), (-2 * call("uniform_of", far).log()).sqrt())
    assert found.isfinite().all() and float(found.abs().max()) < 5.8


@pytest.mark.parametrize(("step", "seed"), [(1, 0), (30_000, 1), (1 << 24, ONES)])
def test_draws_of_rows(step: int, seed: int) -> None:
    """In single precision, too: uniform numbers are the same, and logarithm, root, and circle are off by some units in the last place."""
    rows, expected = torch.arange(5000, dtype=F64)[:, None], eta_of(5000, step, seed)
    close(call("drawn", rows, float(step), float(seed), 1.0), expected)
    close(call("drawn_float", rows, float(step), float(seed), 1.0), expected, 5e-7)


def test_the_largest_row() -> None:
    assert call("drawn", torch.tensor([[float(ONES)]], dtype=F64), 1.0, 0.0, 1.0).isfinite().all()


# ---- whether they are normal: all limits are five standard deviations of the estimate


def test_moments_of_every_axis() -> None:
    """The variances of x, x^2, x^3 and x^4 of a normal number x are 1, 2, 15 and 96."""
    x = drawn()
    for power, (mean, variance) in enumerate(((0, 1), (1, 2), (0, 15), (3, 96)), start=1):
        assert bool(((x**power).mean(0) - mean).abs().max() <= 5 * math.sqrt(variance / N)), power


def test_as_many_in_every_class() -> None:
    """64 of equal chance: chi^2 of 63 has a spread of 11."""
    classes = (64 * torch.special.ndtr(drawn())).long()
    for axis in classes.T:
        counts = torch.bincount(axis, minlength=64)
        assert float(((counts - N / 64) ** 2 / (N / 64)).sum()) < 63 + 5 * math.sqrt(2 * 63)


@pytest.mark.parametrize("square", [False, True])
def test_nothing_tells_of_anything_else(square: bool) -> None:
    """Neither of axes, nor of the next row, step, seed and stream, nor far away; neither values nor sizes. A product of two that do not
    depend on one another has a variance of 1; of x^2 - 1, of 4."""

    def shaped(x: Tensor) -> Tensor:
        return x**2 - 1 if square else x

    x, limit = shaped(drawn()), 5 * (2 if square else 1) / math.sqrt(N)
    others = [
        drawn(step=2),
        drawn(seed=1),
        drawn(stream=2),
        drawn(step=1000),
        drawn(first=1),
        drawn(first=256),
        drawn(0, 1),
    ]
    for other in others:  # of every axis with every one
        assert float((x.T @ shaped(other) / N).abs().max()) <= limit
    assert float((x.T @ x / N).fill_diagonal_(0).abs().max()) <= limit


def test_step_seed_and_stream_draw_others_and_the_same_draw_the_same() -> None:
    x = drawn()
    assert torch.equal(x, drawn())
    for other in (drawn(step=2), drawn(seed=1), drawn(stream=2)):
        assert not bool((x == other).all(1).any())
    assert torch.equal(x[1:], drawn(first=1)[:-1])  # a row's own, beside any other rows
