# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.inspect: compares a drive with its sensors and draws pictures for a person, before training."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import shlex
from pathlib import Path

import torch

from nurec_lite.base.files import write_text
from nurec_lite.base.folders import take
from nurec_lite.base.lock import locked
from nurec_lite.capture.checks.listed import counted, listed, worst_first
from nurec_lite.capture.checks.run import all_verdicts
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.sharp import sharpness_lines
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import describe
from nurec_lite.capture.rosbag.propose import FILE as MAPPING
from nurec_lite.capture.types import CaptureError
from nurec_lite.cli.command import command, composed
from nurec_lite.config import InspectConfig
from nurec_lite.readers import proposal_of, read_capture
from nurec_lite.report.inspection.content import Inspection
from nurec_lite.report.inspection.page import PAGE, VERDICTS, write_inspection
from nurec_lite.training.folder import refuse_run

IMAGES, SWEEPS = 200, 400  # of a sensor that are compared at most
HELP = f"""
Compares a drive's poses, times, mountings and boxes with its sensors. It prints one verdict a line, the worst first, and
draws pictures: the lidar and the boxes on the images, all sweeps from above, the contents of each box, speeds and rates over time.

  python -m nurec_lite.inspect                                      the bundled street
  python -m nurec_lite.inspect data=kitti_raw data.root=FOLDER      a KITTI drive
  python -m nurec_lite.inspect data=pack data.root=FILE out=look    a pack; results go to another folder
  python -m nurec_lite.inspect data=rosbag data.root=BAG            a ROS recording; writes the mapping of its topics, too

{IMAGES} images of a camera and {SWEEPS} sweeps of a lidar are compared at most, evenly over the drive. The folder `out` then holds
{PAGE}, one page that needs no other file, and {VERDICTS}, the verdicts for scripts. Of a ROS recording without data.mapping it also
holds {MAPPING}, which assigns topics to sensors: correct it and give it as data.mapping=FILE.

A verdict is one of: wrong (training refuses the drive), likely wrong (training goes on and reports it), failed (the check itself failed),
unknown (the drive holds too little to tell), right. The exit status is 2 if a verdict is `wrong`, after both files are written, or if the
drive cannot be read; else 0. With data.trust=true `wrong` does not count.
"""


@torch.no_grad()
def work(arguments: list[str]) -> None:
    config: InspectConfig = composed("inspect", arguments)
    refuse_run(config.out)
    out = take(config.out, "inspect", (PAGE, VERDICTS, MAPPING)).folder
    _propose(config, out)
    capture = read_capture(config.data)
    sample = Sample(capture, images=IMAGES, sweeps=SWEEPS)
    print("\n".join([describe(capture), *sharpness_lines(capture)]))
    with locked(out):
        found = all_verdicts(sample)
        print(listed(found))
        line = shlex.join(["python", "-m", "nurec_lite.inspect", *arguments])
        write_inspection(out, Inspection(capture, found, sample, line))
    print(f"{counted(found)}; results in {out}: {PAGE}, {VERDICTS}")
    if not config.data.trust:
        _refuse_wrong(found, out)


def _propose(config: InspectConfig, out: Path) -> None:
    """Prints and writes the mapping that a recording suggests, where none is given. CaptureError if the user has to complete it."""
    proposal = proposal_of(config.data)
    if proposal is None:
        return
    with locked(out):
        write_text(out / MAPPING, proposal.text())
    print(proposal.text())
    if proposal.choices:
        raise CaptureError(
            f"{proposal.source} {proposal.choices[0]}; complete {out / MAPPING}, and give data.mapping={out / MAPPING}"
        )


def _refuse_wrong(found: list[Verdict], out: Path) -> None:
    wrong = [verdict for verdict in worst_first(found) if verdict.level is Level.CERTAIN]
    if wrong:
        raise CaptureError(
            f"{wrong[0].text.removesuffix('.')} ({counted(found)}; pictures in {out / PAGE}; data.trust=true goes on)"
        )


if __name__ == "__main__":
    command("inspect", HELP, work)
