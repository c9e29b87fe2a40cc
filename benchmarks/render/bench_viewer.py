# SPDX-License-Identifier: Apache-2.0
"""Speed of the viewer without browsers: pictures a second, and the time from a request to its picture.

    python benchmarks/render/bench_viewer.py --checkpoint runs/mine --out benchmarks/results/NAME.json
    python benchmarks/render/bench_viewer.py --checkpoint runs/mine --size 1280x720 --browsers 1 10

A browser of this benchmark asks, waits and counts in the process of the viewer. Its requests go through the queue, the renderer and the
encoding threads of the viewer; the network and the browser's own drawing are left out. The camera flies along the drive.

flight     one browser asks again as soon as its request is taken up: pictures a second, always of the full size
covered    the same with depths, which a browser needs when it draws points or boxes over the picture
requests   one browser asks --rate times a second, at even steps: milliseconds from request to picture, of the size that the viewer
           chooses
browsers   so many browsers do the same at the same time: the same for all of them, and pictures a second of the slowest
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import math
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.step.bench_step import positive
from nurec_lite.base.environment import environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.viewer.opened import Run
from nurec_lite.viewer.pace import Pace
from nurec_lite.viewer.painter import Painted, Painter
from nurec_lite.viewer.request import Request
from nurec_lite.viewer.sender import Encoded, Sender
from nurec_lite.viewer.session import PICTURE, Session
from nurec_lite.viewer.worker import Worker

SCRIPT = "benchmarks/render/bench_viewer.py"
FOV = 0.9  # radians


class Full(Pace):
    """Always the full size."""

    def heights(self, full: int, aspect: float, moving: bool = False) -> list[int]:
        return [full]


class Noting(Painter):
    """The painter of all browsers; says when a request of one is taken up."""

    def __init__(self, painter: Painter, taken: Callable[[], None]) -> None:
        self.run, self._painter, self._taken = painter.run, painter, taken

    def paint(self, request: Request, height: int) -> Painted:
        self._taken()
        return self._painter.paint(request, height)


class Browser:
    """Asks for views along the drive and notes when their pictures come."""

    def __init__(self, name: int, painter: Painter, worker: Worker, pace: Pace, size: tuple[int, int]) -> None:
        self.session = Session(name, Noting(painter, self.taken), worker, pace, self, size[1])
        self._sender = Sender(self.sent, partial(worker.hold, (name, PICTURE)))
        self.aspect, self.rows = size[0] / size[1], size[1]
        self.begun, self.got = threading.Event(), threading.Event()
        self.seconds, self.heights = list[float](), list[int]()
        self._asked = 0.0  # when the request that waits was made
        self._taken = deque[float]()  # the same of those in work
        self._lock = threading.Lock()
        first, last = self.session.path.span
        times = torch.linspace(first, last, 200, dtype=torch.float64).roll(7 * name)
        self._poses = self.session.path.at(times) @ painter.run.capture.cameras[0].T_rig_cam.double()

    def ask(self, number: int) -> None:
        with self._lock:
            self._asked = self._asked or time.perf_counter()
        self.session.moved(self._poses[number % len(self._poses)], FOV, self.aspect, self.rows)

    def taken(self) -> None:
        with self._lock:
            self._taken.append(self._asked)
            self._asked = 0.0
        self.begun.set()

    def show(self, painted: Painted, quality: int) -> None:
        self.heights.append(painted.image.shape[0])
        self._sender.put(painted, quality)

    def sent(self, encoded: Encoded) -> None:
        with self._lock:
            asked = self._taken.popleft()
            if asked:  # else a finer picture of the same request
                self.seconds.append(time.perf_counter() - asked)
        self.got.set()

    def close(self) -> None:
        self._sender.close()

    def look(self, T_world_cam: Tensor, fov: float) -> None:
        raise AssertionError("nobody jumps")

    def at(self, time: float) -> None:
        pass


# ---- measurements


def flight(painter: Painter, size: tuple[int, int], seconds: float, covered: bool = False) -> dict[str, Any]:
    worker = Worker(lambda: None, 1e9)
    browser = Browser(0, painter, worker, Full(), size)
    browser.session.request = replace(browser.session.request, covered=covered)
    worker.start()
    number = _flown(browser, 0, 0.3 * seconds)  # warm-up
    browser.seconds.clear()
    begin = time.perf_counter()
    _flown(browser, number, seconds)
    took, count = time.perf_counter() - begin, len(browser.seconds)
    worker.stop()
    browser.close()
    return {"pictures": count, "pictures_a_second": count / took, **_spread(browser.seconds)}


def _flown(browser: Browser, number: int, seconds: float) -> int:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        browser.begun.clear()
        browser.ask(number)
        browser.begun.wait()
        number += 1
    return number


def requests(painter: Painter, size: tuple[int, int], seconds: float, rate: float, count: int) -> dict[str, Any]:
    """Measures `count` browsers that ask at a steady rate. A request that replaces a waiting one counts from the first of them."""
    worker, pace = Worker(lambda: None, 1e9), Pace()
    browsers = [Browser(name, painter, worker, pace, size) for name in range(count)]
    worker.start()
    for part in (0.3 * seconds, seconds):  # the first is warm-up
        for browser in browsers:
            browser.seconds.clear()
            browser.heights.clear()
        threads = [threading.Thread(target=_steady, args=(browser, part, rate)) for browser in browsers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    worker.stop()
    for browser in browsers:
        browser.close()
    slowest = min(len(browser.seconds) for browser in browsers) / seconds
    heights = [height for browser in browsers for height in browser.heights]
    found = {
        "browsers": count,
        "rate": rate,
        "pictures_a_second_of_the_slowest": slowest,
        "rows_median": float(np.median(heights)),
    }
    return found | _spread([s for browser in browsers for s in browser.seconds])


def _steady(browser: Browser, seconds: float, rate: float) -> None:
    begin = time.perf_counter()
    for number in range(math.ceil(seconds * rate)):
        time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        browser.ask(number)
    browser.got.wait(10)


def _spread(seconds: list[float]) -> dict[str, float]:
    p50, p95 = np.quantile(1e3 * np.array(seconds), (0.5, 0.95)) if seconds else (math.nan, math.nan)
    return {"ms_p50": float(p50), "ms_p95": float(p95), "pictures_timed": len(seconds)}


# ---- the command


def bench(args: argparse.Namespace) -> dict[str, Any]:
    run = Run([str(args.checkpoint), f"device={args.device}"])
    painter, size = Painter(run.shown), _size(args.size)
    try:
        return {
            "command": shlex.join(["python", SCRIPT, *args.arguments]), "environment": environment(run.shown.device),
            "gaussians": len(run.shown.scene.gaussians), "size": list(size), "seconds": args.seconds,
            "flight": flight(painter, size, args.seconds), "covered": flight(painter, size, args.seconds, covered=True),
            "requests": [requests(painter, size, args.seconds, args.rate, n) for n in args.browsers],
        }  # fmt: skip
    finally:
        run.shown.stages.close()


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 0 < int(width) <= 8192 and 0 < int(height) <= 8192):
        raise UserError(f"--size is '{text}', but takes WIDTHxHEIGHT, such as 1920x1080")
    return int(width), int(height)


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("--checkpoint", type=Path, required=True, help="folder of a run, or a checkpoint")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    p.add_argument("--size", default="1920x1080", metavar="WxH", help="of a browser's window (%(default)s)")
    p.add_argument("--browsers", nargs="+", type=positive, default=[1, 10], help="at the same time (%(default)s)")
    p.add_argument("--rate", type=float, default=20.0, help="requests a second of a browser (%(default)s)")
    p.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="of each measurement, after as much warm-up as 0.3 of it (%(default)s)",
    )
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.arguments = arguments
    with mended("view"):
        report = bench(args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
