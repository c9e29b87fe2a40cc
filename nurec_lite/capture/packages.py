# SPDX-License-Identifier: Apache-2.0
"""Packages that a format needs, and that an extra of the project brings."""

from importlib import import_module
from pathlib import Path

from nurec_lite.capture.types import CaptureError


def check_package(
    module: str,  # that is imported
    package: str,  # that pip installs
    path: Path,  # the capture that needs it
) -> None:
    try:
        import_module(module)
    except ImportError as error:
        raise CaptureError(
            f"{path} needs the package {package}, which is not installed; run pip install {package}"
        ) from error
