# SPDX-License-Identifier: Apache-2.0
"""The process that benchmarks/render/diagnose_backward.py has ncu measure: the backward pass of blending, once for every view.

    python -m benchmarks.render.diagnose_child FILE [--opt A,B] [arguments of benchmarks/render/workload.py]

Every view is rendered forward and backward to warm up. Then its backward pass runs once more between cudaProfilerStart and
cudaProfilerStop, in the range step/backward/render/SENSOR_WORKLOAD. Writes to FILE environment, instances, pair counts; or,
as `error`, the sentence with the remedy, since a profiler around this process hides how it ended.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.render.contenders import BACK, Fill, Own, stages_with
from benchmarks.render.workload import SENSORS, Workload, add_arguments, make_workloads
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.base.ranges import span, switch

WARM_UP = 2  # backward passes of a view before the one that is measured


@dataclass(frozen=True)
class Instance:
    name: str  # the last part of its range
    workload: Workload
    sensor: str
    own: Own

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name, "sensor": self.sensor, "workload": self.workload.name, **self.workload.described,
            "gaussians": len(self.own.gaussians), "counts": self.own.counts().to_dict(),
        }  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, Any]:
    device = choose_device(args.device)
    stages = stages_with(args.opt, device)
    try:
        instances = [
            Instance(f"{sensor}_{workload.name}", workload, sensor, Own(stages, workload, sensor))
            for workload in make_workloads(args, device)
            for sensor in args.sensors
        ]
        instances.sort(key=lambda instance: -SENSORS.index(instance.sensor))  # lidars first
        for instance in instances:
            backward(instance, device)
        return {"environment": environment(device), "instances": [instance.described() for instance in instances]}
    finally:
        stages.close()


def backward(instance: Instance, device: torch.device) -> None:
    """Autograd stays in this thread, so that the range holds its launches."""
    own, fill = instance.own, Fill(device, mib=1)
    for _ in range(WARM_UP):
        own.sample(fill)
    with switch(nvtx=True), torch.autograd.set_multithreading_enabled(False):
        outputs = own.render(own.pairs())
        with recorded(device), span(instance.name, within=BACK):
            own.gradients(outputs)


@contextmanager
def recorded(device: torch.device) -> Iterator[None]:
    """Block that the tool around this process records; nothing on a CPU."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)
    torch.cuda.cudart().cudaProfilerStart()
    yield
    torch.cuda.synchronize(device)
    torch.cuda.cudart().cudaProfilerStop()


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("file", type=Path)
    add_arguments(p)
    p.add_argument("--opt", default="", metavar="A,B", help="options (none)")
    return p


def main(arguments: list[str]) -> int:
    args = parser().parse_args(arguments)
    try:
        result = run(args)
    except UserError as error:
        result = {"error": str(error)}
    write_text(args.file, json.dumps(result, indent=1) + "\n")
    return 2 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
