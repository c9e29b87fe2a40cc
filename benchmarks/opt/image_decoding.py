# SPDX-License-Identifier: Apache-2.0
"""Time until the option `resident` has all training images of a capture on the device: decoded by threads of the host,
and on a GPU by every installed library, opened anew each time, as a run opens it.

The ways take turns, every other round in the opposite order. Their images are compared with the host's.
"""

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.feeding import idle, spread
from benchmarks.common.reporting import Report, conditions_on, reported
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser
from nurec_lite.capture.gpu_jpeg import GpuJpeg, libraries
from nurec_lite.config import Config
from nurec_lite.opt.all.resident import Store, by_host
from nurec_lite.readers import open_capture
from nurec_lite.training.resident_frames import frames_from
from nurec_lite.training.shots import ShotPlan, as_it_is

HOST = "host"
Images = list[Tensor]  # [H, W, 3] uint8 each, on the device


def decoded_by(plan: ShotPlan, device: torch.device, way: str) -> tuple[dict[str, float], Images]:
    """Seconds from the beginning, and images in the order that steps need."""
    idle(device)
    begin = time.perf_counter()
    decode = by_host if way == HOST else GpuJpeg(device, way)
    store, images, seconds = Store(plan, device, as_it_is, decode, 0, None), [], []
    try:
        for _, index in frames_from(plan, 0):
            images.append(store.image(index).image)
            seconds.append(time.perf_counter() - begin)
    finally:
        store.close()
    rate = len(images) / seconds[-1]
    own = decode.decoded if isinstance(decode, GpuJpeg) else 0
    return {"first_s": seconds[0], "all_s": seconds[-1], "images_a_second": rate, "by_the_library": own}, images


def apart(found: Images, host: Images) -> dict[str, float | None]:
    """Differences of images in levels of 255, over all values of all images."""
    levels = [(a.int() - b.int()).abs() for a, b in zip(found, host, strict=True)]
    values = sum(one.numel() for one in levels)
    squared = sum(float(one.double().square().sum()) for one in levels) / values
    return {
        "greatest": max(int(one.max()) for one in levels),
        "mean": sum(int(one.sum()) for one in levels) / values,
        "psnr_db": 10 * math.log10(255**2 / squared) if squared else None,  # None: they are equal
    }


def bench(config: Config, args: argparse.Namespace) -> Report:
    device, capture = choose_device(config.device), open_capture(config.data)
    plan = ShotPlan(capture, config.seed, lidar_rays=0)
    ways = [HOST, *(libraries() if device.type == "cuda" else [])]
    times: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    images: dict[str, Images] = {}
    for turn in range(args.warmup + args.rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            taken, images[way] = decoded_by(plan, device, way)
            times[way] += [taken] if turn >= args.warmup else []
    return conditions_on("opt/bench_resident", config, device, args) | {
        "capture": capture.name, "images": len(images[HOST]), "threads": torch.get_num_threads(),
        "size": [capture.cameras[0].width, capture.cameras[0].height], "rounds": args.rounds, "warmup": args.warmup,
        "ways": {way: figures(times[way]) | apart(images[way], images[HOST]) for way in ways},
    }  # fmt: skip


def figures(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    spreads = {name: spread([taken[name] for taken in rounds]) for name in ("first_s", "all_s", "images_a_second")}
    return spreads | {"by_the_library": int(rounds[-1]["by_the_library"])}


def table(report: Report) -> str:
    width, height = report["size"]
    lines = [
        f"{report['capture']}, {report['images']} images of {width}x{height}, {report['environment']['device']}, "
        f"{report['threads']} threads of the host",
        f"{'decoded by':14} {'images a second':>24} {'first, s':>10} {'all, s':>10} {'its own':>8} {'levels apart, mean':>19} "
        f"{'greatest':>9} {'PSNR, dB':>9}",
    ]
    for way, found in report["ways"].items():
        rate, psnr = found["images_a_second"], found["psnr_db"]
        lines.append(
            f"{way:14} {rate['median']:10.1f} [{rate['quarter']:.0f}, {rate['three_quarters']:.0f}]".ljust(39)
            + f" {found['first_s']['median']:10.3f} {found['all_s']['median']:10.3f} {found['by_the_library']:8d} "
            + f"{found['mean']:19.4f} {found['greatest']:9d} {'equal' if psnr is None else f'{psnr:.1f}':>9}"
        )
    return "\n".join([*lines, "medians [quartiles] of rounds; seconds with the opening of the library"])


def main(doc: str | None, arguments: list[str]) -> None:
    p = Parser(doc)
    p.add_argument("--decoding", action="store_true", help="this part")
    p.add_argument("--rounds", type=int, default=10, help="of all ways (%(default)s)")
    p.add_argument("--warmup", type=int, default=1, help="rounds before them (%(default)s)")
    print(table(reported(p, arguments, bench)))
