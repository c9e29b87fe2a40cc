# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a capture. A check that raises an error yields a verdict that says so, and never costs the run."""

import logging
from collections.abc import Callable, Iterable

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

log = logging.getLogger(__name__)
Check = Callable[[Sample], Iterable[Verdict]]
CHECKS: dict[str, Check] = {}  # by what is compared with what, in the order in which a user reads the verdicts


def verdicts(sample: Sample) -> list[Verdict]:
    """Verdicts of all checks, in the order of CHECKS."""
    return [verdict for name, check in CHECKS.items() for verdict in _guarded(name, check, sample)]


def _guarded(name: str, check: Check, sample: Sample) -> list[Verdict]:
    try:
        return list(check(sample))
    except UserError:  # a frame cannot be read: the sentence is the reader's
        raise
    except Exception as error:
        log.debug("the check of %s failed", name, exc_info=True)
        sentence = f"The check of {name} failed: {type(error).__name__}: {error}."
        return [Verdict(name, sample.capture.name, Level.FAILED, sentence)]
