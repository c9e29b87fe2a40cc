# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: seeds, threads, the markers `gpu`, `slow` and `portable`, and the KITTI capture."""

import gc
import logging
import os
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

# before torch is imported: a busy machine is slow enough without spinning
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # or nurec_lite.base.threads sets it for the processes that tests start

import hypothesis
import pytest
import torch
from chosen_tests import FIRST, LONGEST, NUMBERS, RUNS, SLOW
from known_verdicts import remembered

from nurec_lite.base.threads import share
from nurec_lite.capture.checks import trust

MAX_THREADS = 2  # tests compute little
TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

WITHOUT_VECTORS = os.environ.get("ATEN_CPU_CAPABILITY") == "default"
EMULATED = os.environ.get("NUREC_LITE_EMULATE_CUDA") == "1"
if EMULATED:
    import emulation

    emulation.install()

hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("seeded")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-part", metavar="K/N", help="of the slow tests the K-th of N parts, K from 0; all others run anyway"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets threads of this process and of those that it starts: the workers of pytest-xdist and the programs under test."""
    processes = config.getoption("numprocesses", None) or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(min(MAX_THREADS, int(share(processes)["OMP_NUM_THREADS"]))))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    let_torch_propagate()


def let_torch_propagate() -> None:
    """Lets pytest hear torch's 40 loggers from the root. It would give each its handlers, and take them back, six times a test."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and the modules of torch live as long as the process: the collector of garbage leaves them out."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.collect()
    gc.freeze()
    return collected


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Imports for `-m portable` only files that hold such tests."""
    file = collection_path.name.startswith("test_")
    return True if file and config.getoption("markexpr") == "portable" and not is_portable(collection_path) else None


def is_slow(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / slow) for slow in SLOW)


def is_portable(path: Path) -> bool:
    return path.relative_to(TESTS).parts[0] in NUMBERS and not any(path.is_relative_to(TESTS / run) for run in RUNS)


def mark_later_cases(items: list[pytest.Item]) -> None:
    """Marks the cases after the FIRST ones as slow."""
    seen = Counter[str]()
    for item in items:
        test = f"{item.path.relative_to(TESTS)}::{getattr(item, 'originalname', '')}"
        seen[test] += 1
        if seen[test] > FIRST.get(test, len(items)):
            item.add_marker(pytest.mark.slow)


def is_parted(item: pytest.Item) -> bool:
    """Whether a part of the slow tests may leave it out. All emulated tests count as slow, and all that run again without wide vectors."""
    slow = EMULATED or WITHOUT_VECTORS or item.get_closest_marker("slow") is not None
    return slow and item.get_closest_marker("every_part") is None


def leave_out_other_parts(part: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps one part of the slow tests. A checksum of a test's name decides where it belongs."""
    k, n = map(int, part.split("/"))
    others = [item for item in items if is_parted(item) and crc32(item.nodeid.encode()) % n != k]
    config.hook.pytest_deselected(items=others)
    left_out = set(others)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist, whose processes should end together
        order = {file: k for k, file in enumerate(LONGEST)}
        items.sort(key=lambda item: order.get(str(item.path.relative_to(TESTS)), len(order)))
    slow, portable = cache(is_slow), cache(is_portable)
    mark_later_cases(items)
    for item in items:
        if slow(item.path):
            item.add_marker(pytest.mark.slow)
        if portable(item.path) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.portable)
    if part := config.getoption("--slow-part"):
        leave_out_other_parts(part, config, items)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seeds a host without a GPU by its generator alone: torch.manual_seed formats the stack there, for a thousand times as long."""
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A command that runs in this process sets up logging to a stream that pytest closes: later messages go elsewhere."""
    loggers = [logging.getLogger(name) for name in (None, "nurec_lite")]
    before = [list(logger.handlers) for logger in loggers]
    yield
    for logger, known in zip(loggers, before, strict=True):
        for handler in [h for h in logger.handlers if h not in known]:
            logger.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def verdicts() -> Iterator[None]:
    """A capture that many runs of this process train on is checked once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust, "verdicts", remembered(trust.verdicts))
        yield


@pytest.fixture(scope="session")
def kitti_root() -> Path:
    """KITTI raw drive 2011_09_26_0009, never part of the project. Where it is absent a test skips, or fails if CI is set."""
    root = Path(os.environ.get("NUREC_KITTI", ROOT.parent / "shared/data/kitti_raw_0009"))
    if not (root / "2011_09_26").is_dir():
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(f"no KITTI raw capture at {root}; set NUREC_KITTI to the folder that holds 2011_09_26")
    return root
