# SPDX-License-Identifier: Apache-2.0
"""Profiles of a step without and with one option, and the table of changes.

    python benchmarks/opt/profile_option.py NAME data=kitti_raw data.root=FOLDER --ncu

Arguments are those of nurec_lite.profile; before them stand `+size=large` and 20 000 steps. Both profiles have the options that it
requires. The folder `out` then holds before/ and after/ (the same steps), and with --ncu also ncu/ (counters of all kernels of one step).
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.ladder.bench_options import required
from nurec_lite.base.options import known_options
from nurec_lite.base.program import Parser, fail

DEFAULTS = ("+size=large", "train.seconds=null", "train.steps=20000")
FILTER = ".*_kernel"  # of ncu: all kernels of ours


def commands(name: str, given: list[str], out: Path, args: argparse.Namespace) -> list[list[str]]:
    """Returns the arguments of nurec_lite.profile, a list a call."""
    options = required(name)
    record = [f"tool={args.tool}", *DEFAULTS, *given]
    calls = [
        [*record, f"+opt=[{','.join(applied)}]", f"out={out / folder}"]
        for folder, applied in (("before", options[:-1]), ("after", options))
    ]
    calls.append(["compare", str(out / "before"), str(out / "after")])
    if args.ncu:
        one = ["tool=ncu", *DEFAULTS, *given, f"+opt=[{','.join(options)}]"]
        calls.append([*one, f'kernels="{FILTER}"', "steps=1", f"out={out / 'ncu'}"])
    return calls


def main(arguments: list[str]) -> None:
    """Runs the calls one after another; the first one that fails ends the program with its status."""
    p = Parser(__doc__)
    p.add_argument("name", choices=[name for name in known_options() if name != "all"], metavar="NAME", help="option")
    p.add_argument("--tool", choices=("nsys", "torch"), default="nsys", help="of before and after (%(default)s)")
    p.add_argument("--ncu", action="store_true", help="measure the kernels with the option by ncu, too")
    p.add_argument("--out", type=Path, help="folder of the profiles (runs/profile_NAME)")
    args, given = p.parse_known_args(arguments)
    if wrong := [word for word in given if word.startswith("--")]:
        fail(f"unrecognized arguments: {' '.join(wrong)}; --help lists the arguments")
    for call in commands(args.name, given, args.out or Path(f"runs/profile_{args.name}"), args):
        if status := subprocess.run([sys.executable, "-m", "nurec_lite.profile", *call], check=False).returncode:
            sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
