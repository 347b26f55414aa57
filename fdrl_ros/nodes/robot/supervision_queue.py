# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The surgeon's word in a selector's node: one order after the other, each kept, then answered."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fdrl_ros.errors import StoreError, SupervisionError
from fdrl_ros.nodes.common.deferred_answer import Answered
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.selector.candidates.supervision import (
    load_supervision,
    save_supervision,
    Supervision,
)

Change = Callable[[Supervision], Supervision]
Write = Callable[[Callable[[], None], Callable[[Any], None]], None]


@dataclass(frozen=True)
class Order:
    """
    One thing that the surgeon says.

    :param change: makes of what holds what shall hold; raises SupervisionError if it cannot.
    :param words: the same for the log.
    :param urgent: whether it counts before it is on the disk, and whatever becomes of that.
    :param answered: told how it ended.
    """

    change: Change
    words: str
    urgent: bool
    answered: Answered


class Word:
    """
    Keeps what the surgeon said.

    An order is on the disk before it counts and is answered; where it cannot be written, it is
    refused and nothing has changed. One that is urgent only ever takes something away from the
    selector: it counts at once, and no order that was given before it undoes it.

    :param node: whose surgeon this is.
    :param path: of the file.
    :param write: has another thread call something, and then this one the other with the result
        or exception.
    :param obey: called whenever another word is in force.
    """

    def __init__(
        self, node: ManagedNode, path: Path, write: Write, obey: Callable[[], None]
    ) -> None:
        """
        Read what was said before.

        :raises StoreError: if it is damaged.
        """
        self._node, self._path, self._write, self._obey = node, path, write, obey
        self.supervision = self._written = load_supervision(path)
        self._orders: deque[Order] = deque()

    def say(self, order: Order) -> None:
        """
        Take an order; it is answered when its turn has come, perhaps at once.

        :raises SupervisionError: if it cannot be obeyed.
        """
        wanted = order.change(self.supervision)
        if order.urgent:
            self._enforce(wanted)
        self._orders.append(order)
        if len(self._orders) == 1:
            self._next()

    def close(self, ended: bool) -> None:
        """
        Write what is in force if that could not be done before, and answer whoever still waits.

        :param ended: whether the other thread has ended; one that may still write an older word
            could do so after this one, so nothing is written then.
        :raises StoreError: if it cannot be written.
        """
        failure: StoreError | None = None
        if not ended and (self._orders or self._written != self.supervision):
            failure = StoreError('the disk does not answer')
            self._node.get_logger().error(
                f'{failure}: a restart may undo that {self.supervision.in_words()}'
            )
        elif self._written != self.supervision:
            try:
                self._save(self.supervision)
            except StoreError as error:
                failure = error
        self._dismiss(failure)
        if ended and failure is not None:
            raise failure

    def _dismiss(self, failure: StoreError | None) -> None:
        """
        Answer all who wait: what is urgent is in force, the rest is refused.

        :param failure: why the disk may say something else; None where it says what is in force.
        """
        words = self.supervision.in_words()
        while self._orders:
            if not self._orders[0].urgent:
                doubt = f'; but a restart may obey it: {failure}' if failure else ''
                self._end(False, f'the selector was deactivated: nothing has changed{doubt}')
            elif failure is None:
                self._end(True, words)
            else:
                self._end(False, f'{words}; but a restart may undo it: {failure}')

    def _enforce(self, wanted: Supervision) -> None:
        if wanted != self.supervision:
            self.supervision = wanted
            self._obey()

    def _wanted(self) -> Supervision:
        """
        Return what holds with the order whose turn it is, and all urgent ones that came later.

        :raises SupervisionError: if it cannot be obeyed.
        """
        order, *later = self._orders
        wanted = order.change(self.supervision)
        for each in later:
            if each.urgent:
                wanted = each.change(wanted)
        return wanted

    def _next(self) -> None:
        """Write the order whose turn it is, unless it says what is written."""
        while self._orders:
            try:
                wanted = self._wanted()
            except SupervisionError as error:  # because of another that was obeyed meanwhile
                self._end(False, str(error))
                continue
            if wanted != self._written:
                self._write(partial(self._save, wanted), self._kept)
                return
            self._obeyed()

    def _save(self, wanted: Supervision) -> None:
        save_supervision(self._path, wanted)
        self._written = wanted

    def _kept(self, result: Any) -> None:
        """Go on after the order was written, or could not be."""
        if not isinstance(result, Exception):
            self._obeyed()
        elif self._orders[0].urgent:
            self._enforce(self._wanted())
            self._node.get_logger().error(f'{result}; a restart would undo it')
            words = self.supervision.in_words()
            self._end(False, f'{words}; but a restart would undo it: {result}')
        else:
            self._node.get_logger().error(str(result))
            self._end(False, f'nothing has changed: {result}')
        self._next()

    def _obeyed(self) -> None:
        """Have the order count that is on the disk now."""
        try:
            self._enforce(self._wanted())
        except SupervisionError as error:
            self._end(False, str(error))
            return
        self._node.get_logger().info(f'the surgeon said: {self._orders[0].words}')
        self._end(True, self.supervision.in_words())

    def _end(self, success: bool, words: str) -> None:
        self._orders.popleft().answered(success, words)
