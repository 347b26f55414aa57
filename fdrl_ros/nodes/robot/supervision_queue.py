# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Queue of the surgeon's requests in a selector's node: each is written, applied, answered."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fdrl_ros.errors import StoreError, SupervisionError
from fdrl_ros.nodes.common.deferred_answer import Answered
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.selector.candidates.supervision import (
    load_supervision,
    save_supervision,
    Supervision,
)

Change = Callable[[Supervision], Supervision]
Write = Callable[[Callable[[], None], Callable[[object], None]], None]


@dataclass(frozen=True)
class SupervisionRequest:
    """
    A request of the surgeon.

    :param change: returns the supervision after it; raises SupervisionError if it is refused.
    :param description: the request for the log.
    :param urgent: whether it applies before it is on the disk, and even if it is never written.
    :param answered: called with the outcome.
    """

    change: Change
    description: str
    urgent: bool
    answered: Answered


class SupervisionQueue:
    """
    Persists the surgeon's supervision of one selector.

    A request is on the disk before it applies and is answered; if it cannot be written, it is
    refused and nothing changes. An urgent request only takes something away from the selector: it
    applies at once, and no request made before it undoes it.

    :param node: whose selector this is.
    :param path: of the file.
    :param write: calls its first argument on another thread, then its second on this one, with
        the result or exception.
    :param changed: called whenever another supervision is in force.
    """

    def __init__(
        self, node: ManagedNode, path: Path, write: Write, changed: Callable[[], None]
    ) -> None:
        """
        Read the supervision in force before.

        :raises StoreError: if it is damaged.
        """
        self._node, self._path, self._write, self._changed = node, path, write, changed
        self.supervision = self._written = load_supervision(path)
        self._requests: deque[SupervisionRequest] = deque()

    def submit(self, request: SupervisionRequest) -> None:
        """
        Queue a request; it is answered when its turn has come, perhaps at once.

        :raises SupervisionError: if it is refused.
        """
        wanted = request.change(self.supervision)
        if request.urgent:
            self._apply(wanted)
        self._requests.append(request)
        if len(self._requests) == 1:
            self._write_next()

    def close(self, ended: bool) -> None:
        """
        Write the supervision in force if it is not on the disk yet, and answer all requests.

        :param ended: whether the other thread has ended; one that may still write an older
            supervision could do so after this one, so nothing is written then.
        :raises StoreError: if it cannot be written.
        """
        failure: StoreError | None = None
        if not ended and (self._requests or self._written != self.supervision):
            failure = StoreError('the disk does not answer')
            self._node.get_logger().error(
                f'{failure}: a restart may undo that {self.supervision.in_words()}'
            )
        elif self._written != self.supervision:
            try:
                self._save(self.supervision)
            except StoreError as error:
                failure = error
        self._answer_all(failure)
        if ended and failure is not None:
            raise failure

    def _answer_all(self, failure: StoreError | None) -> None:
        """
        Answer all requests in the queue: urgent ones are in force, the others are refused.

        :param failure: why the disk may hold another supervision; None where it holds this one.
        """
        words = self.supervision.in_words()
        while self._requests:
            if not self._requests[0].urgent:
                doubt = f'; but a restart may obey it: {failure}' if failure else ''
                self._answer(False, f'the selector was deactivated: nothing has changed{doubt}')
            elif failure is None:
                self._answer(True, words)
            else:
                self._answer(False, f'{words}; but a restart may undo it: {failure}')

    def _apply(self, wanted: Supervision) -> None:
        if wanted != self.supervision:
            self.supervision = wanted
            self._changed()

    def _supervision_after_first(self) -> Supervision:
        """
        Return the supervision after the first request and all urgent ones that came later.

        :raises SupervisionError: if it is refused.
        """
        request, *later = self._requests
        wanted = request.change(self.supervision)
        for each in later:
            if each.urgent:
                wanted = each.change(wanted)
        return wanted

    def _write_next(self) -> None:
        """Persist the next request unless it is already on the disk."""
        while self._requests:
            try:
                wanted = self._supervision_after_first()
            except SupervisionError as error:  # because of another one that was applied meanwhile
                self._answer(False, str(error))
                continue
            if wanted != self._written:
                self._write(partial(self._save, wanted), self._after_write)
                return
            self._apply_first()

    def _save(self, wanted: Supervision) -> None:
        save_supervision(self._path, wanted)
        self._written = wanted

    def _after_write(self, result: object) -> None:
        """Continue after the request was written, or could not be."""
        if not isinstance(result, Exception):
            self._apply_first()
        elif self._requests[0].urgent:
            self._apply(self._supervision_after_first())
            self._node.get_logger().error(f'{result}; a restart would undo it')
            words = self.supervision.in_words()
            self._answer(False, f'{words}; but a restart would undo it: {result}')
        else:
            self._node.get_logger().error(str(result))
            self._answer(False, f'nothing has changed: {result}')
        self._write_next()

    def _apply_first(self) -> None:
        """Apply the request that is on the disk now."""
        try:
            self._apply(self._supervision_after_first())
        except SupervisionError as error:
            self._answer(False, str(error))
            return
        self._node.get_logger().info(f'the surgeon ordered: {self._requests[0].description}')
        self._answer(True, self.supervision.in_words())

    def _answer(self, success: bool, description: str) -> None:
        self._requests.popleft().answered(success, description)
