# SPDX-License-Identifier: Apache-2.0
"""The program that profiles an option: its calls can be given, before and after differ by the option alone, a failure ends it."""

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.opt import profile_option
from nurec_lite.base.options import known_options
from nurec_lite.cli.command import composed


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of nurec_lite.profile; the call whose folder is named `bad` fails."""
    seen: list[list[str]] = []

    def run(command: list[str], **rest: Any) -> Any:
        seen.append(command[3:])
        return SimpleNamespace(returncode=2 if any("bad" in word for word in command) else 0)

    monkeypatch.setattr(profile_option, "subprocess", SimpleNamespace(run=run))
    return seen


@pytest.mark.parametrize("name", sorted(set(known_options()) - {"all"}))
def test_every_call_can_be_given(name: str, calls: list[list[str]]) -> None:
    profile_option.main([name, "data=kitti_raw", "data.root=FOLDER", "--ncu"])
    before, after, compare, ncu = calls
    needs, options = (call[-2].removeprefix("+opt=[").rstrip("]").split(",") for call in (before, after))
    assert options == [*filter(None, needs), name]
    assert compare == ["compare", f"runs/profile_{name}/before", f"runs/profile_{name}/after"]
    assert composed("profile", ncu).kernels == ".*_kernel" and composed("profile", after).train.steps == 20000
    assert composed("profile", before).tool == "nsys"


def test_a_failed_recording_ends_it(calls: list[list[str]]) -> None:
    with pytest.raises(SystemExit) as end:
        profile_option.main(["workers", "--out", "bad", "--tool", "torch"])
    assert end.value.code == 2 and len(calls) == 1
