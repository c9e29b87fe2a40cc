# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.profile: records some steps of a training run and says where their time goes."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import shlex
import sys
from pathlib import Path

from nurec_lite.base import nvtx
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.folders import take
from nurec_lite.cli.arguments import key_of, value_of
from nurec_lite.cli.command import command, composed, mended
from nurec_lite.cli.words import unquoted
from nurec_lite.config import ProfileConfig, check_budget
from nurec_lite.native import ops
from nurec_lite.profiling.compare import compare
from nurec_lite.profiling.record.nsys import record_nsys
from nurec_lite.profiling.record.results import write_profile
from nurec_lite.profiling.record.torch_profiler import record_torch
from nurec_lite.profiling.summary.markdown import headline
from nurec_lite.profiling.summary.summarise import summarise
from nurec_lite.training.folder import refuse_run

HELP = """
Records some steps of a training run and says where their time goes, on the host and on the GPU.

  python -m nurec_lite.profile                                            the bundled street, by nsys
  python -m nurec_lite.profile tool=torch                                 where nsys is missing, or on a CPU
  python -m nurec_lite.profile data=kitti_raw data.root=FOLDER +opt=all   any training run, here a drive with options
  python -m nurec_lite.profile tool=ncu kernels=render range=step/backward/render    counters of kernels
  python -m nurec_lite.profile compare runs/a runs/b --gate launches=0,time=3%    two profiles side by side

Leaves in the folder `out`: summary.json, summary.md, pictures, and what the tool itself wrote. The steps run in a process of their own.
Times taken under a profiler are for comparison with one another; train.timing=true measures without one.
"""
RECORD = {"nsys": record_nsys, "torch": record_torch}
TOOLS = ("nsys", "ncu", "torch")


def work(arguments: list[str]) -> None:
    if any(
        argument == "compare" or (key_of(argument) == "tool" and unquoted(value_of(argument)) == "compare")
        for argument in arguments
    ):
        raise ConfigError("compare is a word of its own: python -m nurec_lite.profile compare FOLDER FOLDER")
    config = composed("profile", arguments)
    check(config)
    refuse_run(config.out)
    out, line = take(config.out, "profile").folder, shlex.join(["python", "-m", "nurec_lite.profile", *arguments])
    if config.ops == "native":
        ops.load()  # compiles kernels now, not under a profiler
    if config.tool == "ncu":
        from nurec_lite.profiling.record.ncu import run_ncu

        run_ncu(config, out, line)
    else:
        _record(config, out, line)
    print(f"results in {out}: {', '.join(sorted(p.name for p in out.iterdir() if p.name[0] != '.'))}")


def _record(config: ProfileConfig, out: Path, line: str) -> None:
    trace, taken = RECORD[config.tool](config, out, line)
    summary = summarise(trace, taken)
    write_profile(out, summary, trace)
    print(headline(summary))


def check(config: ProfileConfig) -> None:
    check_budget(config)
    if config.tool not in TOOLS:
        raise ConfigError(f"tool is '{config.tool}', but must be one of {', '.join(TOOLS)}")
    if config.steps < 1 or config.warmup < 0:
        raise ConfigError(f"steps={config.steps} and warmup={config.warmup}: record at least 1 step after 0 or more")
    if config.tool != "torch":
        nvtx.chosen()  # fails before results of an earlier profile are removed


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        with mended("profile"):
            sys.exit(compare.main(sys.argv[2:]))
    command("profile", HELP, work)
