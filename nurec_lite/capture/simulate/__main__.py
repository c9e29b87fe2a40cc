# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.capture.simulate: casts a simulated drive and writes it as a pack."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nurec_lite.base.environment import choose_device
from nurec_lite.base.folders import check_file
from nurec_lite.base.program import Parser, ends_with_a_sentence
from nurec_lite.capture.pack import IMAGE_FORMATS, MemberBar, is_pack, write_pack
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig


def _parser() -> Parser:
    parser = Parser("Simulate a drive and write it as a pack.")
    parser.add_argument("--out", type=Path, required=True, help="pack to write")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: cuda where there is one (%(default)s)")
    parser.add_argument("--image-format", default="png", choices=IMAGE_FORMATS, help="(%(default)s)")
    parser.add_argument("--quality", type=int, default=95, help="of JPEG (%(default)s)")
    for f in fields(SimulationConfig):
        flag, default = "--" + f.name.replace("_", "-"), f.default
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(flag, type=float, nargs=len(default) or "*", default=default, help="(%(default)s)")
        else:
            parser.add_argument(flag, type=type(default), default=default, help="(%(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    with ends_with_a_sentence():
        _simulate(vars(_parser().parse_args(arguments)))


def _simulate(args: dict[str, Any]) -> None:
    check_file(args["out"], is_pack, ".pack")
    device = str(choose_device(args["device"]))
    values: dict[str, Any] = {f.name: args[f.name] for f in fields(SimulationConfig)}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    capture = simulate(SimulationConfig(**values), device)
    with MemberBar() as bar:
        write_pack(capture, args["out"], image_format=args["image_format"], quality=args["quality"], progress=bar)
    print(f"{args['out']}: {args['out'].stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
