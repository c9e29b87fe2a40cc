# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.view: shows a trained scene in a browser, also while it is trained."""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import logging
import time

from nurec_lite.base.texts import host_and_port
from nurec_lite.cli.command import command
from nurec_lite.viewer.opened import Run
from nurec_lite.viewer.server import viser
from nurec_lite.viewer.viewer import Viewer

HELP = """
Shows a scene in a browser: fly through it, play the drive, compare it with photos and sweeps, move actors, draw camera paths.

  python -m nurec_lite.view runs/mine                              then open http://127.0.0.1:8080
  python -m nurec_lite.view runs/mine data.root=elsewhere/drive    the files of the drive are elsewhere
  python -m nurec_lite.view runs/mine host=0.0.0.0 port=9000       other machines may look, too: there is no password

The run may still be trained: the newest checkpoint is shown (train.checkpoint_seconds=5 writes one every 5 s). Pictures are rendered
here, along the rays of a pinhole or of a sensor's own lens. A camera path is saved in RUN/paths; render path=FILE makes it a film.
docs/viewer.md says more. Ctrl-C ends it.
"""
NAP_S = 0.5  # of the first thread: Python heeds a signal between two naps, while one long wait can miss it for ever
log = logging.getLogger("nurec_lite")


def work(arguments: list[str]) -> None:
    viser()
    run = Run(arguments)
    if run.missing is not None:
        log.info(run.missing)
    config = run.shown.config
    viewer = Viewer(run, config.host, config.port, config.height)
    try:
        print(f"{run.file} at http://{host_and_port(config.host, viewer.port)} (Ctrl-C ends)", flush=True)
        while True:
            time.sleep(NAP_S)
    except KeyboardInterrupt:
        print("ended")
    finally:
        viewer.close()
        run.shown.stages.close()


if __name__ == "__main__":
    command("view", HELP, work)
