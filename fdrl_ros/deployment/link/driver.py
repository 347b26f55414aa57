# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The Zenoh driver of a party: moves the same plain object as other drivers, without ROS."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, ExitStack
import logging
import os
from queue import Empty, SimpleQueue
import signal
import threading
import time
from types import FrameType
from typing import Any, Final

from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.linked import Linked
from fdrl_ros.deployment.link.transport import open_client
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.parties.hospital import open_hospital, prepare_training
from fdrl_ros.deployment.parties.key_authority import (
    derive_encryption,
    open_key_authority,
    server_step,
    VALIDATION,
)
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.supervision import FAULT, REFUSED
from fdrl_ros.errors import FdrlError, LOCKED, MessageError, TrainingStopped
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.protocol.party import Effects, Job, Party, Refusals
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.runtime.orphans import end_with_launcher
from fdrl_ros.runtime.subprocess_runner import SeparateObject
from fdrl_ros.runtime.worker_thread import Worker

TICK: Final = 0.25
"""Time between two ticks of a party, second."""

LOCK_PATIENCE: Final = 10.0
"""Longest wait for another process that has the party's files, second."""

GRACE: Final = 10.0
"""Longest wait at the end for the job that runs, second."""


@contextmanager
def closing_worker(worker: Worker) -> Iterator[None]:
    """End the job that runs before what it uses is closed."""
    try:
        yield
    finally:
        if not worker.close(GRACE):
            logging.critical(f'a job did not end in {GRACE:g} s: what it uses is not closed')
            logging.shutdown()
            os._exit(FAULT)  # closing or ending beside it could crash


class PartyProcess:
    """One party in this process: messages over its link, jobs in a thread, ticks by the clock."""

    def __init__(self, layout: Layout, name: str, router: str) -> None:
        """
        Look whether the party can begin; :meth:`run` moves it.

        :param name: in the roster.
        :param router: `tls/HOST:PORT`.
        :raises FdrlError: if keys, roster, plan or certificates cannot be used.
        """
        self._layout, self._name, self._router = layout, name, router
        _, self._roster = layout.credentials(name)
        self._files = LinkFiles(layout.keys, name)
        self._plan = Plan.load(layout.plan)
        self._log = logging.getLogger(name)
        # A signal handler puts too, which a Queue does not allow.
        self._queue: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._stopped = threading.Event()
        self._refused = Refusals()
        self._kept = ExitStack()
        self._worker: Worker
        self._party: Party | None = None
        self._link: Linked | None = None

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """End :meth:`run`; a signal handler."""
        self._stopped.set()
        self._queue.put(lambda: None)

    def stopped_within(self, seconds: float) -> bool:
        """Wait, and tell whether it was stopped before or meanwhile."""
        return self._stopped.wait(seconds)

    def run(self) -> None:
        """
        Move the party until it is told to stop.

        :raises FdrlError: if it cannot begin.
        """
        self._worker = Worker(f'{self._name} jobs', self._queue.put)
        with self._kept, closing_worker(self._worker):
            self._worker.submit(self._prepare, self._begin, lambda progress: None)
            due = time.monotonic()
            while not self._stopped.is_set():
                try:
                    self._queue.get(timeout=max(0.0, due - time.monotonic()))()
                except Empty:
                    pass
                if (now := time.monotonic()) >= due:
                    due = now + TICK
                    self._tick(now)

    @property
    def begun(self) -> bool:
        """Whether the party is there."""
        return self._party is not None

    def _prepare(
        self, report: Callable[[Any], None], stopped: Callable[[], bool]
    ) -> tuple[Any, Any]:
        """Prepare on the worker what takes long, then wait for the router."""
        prepared: Any = None
        if self._name not in SERVERS:
            prepared = prepare_training(self._layout, self._name, self._plan, report, stopped)
            self._kept.callback(prepared.ledger.close)
        elif self._name == 'key_authority':
            prepared = derive_encryption(self._layout, self._plan, stopped)
        session = open_client(self._files, self._router, stopped, self._log.warning)
        return prepared, session

    def _begin(self, result: Any) -> None:
        if isinstance(result, Exception):
            raise result
        prepared, session = result
        self._kept.callback(session.close)
        store = Store(self._layout.state(self._name))
        self._kept.callback(store.close)
        party = self._party = self._make(prepared, store)
        self._link = Linked(
            self._files,
            self._roster,
            party.takes,  # type: ignore[arg-type]
            session,
            post=self._queue.put,
            take=lambda message: self._act(lambda: party.handle(message, time.monotonic())),
            refuse=self._refuse,
            say=self._log.warning,
        )
        self._log.info(f'linked with {self._router}')
        self._act(lambda: party.start(time.monotonic()))

    def _make(self, prepared: Any, store: Store) -> Party:
        layout, plan = self._layout, self._plan
        if self._name == 'aggregator':
            return Aggregator(open_channel(layout, self._name, store), plan.rounds, store)
        if self._name != 'key_authority':
            return open_hospital(layout, self._name, plan, prepared, store)
        start = load_policy(layout.pretrained).weights

        def separate(place: str, *arguments: object) -> SeparateObject:
            return self._kept.enter_context(SeparateObject(place, *arguments))

        return open_key_authority(
            layout,
            plan,
            store,
            # In a process of its own: this one holds the secret key and loads no world.
            validate=separate(VALIDATION, plan, start),
            encryption=prepared,
            step=server_step(plan, start, separate),
        )

    def _tick(self, now: float) -> None:
        if self._link is not None and (party := self._party) is not None:
            self._link.tick(now)
            self._act(lambda: party.tick(now))

    def _refuse(self, error: MessageError) -> None:
        if level := self._refused.note(error):
            self._log.log(level, f'refused: {error}')

    def _act(self, action: Callable[[], Effects]) -> MessageError | None:
        """
        Let the party act, and carry out what it wants.

        :returns: what it refused, or None.
        """
        assert self._link is not None
        try:
            effects = action()
        except MessageError as error:
            self._refuse(error)
            return error
        for note in effects.notes:
            self._log.info(note)
        for message in effects.messages:
            self._link.send(message)
        for job in effects.jobs:
            self._work(job)
        return None

    def _work(self, job: Job) -> None:
        def done(result: object) -> None:
            party = self._party
            assert party is not None
            if isinstance(result, Exception) and not isinstance(result, FdrlError):
                raise result
            self._act(lambda: party.finish(job, result, time.monotonic()))

        self._worker.submit(job.run, done, lambda progress: None)


def run_party(layout: Layout, name: str, router: str) -> int:
    """
    Run a party as a process: it logs to standard error and ends at SIGINT and SIGTERM.

    :returns: exit code: REFUSED if the party could not begin, also if another process has its
        files for longer than :data:`LOCK_PATIENCE`; FAULT if it failed later.
    """
    end_with_launcher()
    logging.addLevelName(logging.CRITICAL, 'FATAL')
    logging.addLevelName(logging.WARNING, 'WARN')
    form = f'[%(levelname)s] [%(created).6f] [{name}]: %(message)s'
    logging.basicConfig(format=form, level=logging.INFO)
    process, since = None, time.monotonic()
    try:
        while True:
            process = PartyProcess(layout, name, router)
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, process.stop)
            try:
                process.run()
                break
            except LOCKED:  # whose process may be about to end
                if process.begun or time.monotonic() - since >= LOCK_PATIENCE:
                    raise
                if process.stopped_within(TICK):
                    return 0
    except TrainingStopped:
        return 0
    except FdrlError as error:
        words = f'{type(error).__name__}: {" ".join(str(error).split())}'
        logging.getLogger(name).critical(words)
        return FAULT if process is not None and process.begun else REFUSED
    except Exception:  # of ours none is meant: whoever supervises starts it again
        logging.getLogger(name).exception('it failed')
        return FAULT
    return 0
