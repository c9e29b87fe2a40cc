# SPDX-License-Identifier: Apache-2.0
"""The process that estimates poses. A command starts it before it reads a capture."""

from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import begin, end

POSER = Kind("the process that estimates poses", replaced=0, patience=600, parents=True)


def begin_poses() -> None:
    """Starts the process. It imports its modules while it waits: all others would wait for that."""
    begin(POSER, _load)


def end_poses() -> None:
    """Ends it, if the capture's own poses were used without a look."""
    end(POSER)


def _load() -> None:
    import scipy.sparse.linalg  # noqa: F401
    import small_gicp  # noqa: F401

    import nurec_lite.capture.odometry.drive  # noqa: F401
