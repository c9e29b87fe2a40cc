# SPDX-License-Identifier: Apache-2.0
"""scripts/faults.py in short: a trial of each of three faults. docs/reliability.md has the figures of the long form."""

import os
import subprocess
import sys

import pytest
from tiny_capture import ROOT

FAULTS = ("kill", "worker", "ask")  # tests/cli has the others, in one process


@pytest.mark.slow
def test_faults_in_short() -> None:
    command = [sys.executable, "scripts/faults.py", "--trials", "1", "--faults", *FAULTS]
    command += ["--", "train.steps=15", "train.evaluate=false"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name in FAULTS:
        assert f"{name}: 1 of 1 trials went on well" in ended.stdout
