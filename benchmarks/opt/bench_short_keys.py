# SPDX-License-Identifier: Apache-2.0
"""Cost of sorting by 32, 24 and 16 bits of a distance, as the option short_keys chooses, and of one sort instead of
two.

    python benchmarks/opt/bench_short_keys.py --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_short_keys.py --distances 2000000 --rounds 50

Distances are sorted as a step does: a share is seen, the others are left out. Then all that is sorted for the lists of an image
and of a sweep: by the first way distances, and entries by their list after them, by the other entries alone, by 14 bits of their list and
18 of their distance. (Work between and after the sorts is the same or nearly so, and not in these times.) All by the radix sort of
kernels/common. Orders are compared with those of torch's stable sort; wrong ones are not timed. On a GPU each is captured in a graph and
replayed. Needs a GPU; tests run it small over the emulation.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.opt import kernel_times, radix_sort
from benchmarks.opt.kernel_times import Call, Report
from benchmarks.opt.radix_sort import UNWANTED, sort
from benchmarks.step.bench_step import positive
from nurec_lite.base.errors import ConfigError
from nurec_lite.native import ops

BITS = (32, 24, 16)
SHARES = (0.2, 0.44, 1.0)
LIST_BITS, PACKED_BITS = 14, 18  # of a packed key
LEAST, OCTAVES = 1 / 16, 16  # of short keys, see nurec_lite/opt/all/short_keys.py


@dataclass(frozen=True)
class Step:
    """Sorted entries of a view's lists: a million distances and this."""

    name: str
    seen: float  # share of the distances
    entries: float  # of all lists, per distance
    lists: int


STEPS = (Step("image", 0.44, 1.7, 14_600), Step("sweep", 0.25, 0.9, 8_000))


def unsigned(numbers: Tensor) -> Tensor:
    """int64 below 2^32, as int32 of the same bits."""
    return torch.where(numbers >= 1 << 31, numbers - (1 << 32), numbers).int()


def keys_of(distances: Tensor, bits: int) -> Tensor:  # int64
    """Keys of float32 in the range of short keys."""
    numbers = distances.view(torch.int32).long()
    if bits == 32:
        return numbers + (1 << 31)
    least = int(torch.tensor(LEAST).view(torch.int32))
    return (numbers - least).clamp(0, (OCTAVES << 23) - 1) >> (27 - bits)


def distances_of(n: int, generator: torch.Generator) -> Tensor:  # [n] float32
    """Distances from 2 to 100 m, many of them near."""
    return 2 + 98 * torch.rand(n, generator=generator).square()


@dataclass(frozen=True)
class Sorting:
    """A call of the sort, and the values that it must give."""

    keys: Tensor  # [n] int32
    bits: int
    values: Tensor | None
    choose: bool
    expected: Tensor  # [at most n] int64

    @staticmethod
    def of(keys: Tensor, bits: int, values: Tensor | None = None, wanted: Tensor | None = None) -> "Sorting":
        """A sort of int64 keys; `wanted` [n] bool: the others are left out."""
        number = torch.arange(len(keys), device=keys.device) if values is None else values
        one = keys if wanted is None else keys[wanted]
        expected = (number if wanted is None else number[wanted])[torch.argsort(one, stable=True)]
        marked = unsigned(keys) if wanted is None else torch.where(wanted, unsigned(keys), UNWANTED)
        return Sorting(marked, bits, None if values is None else values.int(), wanted is not None, expected)

    def __call__(self) -> object:
        return sort(self.keys, self.bits, self.values, self.choose)

    def wrong(self) -> float:
        """Share of entries out of their place."""
        found = sort(self.keys, self.bits, self.values, self.choose)
        n = len(self.expected)
        if found.kept is not None and int(found.kept) != n:
            return 1.0
        return float((found.values[:n].long() != self.expected).double().mean()) if n else 0.0


Ways = dict[tuple[str, str], list[Sorting]]  # sorts in their order, by version and by size


def of_distances(n: int, shares: list[float], device: torch.device) -> Ways:
    generator, found = torch.Generator().manual_seed(0), {}
    for share in shares:
        distances = distances_of(n, generator).to(device)
        wanted = (torch.rand(n, generator=generator) < share).to(device)
        for bits in BITS:
            on = f"{n} distances, {100 * share:.0f} % seen"
            found[f"{bits} bits", on] = [Sorting.of(keys_of(distances, bits), bits, wanted=wanted)]
    return found


def of_lists(n: int, step: Step, device: torch.device) -> Ways:
    """Both ways to the lists of a view."""
    generator = torch.Generator().manual_seed(1)
    distances = distances_of(n, generator).to(device)
    wanted = (torch.rand(n, generator=generator) < step.seen).to(device)
    entries = int(step.entries * n)
    seen = wanted.nonzero()[:, 0]
    owners = seen[torch.randint(len(seen), (entries,), generator=generator).sort().values.to(device)]
    lists = torch.randint(step.lists, (entries,), generator=generator).to(device)
    on, bits = f"{step.name}, {entries} entries", (step.lists - 1).bit_length()
    found: Ways = {}
    for of_depth in BITS:
        keys = keys_of(distances, of_depth)
        order = torch.argsort(keys[owners], stable=True)  # of the entries between the sorts
        second = Sorting.of(lists[order], bits, owners[order])
        found[f"two, {of_depth} bits", on] = [Sorting.of(keys, of_depth, wanted=wanted), second]
    packed = lists << PACKED_BITS | keys_of(distances, PACKED_BITS)[owners]
    found["one, packed", on] = [Sorting.of(packed, LIST_BITS + PACKED_BITS, owners)]
    return found


def one_after_another(sortings: list[Sorting]) -> list[object]:
    return [sorting() for sorting in sortings]


def bench(args: argparse.Namespace, device: torch.device) -> Report:
    ops.load()
    if not radix_sort.is_there():
        raise ConfigError("the radix sort is one of the GPU's kernels; use --device cuda")
    ways = of_distances(args.distances, args.shares, device)
    for step in STEPS:
        ways |= of_lists(args.distances, step, device)
    errors = {", ".join(key): max(sorting.wrong() for sorting in few) for key, few in ways.items()}
    wrong = {what: error for what, error in errors.items() if error}
    right: dict[tuple[str, str], Call] = {
        key: partial(one_after_another, few) for key, few in ways.items() if ", ".join(key) not in wrong
    }
    return {"errors": errors, "disagreements": wrong} | kernel_times.timed(right, {}, args, device)


def main(arguments: list[str]) -> int:
    p = kernel_times.parser(__doc__)
    p.add_argument("--distances", type=positive, default=1_000_000, help="of Gaussians (%(default)s)")
    p.add_argument("--shares", type=float, nargs="+", default=list(SHARES), help="of them that are seen (%(default)s)")
    return kernel_times.main("benchmarks/opt/bench_short_keys.py", p, arguments, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
