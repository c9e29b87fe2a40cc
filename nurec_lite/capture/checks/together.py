# SPDX-License-Identifier: Apache-2.0
"""Jobs of the checks at the same time: in threads, or in processes, which need no lock of Python's for their small operators."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nurec_lite.base.errors import UserError
from nurec_lite.base.pool import in_threads
from nurec_lite.base.processes import Kind, in_processes
from nurec_lite.capture.checks.agreed import Agreement
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Verdict

Found = dict[str, list[Verdict] | UserError]  # by the names of checks
Job = Callable[[], Found]
WORKERS = Kind("a process that checks the capture")


def done_together(sample: Sample, jobs: Sequence[Job]) -> Iterator[Found]:
    """Findings of all jobs, in their order. The sample learns all that they make."""
    if sample.processes == 1 or len(jobs) < 2:
        yield from in_threads(_call, jobs)
        return
    results = in_processes([partial(_made, sample, job) for job in jobs], sample.processes, WORKERS)
    for job, result in zip(jobs, results, strict=True):
        try:
            made = result()
        except Exception:  # it made something that cannot be sent
            yield job()
        else:
            yield made.given_to(sample)


def _call(job: Job) -> Found:
    return job()


@dataclass(frozen=True)
class _Made:
    """Everything that a job adds to a sample."""

    found: Found
    kept: dict[Hashable, object]
    agreements: dict[str, Agreement]

    def given_to(self, sample: Sample) -> Found:
        for name, value in self.kept.items():
            sample.keep(name, value)
        sample.agreements.update(self.agreements)
        for verdicts in self.found.values():
            sample.found.extend([] if isinstance(verdicts, UserError) else verdicts)
        return self.found


def _made(sample: Sample, job: Job) -> _Made:
    """Runs in another process, whose sample is a copy."""
    before = sample.made().keys()
    found = job()
    kept = {name: value for name, value in sample.made().items() if name not in before}
    return _Made({name: _sent(result) for name, result in found.items()}, kept, sample.agreements)


def _sent(result: list[Verdict] | UserError) -> list[Verdict] | UserError:
    """Verdicts without corrected captures, which only `inspect` draws."""
    return result if isinstance(result, UserError) else [replace(verdict, corrected=None) for verdict in result]
