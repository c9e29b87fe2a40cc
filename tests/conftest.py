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
FIRST = {  # of the cases of these tests so many run always; the others count as slow. 0: all of them do
    "api/test_public.py::test_train_stays_a_function_when_its_module_is_imported_later": 0,
    "api/test_python_documents.py::test_the_notebook_runs": 0,
    "capture/argoverse2/test_argoverse2.py::test_texts_of_gigabytes": 0,
    **{f"capture/checks/test_{name}": n for name, n in (
        ("agreement.py::test_a_clock_that_is_off", 0), ("agreement.py::test_a_lidar_of_one_beam", 0),
        ("agreement.py::test_a_vehicle_that_stands_and_drives", 1), ("agreement.py::test_too_little_says_nothing", 1),
        ("agreement.py::test_what_cannot_be_told_is_not_said", 1), ("boxes.py::test_the_reading_that_fits_is_named", 2),
        ("checked_rays.py::test_rays_of_pandaset_are_not_doubted", 0), ("checked_rays.py::test_right_rays_are_not_doubted", 1),
        ("checked_rays.py::test_training_on_a_pack_stops_with_the_sentence", 1),
        ("checked_rays.py::test_what_is_wrong_is_named_once", 12), ("driving.py::test_a_jump_is_named_with_its_frame_and_size", 3),
        ("poses.py::test_a_tunnel_raises_no_alarm", 1), ("poses.py::test_rays_in_other_axes_are_blamed_on_the_lidar", 1),
        ("poses.py::test_right_poses_of_a_real_drive_are_not_doubted", 0), ("poses.py::test_scales_near_one_are_named", 1),
        ("poses.py::test_the_convention_that_fits_is_named", 2), ("poses.py::test_the_corrected_capture_is_the_right_one", 1),
        ("positions.py::test_gps_of_kitti_that_jumps_is_named_once", 0),
        ("positions.py::test_gps_of_kitti_that_stands_still_is_named_once", 0), ("stamps.py::test_pandaset_is_not_doubted", 0),
    )},
    **{f"capture/kitti/test_{name}": n for name, n in (
        ("kitti_lacking.py::test_a_thinned_drive_is_split_by_the_moments_that_are_there", 1),
        ("lidar_crops.py::test_points_of_a_voxel_filter", 0), ("lidar_crops.py::test_points_removed_at_random", 2),
        ("lidar_crops.py::test_streets_have_no_cut", 1), ("lidar_crops.py::test_what_was_cut_away_is_no_empty_ray_and_is_said", 6),
        ("lidar_kinds.py::test_beams_and_steps_are_those_of_the_file", 1),
        ("lidar_kinds.py::test_points_whose_beams_are_lost_are_refused", 1), ("lidar_kinds.py::test_rings_of_kitti_in_other_orders", 1),
        ("lidar_kinds.py::test_several_returns_of_kittis_lidar", 1),
    )},
    **{f"capture/odometry/test_odometry.py::test_{name}": n for name, n in (
        ("a_jump_of_the_receiver_is_gone", 0), ("one_empty_sweep_costs_nothing", 0), ("poses_of_nowhere_are_replaced", 0),
        ("poses_that_are_wrong_are_left_to_the_checks", 0), ("the_place_where_a_drive_began_is_found_again", 0),
        ("velocities_of_another_vehicle_are_not_used", 0),
    )},
    "capture/pandaset/test_broken_pandaset.py::test_a_table_that_unpacks_to_gigabytes": 0,
    **{f"cli/test_{name}": n for name, n in (
        ("arguments.py::test_a_run_that_goes_on_follows_the_same_rule", 0),
        ("arguments.py::test_an_option_of_a_gpu_is_refused_on_a_cpu", 1),
        ("arguments.py::test_it_is_found_where_it_is_named_and_where_it_was", 1),
        ("arguments.py::test_steps_alone_replace_the_seconds", 4), ("bounds.py::test_a_key_out_of_its_range", 6),
        ("broken.py::test_a_few_that_fly_away_are_counted", 1), ("broken.py::test_a_run_that_is_well_is_left_alone", 0),
        ("broken.py::test_a_scene_that_flies_apart_is_told", 0), ("broken.py::test_the_count_goes_on_and_evaluate_repeats_it", 0),
        ("broken.py::test_what_is_not_finite_is_never_saved", 1), ("config.py::test_a_size_goes_over_what_a_capture_chooses", 3),
        ("config.py::test_every_option_file_composes_and_holds_its_own_name", 4),
        ("errors.py::test_a_checkpoint_of_another_configuration", 1), ("errors.py::test_a_damaged_drive", 3),
        ("errors.py::test_a_damaged_pack", 2), ("errors.py::test_the_drive_as_it_is_trains", 0),
        ("known_captures.py::test_the_same_capture_elsewhere_goes_on_without_a_word", 0),
        ("multirun.py::test_a_folder_that_is_given_is_kept", 0), ("multirun.py::test_one_folder_for_all_gets_a_folder_a_job", 0),
        ("multirun.py::test_the_ladder_is_what_a_multirun_launches", 0), ("names_of_captures.py::test_a_camera_of_a_pack", 2),
        ("names_of_captures.py::test_any_other_name_of_a_pack", 4), ("names_of_captures.py::test_two_names_of_one_file", 2),
        ("rows_of_cases.py::test_a_pack_that_is_wrong_ends_the_run", 1), ("rows_of_faults.py::test_a_git_that_is_of_no_use", 1),
        ("rows_of_faults.py::test_a_lock_of_others", 2), ("rows_of_faults.py::test_a_track_that_cannot_be", 0),
        ("rows_of_faults.py::test_the_remedy_of_a_run_that_goes_on_can_be_pasted", 1),
        ("runs.py::test_a_budget_that_is_spent_is_a_sentence", 2), ("runs.py::test_another_run_s_checkpoint_does_not_free_the_folder", 0),
        ("start.py::test_an_optimizer_does_without_torch_s_compiler", 0),
        ("strange_folders.py::test_a_run_keeps_the_files_of_others_in_its_folder", 0),
        ("strange_folders.py::test_exports_and_packs_may_stand_beside_others", 0),
        ("strange_folders.py::test_two_containers_render_into_one_folder", 0), ("words.py::test_a_checkpoint_lies_anywhere", 4),
        ("words.py::test_cfg_job_shows_them", 0), ("words.py::test_every_verb_takes_any_folder", 4),
    )},
    "evaluation/test_beside.py::test_rays_of_the_moved_lidar_end_at_the_points": 1,
    "opt/test_compile.py::test_steps_are_those_without_it": 0,
    "output/test_export.py::test_the_command_line": 0,
    "profiling/test_profile_command.py::test_what_nsys_says": 5,
    "scene/test_whole_drives.py::test_a_drive_of_447_frames_holds_a_few_of_them_at_a_time": 0,
    "service/test_storm.py::test_a_short_storm": 0,
    **{f"training/test_{name}": n for name, n in (
        ("branches.py::test_no_branch_reads_what_it_was_not_given", 2),
        ("spread.py::test_a_rank_that_is_killed_ends_all_with_one_sentence_and_a_whole_checkpoint", 1),
        ("train.py::test_a_mistake_is_one_sentence_and_code_2", 0), ("train.py::test_a_resumed_run_is_bitwise_an_uninterrupted_one", 1),
        ("train.py::test_the_checkpoint_of_another_capture_is_refused", 0),
    )},
    "viewer/test_view.py::test_the_command_ends_well_at_ctrl_c": 0,
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
