# SPDX-License-Identifier: Apache-2.0
"""The operator multi_tensor_copy: every byte arrives and no other is touched; refusals; and memory of the host that a GPU
writes."""

import pytest
import torch
from operators import check_schema
from torch import Tensor

from nurec_lite.native import ops

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BLOCK = 8192  # bytes that a block takes
SIZES = (1, 3, 4, 15, 16, 17, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 21)
BEHIND = 200_000_000  # cycles: the GPU is a tenth of a second behind the host


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def copy_all(*args: object) -> None:
    torch.ops.nurec_lite.multi_tensor_copy(*args)


def random_bytes(n: int, device: str, seed: int = 0) -> Tensor:
    return torch.randint(256, (n,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("starts", [(0, 0), (4, 8), (8, 0), (1, 1), (1, 4), (3, 0)], ids=str)
def test_every_byte_arrives_and_no_other_is_touched(starts: tuple[int, int], device: str) -> None:
    """At addresses that allow sixteen bytes at once, or four, or one."""
    to, of = starts
    before = [random_bytes(n + 32, device, n) for n in SIZES]
    buffers, values = [t.clone() for t in before], [random_bytes(n + of, device, n + 1)[of:] for n in SIZES]
    copy_all([t[to : to + n] for t, n in zip(buffers, SIZES, strict=True)], values)
    for there, was, given in zip(buffers, before, values, strict=True):
        assert torch.equal(there, torch.cat([was[:to], given, was[to + len(given) :]]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 150])
def test_any_number_of_arrays(count: int, device: str) -> None:
    """More than one launch takes; of some there is nothing."""
    sizes = [(37 * k) % 101 * (k % 5) for k in range(count)]
    values = [random_bytes(n, device, k) for k, n in enumerate(sizes)]
    into, numbers = [torch.zeros_like(t) for t in values], torch.zeros(2, device=device)
    copy_all(into, values, numbers, [count, -0.5])
    assert all(torch.equal(a, b) for a, b in zip(into, values, strict=True))
    assert numbers.tolist() == [count, -0.5]


@pytest.mark.parametrize("device", DEVICES)
def test_any_types_and_shapes(device: str) -> None:
    values = [
        torch.rand(7, 5, 3, device=device), torch.rand(9, device=device) < 0.5, torch.arange(11, device=device),
        torch.rand((), dtype=torch.float64, device=device), random_bytes(33, device).view(3, 11),
        torch.tensor([float("nan"), -0.0, float("inf")], device=device), torch.zeros(0, 3, device=device),
    ]  # fmt: skip
    into = [torch.zeros_like(t) for t in values]
    copy_all(into, values)
    for a, b in zip(into, values, strict=True):
        assert torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
    bits = torch.zeros(3, dtype=torch.int32, device=device)
    copy_all([bits], [values[5]])
    assert torch.equal(bits.view(torch.float32)[1:], values[5][1:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 20, 64])
def test_numbers_alone(count: int, device: str) -> None:
    numbers = torch.rand(count).tolist()
    there = torch.zeros(count, device=device)
    copy_all([], [], there, numbers)
    assert there.tolist() == numbers


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_is_a_whole_one(device: str) -> None:
    """The operator changes exactly the tensors of its schema."""
    into, values = ([torch.rand(shape, device=device) for shape in ((5, 3), (7,))] for _ in range(2))
    for more in ((), (torch.zeros(2, device=device), [1.0, 2.0])):
        check_schema(torch.ops.nurec_lite.multi_tensor_copy.default, (into, values, *more))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"into": []}, "into has 0 tensors, but must have as many as values, 1"),
        ({"into": [torch.zeros(5, 2)]}, r"into\[0\] has 40 bytes, but must have as many as its values, 60"),
        ({"values": [torch.zeros(5, 3).double()]}, r"into\[0\] has 60 bytes, but must have as many as its values, 120"),
        ({"into": [torch.zeros(3, 5).T]}, r"into\[0\] has strides \[1, 5\], but must be contiguous"),
        ({"values": [torch.zeros(5, 6)[:, ::2]]}, r"values\[0\] is not contiguous; call \.contiguous\(\)"),
        ({"numbers": [1.0]}, "numbers are given, but not numbers_at"),
        ({"numbers_at": torch.zeros(2), "numbers": [1.0]}, "numbers_at has shape"),
        ({"numbers_at": torch.zeros(65), "numbers": [1.0] * 65}, "numbers has 65 elements, but must have 64 at most"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict, sentence: str) -> None:
    args = {"into": [torch.zeros(5, 3)], "values": [torch.zeros(5, 3)], "numbers_at": None, "numbers": []}
    with pytest.raises(ValueError, match=sentence):
        copy_all(*(args | changed).values())


def test_numbers_are_single_precision() -> None:
    with pytest.raises(TypeError, match="numbers_at is Double, but must be Float"):
        copy_all([], [], torch.zeros(1).double(), [1.0])


# ---- memory of the host


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("into", "values", "sentence"),
    [
        ("cpu", "cuda", r"into\[0\] is on cpu, but must be on cuda:0 or in page-locked memory of the host"),
        ("cuda", "cpu", r"values\[0\] is on cpu, but must be on cuda:0"),
    ],
)
def test_other_memory_of_the_host_is_refused(into: str, values: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        copy_all([torch.zeros(3, device=into)], [torch.zeros(3, device=values)])


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 5, BLOCK + 3])
def test_locked_memory_of_the_host_is_written(n: int) -> None:
    values, host = random_bytes(n, "cuda"), torch.zeros(n, dtype=torch.uint8, pin_memory=True)
    there = torch.zeros(n, dtype=torch.uint8, device="cuda")
    copy_all([host, there], [values, values])
    torch.cuda.synchronize()
    assert torch.equal(host, values.cpu()) and torch.equal(there, values)


@pytest.mark.gpu
def test_locked_memory_is_not_given_out_again_while_it_is_written() -> None:
    """Nobody waits for the numbers; memory that is taken then is other memory."""
    values = torch.full((1000,), 7.0, device="cuda")
    first = torch.empty(1000, pin_memory=True)
    place = first.data_ptr()
    del first
    host = torch.empty(1000, pin_memory=True)
    assert host.data_ptr() == place  # else this would show nothing
    torch.cuda._sleep(BEHIND)
    copy_all([host], [values])
    del host
    other = torch.zeros(1000, pin_memory=True)
    assert other.data_ptr() != place
    torch.cuda.synchronize()
    assert not other.any()
