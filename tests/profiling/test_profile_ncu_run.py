# SPDX-License-Identifier: Apache-2.0
"""tool=ncu from end to end with a stand-in for ncu: its flags, its files, and a sentence for each kind of failure."""

import json
import os
import shlex
from pathlib import Path

import pytest
from ncu_page import FADD, NVTX, page
from PIL import Image

from nurec_lite.base import nvtx
from nurec_lite.base.folders import take
from nurec_lite.base.nvtx import DOMAIN, PACKAGE, SETTING, TORCH
from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.record.ncu import filters, run_ncu

STAND_IN = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
  --version) echo "NVIDIA (R) Nsight Compute Command Line Profiler"; echo "Version $(cat "$here/version") (build 1)"; exit ;;
  --import) echo "$LC_ALL $@" >> "$here/imports"; case "$2" in *ncu.list*) cat "$here/list.csv" ;; *) . "$here/import.sh" ;; esac; exit ;;
esac
echo "$@" >> "$here/calls"; echo "$NUREC_LITE_NVTX" >> "$here/bindings"
for a; do case "$a" in */config.yaml) out=$(dirname "$a") ;; *.ncu-rep) report=$a ;; esac; done
window() { echo '{"environment": {"device": "NVIDIA H200"}, "steps": 3}' > "$out/window-nvtx.json"; }
case "$report" in *ncu.list*) touch "$report" ;; *) . "$here/profile.sh" ;; esac
"""
GOOD = 'echo "==PROF== Connected to process 7"; window; touch "$report"'
NONE = 'echo "==WARNING== No kernels were profiled."; window; exit 1'


class StandIn:
    """A folder with a program `ncu`, its output, and its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("ncu", STAND_IN).chmod(0o755)
        self.write("version", "2025.3.1.0")
        self.write("profile.sh", GOOD)
        self.write("import.sh", 'cat "$here/page.csv"')
        self.write("page.csv", page({}, {"ID": "1", "Kernel Name": "größe,tile(int)"}, before="==PROF== noise\n"))

    def write(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def says(self, line: str) -> None:
        """Instead of a report, as ncu does while the profiled process ends well."""
        self.write("profile.sh", f"echo 'step 1'; echo {shlex.quote(line)}; window; exit 1")

    def calls(self, name: str = "calls") -> list[str]:
        return (self.folder / name).read_text().splitlines()


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A stand-in for ncu, with the package nvtx, whether that is installed or not."""
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(nvtx, "installed", lambda: True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return StandIn(tmp_path / "bin")


def run(folder: Path, **keys: str | int) -> Path:
    out = take(folder / "out", "profile").folder
    run_ncu(ProfileConfig(steps=3, **keys), out, "the command")  # type: ignore[arg-type]
    return folder / "out"


def sentence(folder: Path, **keys: str | int) -> str:
    with pytest.raises(ProfileError) as caught:
        run(folder, **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_and_what_they_say(tmp_path: Path, ncu: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(tmp_path)
    names = {
        "ncu.csv",
        "ncu.log",
        "ncu.ncu-rep",
        "kernels.json",
        "kernels.csv",
        "summary.md",
        "roofline.png",
        "stalls.png",
    }
    assert names <= {path.name for path in out.iterdir()}
    content = json.loads((out / "kernels.json").read_text())
    assert [k["name"] for k in content["kernels"]] == ["blend<3>", "größe,tile"]
    assert (content["command"], content["tool_version"], content["steps"]) == ("the command", "2025.3.1.0", 3)
    assert content["environment"] == {"device": "NVIDIA H200"} and "clocks are not locked" in content["notes"][0]
    assert "blend<3>: 2 ms, latency-bound, 64 registers, occupancy 37.5 %" in capsys.readouterr().out
    for name in ("roofline.png", "stalls.png"):
        assert Image.open(out / name).width == 2400


def test_flags_of_the_profile_and_of_the_export(tmp_path: Path, ncu: StandIn) -> None:
    run(tmp_path, kernels="blend|tile", range="step/render camera", launches=7)
    (call,) = ncu.calls()
    for flags in (
        "--profile-from-start off", "--clock-control none", "--target-processes all", "--nvtx ", "--kernel-name regex:blend|tile",
        "--launch-count 7", r"--nvtx-include nurec_lite@step\/render camera/ ", "--section SpeedOfLight_RooflineChart",
        f"{FADD},", f"{tmp_path}/out/config.yaml nvtx", "-m nurec_lite.profiling.record.window",
    ):  # fmt: skip
        assert flags in call
    assert (
        "launch__" not in call and "sm__maximum_warps" not in call
    )  # ncu works them out itself and refuses them in --metrics
    assert ncu.calls("imports") == [f"C --import {tmp_path}/out/ncu.ncu-rep --csv --page raw --print-units base"]


@pytest.mark.parametrize(("binding", "domain"), [(PACKAGE, f"{DOMAIN}@"), (TORCH, "")])
def test_filters(monkeypatch: pytest.MonkeyPatch, binding: str, domain: str) -> None:
    monkeypatch.setenv(SETTING, binding)
    monkeypatch.setattr(nvtx, "installed", lambda: True)
    assert filters(ProfileConfig()) == ["--launch-count", "200"]
    escaped = filters(ProfileConfig(range="step/a[0]@b,c*+"))
    assert escaped[-2:] == ["--nvtx-include", domain + r"step\/a\[0\]\@b\,c\*\+/"]


@pytest.mark.parametrize("binding", [PACKAGE, TORCH])
def test_the_process_records_as_the_filter_expects(
    tmp_path: Path, ncu: StandIn, monkeypatch: pytest.MonkeyPatch, binding: str
) -> None:
    """That holds in the pass that lists all kernels, too."""
    monkeypatch.setenv(SETTING, binding)
    ncu.write("profile.sh", NONE)
    ncu.write("list.csv", page({}))
    sentence(tmp_path, range="step/tile")
    assert ncu.calls("bindings") == [binding, binding]
    assert ("nurec_lite@" in ncu.calls()[0]) == (binding == PACKAGE)


def test_without_a_setting_the_process_gets_the_chosen_one(tmp_path: Path, ncu: StandIn) -> None:
    run(tmp_path)
    assert ncu.calls("bindings") == [PACKAGE]


@pytest.mark.parametrize(("seen", "found"), [("", True), ('"7 nurec_lite:step/loss:none"', False)])
def test_where_ncu_saw_no_range_at_all_the_other_binding_is_named(
    tmp_path: Path, ncu: StandIn, seen: str, found: bool
) -> None:
    ncu.write("profile.sh", NONE)
    ncu.write("list.csv", page({NVTX: seen}))
    assert (f"set {SETTING}={TORCH}" in sentence(tmp_path, range="step/tile")) == found


def test_a_cut_list_of_launches_is_reported(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("page.csv", page(*({"ID": str(k)} for k in range(20))))
    out = run(tmp_path, kernels="blend", launches=20)
    assert (
        "- Only the first 20 launches that matched were measured; launches=40 measures more."
        in (out / "summary.md").read_text()
    )


def test_results_of_an_earlier_profile_do_not_stand_in_for_a_failed_one(tmp_path: Path, ncu: StandIn) -> None:
    out = run(tmp_path)
    ncu.write("profile.sh", "exit 9")
    assert "ended with code 9" in sentence(tmp_path)
    assert not (out / "ncu.ncu-rep").exists() and not (out / "ncu.csv").exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
            "the target device 0.",
            ["ERR_NVGPUCTRPERM", "CAP_SYS_ADMIN", "CAP_PERFMON", "NVreg_RestrictProfilingToAdminUsers=0", "tool=torch"],
        ),
        (
            "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).",
            ["no CUDA driver", "lib64/stubs off LD_LIBRARY_PATH"],
        ),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is "
            "concurrently collecting profiling data.",
            ["dcgmi profile --pause", "other profiler"],
        ),
        ("==ERROR== Insufficient driver version to profile on the device.", ["driver and ncu do not match"]),
        ("==ERROR== Incompatible CUDA driver version 11040", ["driver and ncu do not match"]),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", ["ordinary container", "tool=torch"]),
        ("==ERROR== Unsupported GPU", ["does not measure this GPU"]),
        ("==ERROR== Confidential computing mode detected.", ["protected mode"]),
        ("==ERROR== Failed to find metric smsp__nothing.sum", ["does not have that counter"]),
        ("==ERROR== Option '--section Occupancy' did not match any section.", ["2022.3 or newer"]),
        ("==ERROR== Failed to save the report to file /full/ncu.ncu-rep", ["out=FOLDER"]),
    ],
)
def test_what_ncu_says_gets_a_remedy(tmp_path: Path, ncu: StandIn, line: str, expected: list[str]) -> None:
    ncu.says(line)
    found = sentence(tmp_path)
    assert found.startswith("ncu says '") and all(words in found for words in expected)


@pytest.mark.parametrize("prefix", ["==ERROR== ", "==WARNING== ", ""])
@pytest.mark.parametrize(
    "line",
    [
        "Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option.",
        "Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux (WSL).",
        "Profiling is not supported on this device.",
        "Profiling kernels is not supported by the driver of this GPU.",
        "Unsupported device: Tesla P100",
    ],
)
def test_a_gpu_that_ncu_does_not_measure(tmp_path: Path, ncu: StandIn, prefix: str, line: str) -> None:
    """ncu ends before it starts the training, which is not blamed."""
    ncu.write("profile.sh", f"echo {shlex.quote(prefix + line)} >&2; exit 1")
    found = sentence(tmp_path)
    assert (
        found.startswith(f"ncu says '{line}': this ncu does not measure this GPU here; install")
        and "use tool=torch" in found
    )


def test_an_ncu_that_starts_nothing_is_blamed_itself(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", "echo 'cannot open libnvperf_host.so'; exit 127")
    found = sentence(tmp_path)
    assert found.startswith("ncu ended with code 127 before the training began (cannot open libnvperf_host.so); ")
    assert "ncu.log" in found and found.endswith("install another NVIDIA Nsight Compute, or use tool=torch")
    ncu.write("profile.sh", "touch \"$out/window-nvtx.began\"; echo 'RuntimeError: out of order'; exit 1")
    assert sentence(tmp_path).startswith(
        "the training steps ended with code 1 before all were recorded (RuntimeError: out"
    )


def test_an_error_of_ncu_goes_before_its_warnings(tmp_path: Path, ncu: StandIn) -> None:
    ncu.says("==WARNING== Unsupported GPU\n==ERROR== LibraryNotLoaded")
    assert sentence(tmp_path).startswith("ncu says 'LibraryNotLoaded'")


def test_a_report_of_a_process_that_broke_off_is_explained(tmp_path: Path, ncu: StandIn) -> None:
    line = "==ERROR== Profiling failed because a driver resource was unavailable."
    ncu.write("profile.sh", f'echo "{line}"; touch "$report"; exit 1')
    assert "dcgmi profile --pause" in sentence(tmp_path)


def test_words_of_the_profiled_process_are_not_those_of_ncu(tmp_path: Path, ncu: StandIn) -> None:
    ncu.says("Unsupported GPU")
    assert sentence(tmp_path).startswith("ncu wrote no report (code 1)")


def test_what_the_profiled_process_says_is_passed_on(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", """echo '{"error": "no such capture; name another"}' > "$out/window-nvtx.json"; exit 2""")
    assert sentence(tmp_path) == "no such capture; name another"


def test_no_kernel_matched_tells_which_there_were(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", NONE)
    columns = [{"Kernel Name": name} for name in ("render_forward", "render_backward", "render_forward", "größe")]
    ncu.write("list.csv", page(*columns))
    found = sentence(tmp_path, kernels="rendr", range="step/tile")
    assert found.startswith(
        "no kernel matched kernels=rendr range=step/tile; there were render_forward, render_backward, größe, "
        "in the ranges step/render; kernels is a regular"
    )
    first, second = ncu.calls()
    assert "regex:rendr" in first and "--kernel-name" not in second and "--nvtx-include" not in second
    assert ncu.calls("imports")[-1].endswith("--print-kernel-base function")


def test_long_lists_of_kernels_are_cut(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", NONE)
    ncu.write("list.csv", page(*({"Kernel Name": f"k{k}"} for k in range(40))))
    assert "k29 and 10 more, in " in sentence(tmp_path, kernels="x")


def test_no_kernel_matched_and_no_list_either(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", NONE)
    ncu.write("list.csv", "")
    assert "tool=nsys or tool=torch lists the kernels" in sentence(tmp_path, kernels="x")


def test_a_window_without_kernels(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("profile.sh", NONE)
    assert sentence(tmp_path) == "the 3 steps of the window launched no kernel; use device=cuda and more steps"


def test_a_report_that_cannot_be_exported(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("import.sh", "echo '==ERROR== Failed to load report file'; exit 1")
    found = sentence(tmp_path)
    assert "ncu cannot export" in found and "it says '==ERROR== Failed to load report file'" in found


def test_an_export_without_the_expected_columns(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("page.csv", page({}, without=("gpu__time_duration.sum",)))
    assert "has no column gpu__time_duration.sum" in sentence(tmp_path)


def test_a_regular_expression_that_is_none(tmp_path: Path, ncu: StandIn) -> None:
    assert sentence(tmp_path, kernels="render(").startswith("kernels='render(' is no regular expression: ")


def test_an_old_ncu(tmp_path: Path, ncu: StandIn) -> None:
    ncu.write("version", "2021.3.1.0")
    assert "is version 2021.3.1.0, but 2022.3 or newer is needed" in sentence(tmp_path)
