# SPDX-License-Identifier: Apache-2.0
"""One start, for bench_start.py: FILE KEY=VALUE... as in nurec_lite.train; its times go to FILE, as JSON."""

import sys
import time

marks, cpu = {"interpreter": time.perf_counter()}, {"interpreter": time.process_time()}

import nurec_lite.base.threads  # noqa: E402, I001  before torch
import torch  # noqa: E402

marks["torch"], cpu["torch"], modules = time.perf_counter(), time.process_time(), {"torch": len(sys.modules)}

import nurec_lite.train  # noqa: E402, F401

marks["imports"], cpu["imports"], modules["imports"] = time.perf_counter(), time.process_time(), len(sys.modules)

import json  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from nurec_lite.backends import base_stages, build_stages  # noqa: E402
from nurec_lite.base.environment import choose_device  # noqa: E402
from nurec_lite.base.progress import seconds_since_start  # noqa: E402
from nurec_lite.base.ranges import span, switch  # noqa: E402
from nurec_lite.cli.command import composed, mended  # noqa: E402
from nurec_lite.readers import open_capture  # noqa: E402
from nurec_lite.training.loop import one_step  # noqa: E402
from nurec_lite.training.shots import ShotPlan  # noqa: E402
from nurec_lite.training.start import make_state  # noqa: E402

HEAVY = ("scipy", "sympy", "torch._dynamo", "torch._inductor", "triton", "matplotlib", "tensorboard")


class Clock:
    """Seconds of every range, between two waits for the device."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def begin(self, path: str) -> float:
        return now()

    def end(self, path: str, begun: float) -> None:
        self.seconds[path] = self.seconds.get(path, 0.0) + now() - begun


def now() -> float:
    """The time when the device has done its queued work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def mark(name: str) -> None:
    """The end of a phase, with all that the device has to do for it."""
    marks[name], cpu[name] = now(), time.process_time()


def started(arguments: list[str]) -> dict[str, Any]:
    """Starts as nurec_lite.train does, up to the end of its second step."""
    config, clock = composed("train", arguments), Clock()
    mark("configuration")
    device, capture = choose_device(config.device), open_capture(config.data)
    if device.type == "cuda":
        torch.zeros(1, device=device)
    mark("capture and device")
    stores = known_stores() if config.opt.keys() & {"resident", "all"} and device.type == "cuda" else []
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    mark("kernels")
    try:
        with switch(timing=clock), span("scene"):
            state = make_state(config, capture, device, frames=stages.feed.frames)
        mark("scene")
        for name in ("first step", "second step"):
            one_step(stages, state, time.monotonic())
            mark(name)
        if wait_for_resident(stores, state.plan):
            mark("all resident")
    finally:
        stages.close()
    return {"capture": capture.name, "gaussians": len(state.scene.gaussians), "scene": clock.seconds}


def known_stores() -> list[Any]:
    """Those of the option `resident`, as they are made from now on. Asking the garbage collector for them would hand out tuples that other
    threads are still filling."""
    module, made = import_module("nurec_lite.opt.all.resident"), []
    begin = module.Store.__init__

    def noted(store: Any, *args: Any, **kwargs: Any) -> None:
        begin(store, *args, **kwargs)
        made.append(store)

    module.Store.__init__ = noted
    return made


def wait_for_resident(stores: list[Any], plan: ShotPlan) -> bool:
    """Until the option `resident` has everything on the device, if it is on."""
    module = import_module("nurec_lite.opt.all.resident")
    for store in stores:
        for kind, index in module.frames_from(plan, 0):
            getattr(store, kind)(index)
    return bool(stores)


def main(out: str, *arguments: str) -> None:
    with mended("train"):
        found = started(list(arguments))
    modules["second step"] = len(sys.modules)
    before = seconds_since_start() - (time.perf_counter() - marks["interpreter"])
    zero = marks["interpreter"] - before
    found |= {
        "since_start": {name: time_ - zero for name, time_ in marks.items()},
        "cpu_since_start": cpu,
        "modules": modules,
    }
    found["heavy_modules"] = [name for name in HEAVY if name in sys.modules]
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
