# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ROS driver of a party: moves the same plain object as the in-process driver does."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
import logging
from pathlib import Path
from typing import Any, ClassVar

from fdrl_ros.deployment.interfaces import sent_by
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.linked import Linked
from fdrl_ros.deployment.link.transport import open_client, Session
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import FdrlError, MessageError, RoundError
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    Message,
    shortened,
)
from fdrl_ros.federation.protocol.party import Effects, Job, Party, Refusals
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.nodes.parties.conversion import from_ros, to_ros
from fdrl_ros.nodes.parties.topics import ADDRESSED, PROTOCOL_TOPICS, ProtocolTopic, WITH_WEIGHTS
from fdrl_ros.nodes.parties.weights_topic import PolicyPublishers, PolicyReader
from fdrl_ros.runtime.stopwatch import peak_memory, Stopwatch
from fdrl_ros.runtime.worker_thread import Post
from fdrl_ros.settings import setting

TICK = 0.25
"""Time between two ticks of a party, second."""


@dataclass(frozen=True)
class PartySettings(NodeSettings):
    """What the node of every party is told."""

    passphrase_file: str = setting(
        '',
        'file of mode 0600 with the passphrase of the keys; empty: the one that the variable '
        'FDRL_PASSPHRASE_FILE names, if any',
    )
    router: str = setting(
        '',
        "router that carries the federation's messages over Eclipse Zenoh, as tls/HOST:PORT; what "
        'a node publishes over DDS is then for who looks on; empty: DDS carries them',
    )


class PartyNode(ManagedNode):
    """
    Drives one party: messages in, messages out, jobs on the worker.

    Activating makes the party anew out of its durable state, just as a restart does, so that
    nothing of an earlier activation is mixed in.
    """

    part = 'rounds'
    prepares = True
    own: ClassVar[type[PartySettings]] = PartySettings

    def __init__(self, post: Post) -> None:
        self.party: Party | None = None
        self.link: Linked | None = None
        self.refused = Refusals()
        self.stopwatch = Stopwatch()
        self.job = ''
        super().__init__(post)

    def open(self) -> None:
        """See that key and roster can be used, and make the publishers."""
        file = self.settings.passphrase_file
        # A new one, so that a passphrase that was changed is read again.
        self.layout = replace(self.layout, passphrase_file=Path(file) if file else None)
        self.layout.credentials(self.member)
        self.policies = PolicyPublishers(self)
        self._senders: dict[tuple[type[Message], str], Any] = {}
        for kind in sent_by(self.executable):
            entry = PROTOCOL_TOPICS[kind]
            for to in self.addressees(kind) if kind in ADDRESSED else ['']:
                topic = self.topic(kind, to)
                self._senders[kind, to] = (
                    self.policies.add(entry.type, topic, profile=entry.sending)
                    if kind in WITH_WEIGHTS
                    else self.publisher(entry.type, topic, entry.sending)
                )
        self.state_file = self.layout.state(self.member)

    def topic(self, kind: type[Message], to: str = '') -> str:
        """Name the topic of a kind of message, of the addressee's if there is one."""
        below = f'/{to}' if to else ''
        return f'{self.federation_namespace}/{PROTOCOL_TOPICS[kind].name}{below}'

    def addressees(self, kind: type[Message]) -> list[str]:
        """Return whom messages of a kind with an addressee are for."""
        return [each.name for each in self.layout.roster().hospitals]

    def begin(self) -> None:
        """Prepare what takes long on the worker, then start the party."""
        self.keep(self._drop_party)
        self.policies.begin()
        self.submit(self._prepare_and_link, self._start, self.reported)
        self.every(TICK, self._tick)

    @property
    def member(self) -> str:
        """Name in the roster."""
        return self.executable

    def prepare(self, report: Callable[[Any], None], stopped: Callable[[], bool]) -> object:
        """Do on the worker what must be done before there is a party."""
        return None

    @abstractmethod
    def make_party(self, prepared: Any, store: Store) -> Party:
        """Put the party together."""

    # What subclasses may look at.

    def reported(self, progress: Any) -> None:
        """Take the progress of a job."""

    def accepted(self, message: Message) -> None:
        """Look at a message that the party took."""

    def finished(self, job: Job, result: Any) -> None:
        """Look at the result of a job."""

    # The driver.

    def _prepare_and_link(
        self, report: Callable[[Any], None], stopped: Callable[[], bool]
    ) -> tuple[object, Session | None]:
        prepared = self.prepare(report, stopped)
        if not (router := self.settings.router):
            return prepared, None
        files = LinkFiles(self.layout.keys, self.member)
        return prepared, open_client(files, router, stopped, self.get_logger().warning)

    def _start(self, result: Any) -> None:
        if isinstance(result, Exception):
            raise result
        prepared, session = result
        with self.later():
            if session is not None:
                self.keep(session.close)
            store = Store(self.state_file)
            self.keep(store.close)
            party = self.make_party(prepared, store)
            self.party = party
            if session is not None:
                self._listen(party, session)
            for kind in party.takes if session is None else ():
                if kind in PROTOCOL_TOPICS:
                    self._hear(kind, PROTOCOL_TOPICS[kind])
        self.note_begun()
        self.act(lambda: party.start(self.now))

    def _listen(self, party: Party, session: Session) -> None:
        """Hear the others over the link, and nobody over DDS."""

        def handle(message: Message) -> Effects:
            if self.party is not party:  # it was dropped while the message waited
                raise RoundError(message.sender, f'{self.get_name()} is not ready')
            effects = party.handle(message, self.now)
            self.accepted(message)
            return effects

        self.link = Linked(
            LinkFiles(self.layout.keys, self.member),
            self.layout.roster(),
            party.takes,  # type: ignore[arg-type]
            session,
            post=lambda action: self.post(self.guarded(action)),
            take=lambda message: self.act(lambda: handle(message)),
            refuse=self._refuse,
            say=self.get_logger().warning,
        )

    def _drop_party(self) -> None:
        self.party, self.link, self.job = None, None, ''

    def _hear(self, kind: type[Message], entry: ProtocolTopic) -> None:
        topic = self.topic(kind, self.member if kind in ADDRESSED else '')
        if kind not in WITH_WEIGHTS:
            self.hear(entry.type, topic, self._taker(kind), entry.hearing)
            return
        size = 4 * load_policy(self.layout.pretrained).layout.n_parameters
        reader = PolicyReader(size, self._taker(kind))
        reader.subscribe(self.hear, entry.type, topic)

    def _taker(self, kind: type[Message]) -> Callable[..., None]:
        def take(source: Any, weights: bytes | None = None) -> None:
            self.take(source, kind, **({} if weights is None else {'weights': weights}))

        return take

    def take(self, source: Any, kind: type[Message], **apart: object) -> MessageError | None:
        """
        Give a ROS message to the party.

        :param apart: fields that came beside it.
        :returns: why it was refused, or None.
        """
        party = self.party
        if party is None:
            return RoundError(source.envelope.sender, f'{self.get_name()} is not ready')
        if source.envelope.sender == self.member:
            return None

        def handle() -> Effects:
            message = from_ros(source, kind, **apart)
            effects = party.handle(message, self.now)
            self.accepted(message)
            return effects

        return self.act(handle)

    def act(self, action: Callable[[], Effects]) -> MessageError | None:
        """
        Let the party act, log and count what it refuses, and carry out what it wants.

        :returns: the refusal, or None.
        """
        try:
            effects = action()
        except MessageError as error:
            self._refuse(error)
            return error
        for note in effects.notes:
            self.get_logger().info(note)
        for message in effects.messages:
            self.send(message)
        for job in effects.jobs:
            self._run(job)
        return None

    def _refuse(self, error: MessageError) -> None:
        match self.refused.note(error):
            case logging.DEBUG:
                self.get_logger().debug(f'refused: {error}')
            case logging.WARNING:
                self.get_logger().warning(f'refused: {error}')

    def serve(self, service: type[object], name: str, kind: type[Message]) -> None:
        """
        Make a service whose request is a message of the protocol.

        The answer has `received`, and the `reason` where it was refused.
        """

        def take(request: Any, response: Any) -> None:
            refusals: list[MessageError | None] = []
            self.guarded(lambda: refusals.append(self.take(request, kind)))()
            refusal = refusals[0] if refusals else self.fault
            response.received = refusal is None
            reason = refusal.detail if isinstance(refusal, MessageError) else str(refusal)
            response.reason = shortened(reason) if refusal else ''

        self.answer(service, name, take)

    def send(self, message: Message) -> None:
        """Publish a message of the party."""
        kind = type(message)
        if self.link is not None:
            self.link.send(message)
            if kind not in PROTOCOL_TOPICS:
                return
        sender = self._senders[kind, getattr(message, 'to', '')]
        if isinstance(message, GlobalPolicy | HospitalPolicy):
            sender.publish(message, self.get_clock().now().to_msg())
        else:
            sender.publish(self.stamped(to_ros(message, PROTOCOL_TOPICS[kind].type())))

    def _run(self, job: Job) -> None:
        self.job = job.name

        def done(result: object) -> None:
            party = self.party
            if party is None:
                return
            self.job = ''
            if isinstance(result, Exception) and not isinstance(result, FdrlError):
                raise result
            self.act(lambda: party.finish(job, result, self.now))
            self.finished(job, result)

        self.submit(self.stopwatch.timed(job.name, job.run), done, self.reported)

    def _tick(self) -> None:
        if (party := self.party) is not None:
            if self.link is not None:
                self.link.tick(self.now)
            self.act(lambda: party.tick(self.now))

    def health(self) -> Health:
        """Tell what the party does and what it refused."""
        health = super().health()
        if health.level is not Level.OK:
            return health
        values = {
            'state': self.state_name,
            'job': self.job,
            'refused': sum(self.refused.values()),
            **{f'seconds {name}': f'{each:.6f}' for name, each in self.stopwatch.seconds.items()},
            'peak memory': '' if (held := peak_memory()) is None else f'{held:.1f}',
            **{f'refused {reason}': count for reason, count in sorted(self.refused.items())},
        }
        return Health(Level.OK, self.state_name, values)
