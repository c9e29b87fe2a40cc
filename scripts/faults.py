# SPDX-License-Identifier: Apache-2.0
"""Ends runs of nurec_lite.train in every way that a machine or a user knows, at random moments, and looks whether anything was lost.

    python scripts/faults.py                                                        20 trials of each fault
    python scripts/faults.py --faults kill worker --trials 10 -- device=cuda +opt=all data=pack data.root=drive.pack

After each fault: no traceback, no process left, no temporary file, files that belong together; then `train.resume=auto` must end
well, on a CPU with the very bits of a run that nothing befell. Without data a tiny drive is simulated. Moments are drawn from --seed.
docs/reliability.md has figures.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nurec_lite.base.folders import MARKER
from nurec_lite.base.program import Parser
from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.training.checkpoint import load_checkpoint
from scripts.faults_child import Child, session, start

TINY = SimulationConfig(
    frames=10, width=40, height=24, beams=8, azimuth_steps=64, samples=1, moving_cars=2, parked_cars=2
)
SMALL = [
    "device=cpu", "model.points=400", "model.actor_points=20", "model.raised_points=60", "model.far_points=40", "train.lidar_rays=64",
    "train.seconds=null", "train.steps=40", "train.checkpoint_seconds=0", "density.every=10", "density.cap=500",
]  # fmt: skip
ENDED = 0.7  # factor of the time range for moments, after one that came too late
FIGURES = ("psnr", "ssim", "lidar_median_abs_m")


@dataclass
class Bench:
    """Folder of the trials, and the run to compare with."""

    folder: Path
    pack: Path | None  # of our own; None: the arguments name a capture
    arguments: list[str]
    chance: random.Random
    seconds: float = 1.0  # from the begin of training to the end of the unbroken run
    exact: bool = True  # whether bits are compared
    whole: dict[str, torch.Tensor] = field(default_factory=dict)  # of the unbroken run
    trials: int = 0

    def line(self, out: Path, pack: Path | None = None) -> list[str]:
        data = [] if self.pack is None else ["data=pack", f"data.root={pack or self.pack}"]
        return [*data, *self.arguments, f"out={out}", "train.resume=auto"]

    def new(self) -> Path:
        self.trials += 1
        return self.folder / f"trial-{self.trials}"

    def moment(self, child: Child, out: Path) -> None:
        """Waits for a random moment between the begin of training and its end."""
        while child.running() and not (out / "config.yaml").exists():
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, self.seconds))


def flat(tree: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """Tensors by their dotted keys."""
    if isinstance(tree, torch.Tensor):
        return {prefix: tree}
    inner = tree.items() if isinstance(tree, dict) else ()
    return {key: leaf for name, sub in inner for key, leaf in flat(sub, f"{prefix}.{name}").items()}


def contents(out: Path) -> dict[str, torch.Tensor]:
    content = load_checkpoint(out / "checkpoint.pt", "cpu")
    return flat({key: content[key] for key in ("scene", "optimizer", "generator")})


def check_ended(child: Child, codes: tuple[int, ...], sentence: str = "") -> None:
    assert child.code in codes, f"it ended with {child.code}: {child.said()}"
    assert not child.traced(), f"a traceback: {child.log}"
    assert sentence in child.said(), f"it said: {child.said()}"
    end = time.monotonic() + 5
    while left := session(child.pid):
        assert time.monotonic() < end, f"processes are left: {left}"
        time.sleep(0.02)


def check_belongs(out: Path) -> None:
    """Asserts that all files of a folder belong to one checkpoint, at every moment."""
    if not (out / "checkpoint.pt").exists():
        assert not (out / "metrics.json").exists()
        return
    content = load_checkpoint(out / "checkpoint.pt", "cpu")
    step = content["counters"]["step"]
    if (out / "config.yaml").exists():
        stored = OmegaConf.to_container(OmegaConf.load(out / "config.yaml"), resolve=False)
        assert stored == content["config"], "config.yaml is of another run"
    if (out / "metrics.json").exists():
        assert json.loads((out / "metrics.json").read_text())["steps"] == step, "metrics of another checkpoint"
    if (out / "history.csv").exists():
        rows = (out / "history.csv").read_text().splitlines()[1:]
        assert all(float(row.split(",")[0]) <= step for row in rows), "a history of another checkpoint"


def finish(bench: Bench, out: Path) -> dict[str, float]:
    """resume=auto ends well, with the bits of the unbroken run; returns its metrics."""
    check_belongs(out)
    if not (out / "metrics.json").exists():
        child = start(bench.line(out), bench.folder / f"{out.name}-on.log")
        child.wait()
        check_ended(child, (0,))
    check_belongs(out)
    left = [path.name for path in out.iterdir() if path.name.startswith(".") and path.name != MARKER]
    assert not left, f"temporary files are left: {left}"
    if bench.exact:
        found = contents(out)
        assert found.keys() == bench.whole.keys()
        other = [name for name, value in bench.whole.items() if not torch.equal(value, found[name])]
        assert not other, f"other bits than the unbroken run: {other}"
    metrics = json.loads((out / "metrics.json").read_text())
    return {name: metrics[name] for name in FIGURES if metrics.get(name) is not None}


# ---- faults: each returns its event in words, and the folder


def kill(bench: Bench) -> tuple[str, Path]:
    """SIGKILL, as by the kernel when memory is short."""
    while True:
        out = bench.new()
        child = start(bench.line(out), bench.folder / f"{out.name}.log")
        bench.moment(child, out)
        child.signal(signal.SIGKILL)
        child.wait()
        check_ended(child, (-signal.SIGKILL, 0))
        if child.code:
            return "killed", out
        shutil.rmtree(out)
        bench.seconds *= ENDED  # it had ended: the machine is faster than it was


def worker(bench: Bench) -> tuple[str, Path]:
    """SIGKILL or SIGSTOP for a loader process: the run itself goes on."""
    number = bench.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
    own = [] if any("opt=" in argument for argument in bench.arguments) else ["+opt=workers"]
    while True:
        out = bench.new()
        child = start([*bench.line(out), *own], bench.folder / f"{out.name}.log")
        bench.moment(child, out)
        victims = child.workers()
        if victims:
            os.kill(bench.chance.choice(victims), number)
        child.wait()
        check_ended(child, (0,))
        if victims:
            return f"{number.name} for one of {len(victims)} loader processes", out
        shutil.rmtree(out)
        bench.seconds *= ENDED  # they had ended


def ask(bench: Bench) -> tuple[str, Path]:
    """A signal that asks for the end, once or twice, to the process or to its group, with a reader of its output or without."""
    out, number = bench.new(), bench.chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    group, twice, dead = (bench.chance.random() < 0.5 for _ in range(3))
    reader, writer = os.pipe()
    log = bench.folder / f"{out.name}.log"
    child = start([*bench.line(out), "+opt=workers"], log, writer if dead else None)
    os.close(writer)
    bench.moment(child, out)
    os.close(reader)  # its output goes nowhere from now on
    child.signal(number, group)
    if twice and number != signal.SIGINT:
        child.signal(number, True)
    child.wait(40)
    check_ended(child, (2, 0), "" if dead or child.code == 0 else "error: ")
    began = (out / "history.csv").exists() or child.code == 0
    assert began or not (out / "metrics.json").exists()
    words = f"{number.name} {'twice ' if twice else ''}to the {'group' if group else 'process'}"
    return f"{words}{', nobody reads' if dead else ''}", out


def pack(bench: Bench) -> tuple[str, Path]:
    """The capture is cut short while the run reads it, and comes back."""
    out, own = bench.new(), bench.folder / "cut.pack"
    assert bench.pack is not None, "the fault 'pack' cuts a file: leave the data.* out"
    shutil.copy(bench.pack, own)
    child = start(bench.line(out, own), bench.folder / f"{out.name}.log")
    bench.moment(child, out)
    os.truncate(own, own.stat().st_size // 20)
    child.wait()
    check_ended(child, (2, 0), "cut.pack" if child.code == 2 else "")
    return "cut short" if child.code else "it had ended", out


def disk(bench: Bench) -> tuple[str, Path]:
    """A disk that is full for two seconds; needs to mount one."""
    mount = bench.folder / "disk"
    mount.mkdir(exist_ok=True)
    size = "16m"
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], capture_output=True
    ).returncode:
        raise SkipError("no disk can be mounted here")
    out, place = bench.new(), mount / "run"
    try:
        child = start(bench.line(place), bench.folder / f"{out.name}.log")
        bench.moment(child, place)
        fill(mount / "filler")
        time.sleep(2)
        (mount / "filler").unlink(missing_ok=True)
        child.wait()
        check_ended(child, (2, 0), "is saved, and" if child.code == 2 else "")
        shutil.copytree(place, out)
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False)
    return "full for 2 s", out


def fill(path: Path) -> None:
    """Until nothing more fits."""
    try:
        with path.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        return


def second(bench: Bench) -> tuple[str, Path]:
    """Another run in the same folder is refused, and the first goes on."""
    out = bench.new()
    child = start(bench.line(out), bench.folder / f"{out.name}.log")
    bench.moment(child, out)
    busy = child.running()
    other = start(bench.line(out), bench.folder / f"{out.name}-second.log")
    other.wait()
    sentence = "is in use by process" if child.running() else ""
    check_ended(other, (2, 0) if not child.running() else (2,), sentence)
    child.wait()
    check_ended(child, (0,))
    return "refused" if busy else "it had ended", out


class SkipError(Exception):
    """The fault cannot be made here."""


FAULTS: dict[str, Callable[[Bench], tuple[str, Path]]] = {
    "kill": kill, "worker": worker, "ask": ask, "pack": pack, "disk": disk, "second": second
}  # fmt: skip


def prepared(args: argparse.Namespace, folder: Path) -> Bench:
    """Prepares a bench, with the unbroken run."""
    own = not any(argument.startswith("data") for argument in args.overrides)
    small = SMALL if own else ["train.seconds=null", "train.steps=300", "train.checkpoint_seconds=0"]
    bench = Bench(folder, folder / "tiny.pack" if own else None, [*small, *args.overrides], random.Random(args.seed))
    bench.exact = "device=cpu" in bench.arguments and "device=cuda" not in bench.arguments
    if bench.pack:
        write_pack(simulate(TINY).with_split("interp"), bench.pack, image_format="png")
    out = bench.new()
    child = start(bench.line(out), folder / "whole.log")
    while child.running() and not (out / "config.yaml").exists():
        time.sleep(0.002)
    begin = time.monotonic()
    child.wait(600)
    bench.seconds = time.monotonic() - begin
    check_ended(child, (0,))
    bench.whole = contents(out)
    print(f"unbroken: {bench.seconds:.1f} s of training and measuring; {summary(finish(bench, out))}", flush=True)
    return bench


def summary(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def tried(bench: Bench, name: str, n: int) -> bool | None:
    """Whether a trial passed; None: it cannot be made here."""
    begin = time.monotonic()
    try:
        what, out = FAULTS[name](bench)
        found = finish(bench, out)
    except SkipError as reason:
        print(f"{name}: left out, {reason}", flush=True)
        return None
    except AssertionError as error:
        print(f"{name} {n}: FAILED, {error}", flush=True)
        return False
    print(f"{name} {n}: {what}; went on well, {summary(found)} ({time.monotonic() - begin:.1f} s)", flush=True)
    shutil.rmtree(out)
    return True


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS), help="which ones (all)")
    p.add_argument("--trials", type=int, default=20, help="of each (%(default)s)")
    p.add_argument("--seed", type=int, default=0, help="of the moments (%(default)s)")
    p.add_argument("--keep", type=Path, help="folder for runs and logs (a temporary one, removed when all passed)")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, after --")
    return p


def main() -> int:
    args = parser().parse_args()
    folder = Path(args.keep or tempfile.mkdtemp(prefix="faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    bench = prepared(args, folder)
    failed = 0
    for name in args.faults:
        results = []
        for n in range(args.trials):
            results.append(tried(bench, name, n))
            if results[-1] is None:
                break
        passed = results.count(True)
        failed += results.count(False)
        print(f"{name}: {passed} of {passed + results.count(False)} trials went on well", flush=True)
    if failed:
        print(f"{failed} trials failed; logs in {folder}")
    elif not args.keep:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
