# SPDX-License-Identifier: Apache-2.0
"""Work aside: its result or its error arrives, and it has ended when its caller goes on without it."""

from concurrent.futures import CancelledError
from threading import Event, active_count

import pytest

from nurec_lite.base.aside import Aside, go_on
from nurec_lite.base.errors import UserError
from nurec_lite.base.pool import in_threads


def test_the_result_arrives_while_the_block_did_something_else() -> None:
    begun, free = Event(), Event()

    def work() -> int:
        begun.set()
        assert free.wait(10)
        return 7

    with Aside(work) as aside:
        assert begun.wait(10)
        free.set()
        assert aside.result() == 7


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def work() -> None:
        raise UserError("the drive has no sweeps")

    with pytest.raises(UserError, match="the drive has no sweeps"), Aside(work) as aside:
        aside.result()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, UserError])
@pytest.mark.parametrize("pooled", [False, True])
def test_an_error_leaves_no_thread(kind: type[BaseException], pooled: bool) -> None:
    begun, ended, before = Event(), list[type[BaseException]](), active_count()

    def endless() -> None:
        try:
            while True:
                begun.set()
                go_on()
                for _ in in_threads(abs, range(3)) if pooled else ():
                    pass
        except BaseException as error:
            ended.append(type(error))
            raise

    with pytest.raises(kind), Aside(endless):
        assert begun.wait(10)
        raise kind
    assert ended == [CancelledError] and active_count() == before


def test_elsewhere_nothing_is_cancelled() -> None:
    go_on()
    assert list(in_threads(abs, [-1, 2])) == [1, 2]
