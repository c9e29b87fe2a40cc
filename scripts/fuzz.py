# SPDX-License-Identifier: Apache-2.0
"""Gives altered packs, checkpoints, KITTI files and keys to their readers: each must be taken, or refused with one sentence.

    python scripts/fuzz.py                                    100 000 inputs, by as many processes as there are cores
    python scripts/fuzz.py --inputs 2000 --seed 7             others, and fewer
    python scripts/fuzz.py --replay 4711                      one input again, with its trace

A finding is a crash, any exception but UserError, a sentence of several lines, more than 2 s of a processor, or more than 1 GB of memory.
Findings are printed with the fewest steps that make them, and end the program with code 1. Everything follows from --seed and the
number of the input. Ctrl-C ends it with the results so far.
"""

import faulthandler
import json
import multiprocessing
import multiprocessing.sharedctypes
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from fuzz_targets import TARGETS, Steps, Target

from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser

SECONDS, MEMORY = 2.0, 1 << 30  # of a processor, and bytes: more is a finding
STUCK = 60.0  # seconds; a process that waits longer is ended
NOTED = 500  # inputs between two notes of how far a process is
LONGEST = 600  # characters of a sentence


@dataclass(frozen=True)
class Finding:
    target: str
    number: int
    what: str  # the exception and where it was raised; findings with the same are one
    steps: str  # the fewest that make it


class TooLongError(BaseException):
    """No Exception, so that no reader takes it for a flaw of its file."""


def target_of(number: int, seed: int) -> tuple[Target, Steps]:
    rng = random.Random(f"{seed}:{number}")
    target = rng.choices(TARGETS, [t.share for t in TARGETS])[0]
    return target, target.draw(rng)


def judged(target: Target, folder: Path, steps: Steps) -> str | None:
    """The flaw in the answer to an input; None: none."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    faulthandler.dump_traceback_later(STUCK, exit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.run(folder, steps)
    except UserError as error:
        return _flaw_of_sentence(error)
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__} at {_place(error)}: {str(error)[:200]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    return None


def _flaw_of_sentence(error: BaseException) -> str | None:
    text, cause = str(error), error.__cause__ or error.__context__
    if isinstance(cause, MemoryError):
        return f"MemoryError at {_place(cause)}"
    if not text.isprintable() or len(text) > LONGEST:
        return f"{type(error).__name__} at {_place(error)} is no sentence: {text[:200]!r}"
    return None


def _place(error: BaseException) -> str:
    """The innermost line of the package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/nurec_lite/" in f.filename]
    return f"{frames[-1].filename.rpartition('/nurec_lite/')[2]}:{frames[-1].lineno}" if frames else "the program"


def minimised(target: Target, folder: Path, steps: Steps, what: str) -> Steps:
    """The steps without those that the finding does not need."""
    for i in reversed(range(len(steps))):
        fewer = steps[:i] + steps[i + 1 :]
        found = judged(target, folder, fewer) if fewer else None
        if found is not None and found.partition(":")[0] == what.partition(":")[0]:
            steps = fewer
    return steps


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLongError(f"more than {SECONDS:g} s")


def work(numbers: list[int], seed: int, current: "multiprocessing.sharedctypes.Synchronized[int]", log: Path) -> None:
    """Writes a line for each finding, and one now and then that says how far it is."""
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory() as name, log.open("a") as file:
        folder, counts, slowest = Path(name), Counter[str](), 0.0
        os.environ["FUZZ_FOLDER"] = name
        for target in TARGETS:  # inputs are made before memory is limited
            with suppress(UserError):
                target.run(folder, [])
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY, resource.RLIM_INFINITY))
        before = _status("VmHWM")
        for done, number in enumerate(numbers):
            if done % NOTED == 0:
                file.write(json.dumps(_figures(counts, slowest, before)) + "\n")
                file.flush()
            current.value = number
            target, steps = target_of(number, seed)
            begin = time.process_time()
            what = judged(target, folder, steps)
            slowest, counts[target.name] = max(slowest, time.process_time() - begin), counts[target.name] + 1
            if what is not None:
                least = repr(minimised(target, folder, steps, what))[:2000]
                file.write(json.dumps(asdict(Finding(target.name, number, what, least))) + "\n")
                file.flush()
        file.write(json.dumps(_figures(counts, slowest, before)) + "\n")


def _figures(counts: Counter[str], slowest: float, before: int) -> dict[str, Any]:
    return {"counts": counts, "slowest": slowest, "memory": _status("VmHWM") - before, "process": os.getpid()}


def _status(key: str) -> int:  # bytes
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Job:
    """A process with its share of the inputs; one that ends itself begins anew after the input that did it."""

    def __init__(self, numbers: list[int], seed: int, log: Path) -> None:
        self.numbers, self.seed, self.log = numbers, seed, log
        self.crashes: list[Finding] = []
        self.start()

    def start(self) -> None:
        fork = multiprocessing.get_context("fork")
        self.current = fork.Value("q", -1)
        self.process = fork.Process(target=work, args=(self.numbers, self.seed, self.current, self.log))
        self.process.start()

    def ended(self) -> bool:
        """After the process ended: whether all is done."""
        if self.process.exitcode == 0:
            return True
        number = int(self.current.value)
        assert number >= 0, "the program itself is broken"
        target, steps = target_of(number, self.seed)
        what = f"the process ended with {self.process.exitcode}"
        self.crashes.append(Finding(target.name, number, what, repr(steps)[:2000]))
        self.numbers = self.numbers[self.numbers.index(number) + 1 :]
        self.start()
        return False


def run(inputs: int, seed: int, jobs: int) -> tuple[list[Finding], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        logs = [Path(name) / f"{job}.jsonl" for job in range(jobs)]
        started = [Job(list(range(job, inputs, jobs)), seed, log) for job, log in enumerate(logs)]
        left = list(started)
        try:
            while left:
                ready = wait([job.process.sentinel for job in left])
                for job in [job for job in left if job.process.sentinel in ready]:
                    job.process.join()
                    if job.ended():
                        left.remove(job)
        except KeyboardInterrupt:  # results so far count
            for job in left:
                job.process.terminate()
                job.process.join()
        crashes = [crash for job in started for crash in job.crashes]
        lines = [json.loads(line) for log in logs if log.exists() for line in log.read_text().splitlines()]
    findings = crashes + [Finding(**line) for line in lines if "what" in line]
    ends = list({line["process"]: line for line in lines if "counts" in line}.values())  # the last of each
    counts = sum((Counter(end["counts"]) for end in ends), Counter[str]())
    figures: dict[str, Any] = {"inputs": sum(counts.values()), "seed": seed, "counts": dict(counts)}
    figures |= {
        "slowest": max((e["slowest"] for e in ends), default=0),
        "memory": max((e["memory"] for e in ends), default=0),
    }
    return findings, figures


def replay(number: int, seed: int) -> None:
    target, steps = target_of(number, seed)
    with tempfile.TemporaryDirectory() as name:
        os.environ["FUZZ_FOLDER"] = name
        print(f"{target.name}: {steps}")
        target.run(Path(name), steps)


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the alterations (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once (%(default)s)"
    )
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="one of them again, with its trace")
    args = parser.parse_args()
    if args.replay is not None:
        replay(args.replay, args.seed)
        return 0
    begin = time.monotonic()
    findings, figures = run(args.inputs, args.seed, args.jobs)
    kinds = {finding.what.partition(":")[0]: finding for finding in reversed(findings)}
    for kind, finding in kinds.items():
        count = sum(f.what.partition(":")[0] == kind for f in findings)
        print(f"{finding.target} {finding.number} ({count} times): {finding.what}\n    {finding.steps}")
    counts = ", ".join(f"{name} {count}" for name, count in figures["counts"].items())
    print(f"{figures['inputs']} inputs (seed {args.seed}): {counts}; {time.monotonic() - begin:.0f} s")
    print(
        f"slowest {figures['slowest']:.2f} s of a processor, memory grew by {figures['memory'] / 1e6:.0f} MB; {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
