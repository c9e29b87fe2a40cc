# SPDX-License-Identifier: Apache-2.0
"""What all tests share: seeds, threads, the markers `gpu`, `slow` and `portable`, and the KITTI capture."""

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
from known_verdicts import remembered

from nurec_lite.base.threads import share
from nurec_lite.capture.checks import trust

MAX_THREADS = 2  # what tests compute is small
TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
LONGEST = tuple(f"{file}.py" for file in (  # files that take 20 s and more, the longest first
    "native/test_emulated_cuda", "cli/test_interrupts", "training/test_train", "cli/test_fuzz", "opt/test_compile",
    "training/test_odd_captures", "capture/kitti/test_kitti_mutations", "native/test_registers", "cli/test_readme",
    "project/test_installed", "profiling/test_profile_command", "benchmarks/test_ladder", "cli/test_strangers", "cli/test_arguments",
    "benchmarks/test_quality_gate", "native/test_math_outline", "cli/test_extremes", "benchmarks/test_bench_launch_bounds",
    "cli/test_multirun", "opt/test_batch", "evaluation/test_evaluate", "cli/test_words", "capture/simulate/test_simulate",
    "capture/kitti/test_kitti_mutations_frames", "cli/test_runs", "cli/test_outlived", "cli/test_errors", "project/test_faults",
    "benchmarks/test_bench_options", "capture/pack/test_pack_mutations", "cli/test_broken",
    "cli/test_left_out", "training/test_gone", "capture/checks/test_cameras", "capture/checks/test_agreement",
    "capture/odometry/test_odometry", "capture/odometry/test_real_drives",
))  # fmt: skip
SLOW = (  # files and folders that take minutes and seldom find anything: `make test` leaves them out, CI runs a part of them
    "benchmarks",
    *(f"capture/{name}.py" for name in (
        "checks/test_cameras", "kitti/test_kitti_conventions", "kitti/test_kitti_mutations", "kitti/test_kitti_mutations_frames",
        "odometry/test_real_drives", "pack/test_pack_mutations", "simulate/test_simulate",
    )),
    *(f"cli/test_{name}.py" for name in (
        "extremes", "fuzz", "hostile_texts", "left_out", "lying_captures", "outlived", "strangers",
    )),
    *(f"native/test_{name}.py" for name in ("emulated_cuda", "math_outline", "registers")),
    *(f"project/test_{name}.py" for name in ("faults", "installed", "wheel")),
    "opt/test_batch.py", "training/test_clocks.py", "training/test_gone.py",
)  # fmt: skip
FIRST = {  # of the cases of these tests so many run always; the others count as slow
    **{f"capture/checks/test_{name}": n for name, n in (
        ("agreement.py::test_too_little_says_nothing", 2), ("boxes.py::test_the_reading_that_fits_is_named", 3),
        ("checked_rays.py::test_right_rays_are_not_doubted", 2), ("poses.py::test_the_convention_that_fits_is_named", 3),
        ("poses.py::test_a_tunnel_raises_no_alarm", 2), ("poses.py::test_the_corrected_capture_is_the_right_one", 1),
        ("positions.py::test_gps_of_kitti_that_jumps_is_named_once", 1),
    )},
    **{f"capture/kitti/test_{name}": n for name, n in (
        ("kitti_lacking.py::test_a_thinned_drive_is_split_by_the_moments_that_are_there", 1),
        ("lidar_crops.py::test_streets_have_no_cut", 2),
        ("lidar_crops.py::test_what_was_cut_away_is_no_empty_ray_and_is_said", 12),
        ("lidar_kinds.py::test_beams_and_steps_are_those_of_the_file", 2), ("lidar_kinds.py::test_rings_of_kitti_in_other_orders", 2),
    )},
    **{f"cli/test_{name}": n for name, n in (
        ("arguments.py::test_an_option_of_a_gpu_is_refused_on_a_cpu", 2), ("arguments.py::test_steps_alone_replace_the_seconds", 5),
        ("bounds.py::test_a_key_out_of_its_range", 12), ("broken.py::test_a_few_that_fly_away_are_counted", 2),
        ("config.py::test_every_option_file_composes_and_holds_its_own_name", 4), ("errors.py::test_a_damaged_drive", 6),
        ("names_of_captures.py::test_a_camera_of_a_pack", 4), ("rows_of_cases.py::test_a_pack_that_is_wrong_ends_the_run", 2),
        ("words.py::test_every_verb_takes_any_folder", 8),
    )},
}  # fmt: skip
NUMBERS = ("geometry", "capture", "scene", "splat", "training", "evaluation")  # folders whose numbers torch rounds
RUNS = (  # files and folders of those whose tests are whole runs or read whole drives: what they call has tests of its own
    *(f"capture/{name}" for name in (
        "argoverse2", "checks", "colmap", "kitti", "kitti360", "ncore", "nuscenes", "odometry", "pack", "pandaset", "rosbag",
        "simulate/test_simulate.py", "test_gpu_jpeg.py", "test_images.py", "tracking", "waymo",
    )),
    "evaluation/test_beside.py", "evaluation/test_evaluate.py", "scene/test_device.py", "scene/test_init.py", "scene/test_whole_drives.py",
    *(f"training/test_{name}.py" for name in (
        "branches", "calibrate", "checkpoint", "clocks", "coarse", "gone", "known_capture", "odd_captures", "schema", "seams", "spread",
        "train",
    )),
)  # fmt: skip

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
    """Threads of this process and of those that it starts: the workers of pytest-xdist and what tests run."""
    processes = config.getoption("numprocesses", None) or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(min(MAX_THREADS, int(share(processes)["OMP_NUM_THREADS"]))))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


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
    """Of `-m portable` only files that hold such tests are imported."""
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
    """Whether a part of the slow tests may leave it out. All emulated tests count as slow."""
    slow = EMULATED or item.get_closest_marker("slow") is not None
    return slow and item.get_closest_marker("every_part") is None


def leave_out_other_parts(part: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the slow tests one part stays. A checksum of its name decides where a test belongs."""
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
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A command that runs in this process sets up logging to a stream that pytest closes: what comes after the test writes elsewhere."""
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
