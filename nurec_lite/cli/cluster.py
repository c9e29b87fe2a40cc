# SPDX-License-Identifier: Apache-2.0
"""Jobs of a cluster that end without a result: cancelled, over their time, or out of memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from nurec_lite.base.errors import UserError
from nurec_lite.cli.fleet import FAILED, Drive, folder_of, places

LAUNCHERS = ("hydra/launcher=slurm", "hydra/launcher=submitit")


@contextmanager
def lost_jobs_fail(arguments: Sequence[str]) -> Iterator[None]:
    """Makes a job without a result a run that failed; submitit's launcher would end there, and read no further job."""
    if not any(word.startswith(LAUNCHERS) for word in arguments) or find_spec("submitit") is None:
        yield
        return
    from submitit.core.core import Job

    read = Job.results
    Job.results = lambda job: results(job, partial(read, job))  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Job.results = read  # type: ignore[method-assign]


def results(
    job: Any,  # of submitit
    read: Callable[[], list[Any]],  # waits for its result
) -> list[Any]:
    from submitit.core.utils import UncompletedJobError

    try:
        return read()
    except UncompletedJobError:
        words, _, number, *_ = job.submission().args
        said = f"job {job.job_id} ended without a result ({job.state}); {job.paths.stderr} has its output"
        if places:
            Drive(number, list(words), str(folder_of(places[-1], number)), FAILED, said).write(places[-1])
        lost = JobReturn(overrides=list(words), status=JobStatus.FAILED)
        lost.return_value = UserError(f"{said}; the same command again goes on" if places else said)
        return [lost]
