# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.pack: writes a capture into one file, or lists the contents of one."""

from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.folders import check_file
from nurec_lite.capture.checks.listed import listed
from nurec_lite.capture.checks.run import all_verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.write import is_ncore, ncore_path, write_ncore
from nurec_lite.capture.origin import in_users_world
from nurec_lite.capture.pack import MemberBar, describe, is_pack, read_pack, write_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.cli.command import command, composed
from nurec_lite.config import PackConfig
from nurec_lite.readers import read_capture

HELP = """
Writes a capture into one file that travels well: images as JPEG or PNG, sweeps quantised (points move by less than 3 mm at 80 m) with
times and rings, poses, tracks, calibration and split. Train on it with data=pack data.root=FILE.

  python -m nurec_lite.pack data=kitti_raw data.root=FOLDER out=drive.pack            a KITTI drive
  python -m nurec_lite.pack data=kitti_raw data.root=FOLDER data.downscale=4 data.frames=[0,20] out=small.pack
  python -m nurec_lite.pack data=kitti_raw data.root=FOLDER image_format=png          images lose nothing
  python -m nurec_lite.pack data=kitti_raw data.root=FOLDER format=ncore              NCore v4, a file NAME.ncore4.zarr.itar
  python -m nurec_lite.pack data=pack data.root=drive.pack show=true                  the contents of a pack; writes nothing

What data.* chooses (frames, cameras, downscale, poses, tracks) is what the pack holds. Every part of a pack has a checksum: one that
was cut short or altered is refused when it is read. At the end the drive is compared with what its sensors saw, and each verdict is a
line; python -m nurec_lite.inspect compares more frames and draws pictures.
"""


def work(arguments: list[str]) -> None:
    config: PackConfig = composed("pack", arguments)
    if not config.show:
        _check_out(config)
    capture = _with_split(read_capture(config.data), config.data.split)
    if config.show:
        print(describe(in_users_world(capture)))
    else:
        _write(config, in_users_world(capture))
    found = all_verdicts(Sample(capture))
    if found:
        print(listed(found))


def _with_split(capture: Capture, name: str) -> Capture:
    """The capture with its split; without one where too few frames allow it, as a pack holds out nothing."""
    try:
        return capture.with_split(name)
    except CaptureError:
        return capture


def _path(config: PackConfig) -> Path:
    return ncore_path(config.out) if config.format == "ncore" else Path(config.out)


def _check_out(config: PackConfig) -> None:
    """Refuses a wrong name before the drive is read, which takes minutes."""
    path, ncore = _path(config), config.format == "ncore"
    check_file(path, is_ncore if ncore else is_pack, "" if ncore else ".pack")
    root = Path(config.data.root or "")
    if root.is_file() and path.exists() and path.samefile(root):
        raise ConfigError(f"out={path} is the file that is read; name another file")


def _write(config: PackConfig, capture: Capture) -> None:
    path, ncore = _path(config), config.format == "ncore"
    write, read = (write_ncore, read_ncore) if ncore else (write_pack, read_pack)
    with MemberBar() as bar:
        write(capture, path, image_format=config.image_format, quality=config.quality, progress=bar)
    print(f"{describe(read(path))}\nresults in {path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    command("pack", HELP, work)
