# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The hospital's node: trains and takes part in the rounds.

It is the only party in both DDS domains: what it verified and released goes on to the robots,
nothing comes back from them.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
import math
from typing import Any

from builtin_interfaces.msg import Time
from fdrl_ros.deployment.bringup import DISCOVERY_SERVER
from fdrl_ros.deployment.parties import hospital as parties
from fdrl_ros.errors import SettingError
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.hospital.state import LocalUpdate
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.party import Job, Party
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.learner import HomePolicy, Stage, TrainingProgress
from fdrl_ros.learner.trainer import Trainer
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.parties.party_node import PartyNode, PartySettings
from fdrl_ros.nodes.parties.weights_topic import PolicyPublishers
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, PAPER_ORDER
from fdrl_ros.runtime.environment_variables import with_variables
from fdrl_ros.runtime.worker_thread import Post, Take
from fdrl_ros.settings import setting
from rclpy.qos import QoSProfile


@dataclass(frozen=True)
class TrainerSettings(PartySettings):
    """What a trainer's node is told."""

    robot_domain: int = setting(
        -1, 'DDS domain of the robots that get the policies; -1 for none', limits=(-1, 232)
    )
    niceness: int = setting(
        10, 'how far training gives way to other processes (nice)', limits=(0, 19)
    )


OTHER_HOSTS = (DISCOVERY_SERVER, 'ROS_STATIC_PEERS')
"""Variables that lead to the federation's other hosts: the robots are not there."""


class RobotLink:
    """The trainer's second node, in the robots' domain: it publishes released policies only."""

    def __init__(self, trainer: 'TrainerNode', domain: int) -> None:
        """
        Join the domain, under the name of the trainer's node.

        :param trainer: its topics have the same names in both domains, remapped ones too.
        """
        self._joined = ExitStack()
        # The middleware reads them now, for whatever domain.
        with with_variables(dict.fromkeys(OTHER_HOSTS, '')):
            node = node_in(domain, trainer.get_name(), trainer.get_namespace())
            self._node = self._joined.enter_context(node)
        self._trainer = trainer

    def open(self, publishers: PolicyPublishers) -> None:
        """Make the publishers."""

        def make(kind: type[object], topic: str, profile: QoSProfile) -> Any:
            name = self._trainer.resolve_topic_name(topic)
            return self._node.create_publisher(kind, name, profile)

        topic = self._trainer.topic(protocol.GlobalPolicy)
        self._global = publishers.add(ros.GlobalPolicy, topic, make)
        self._own = publishers.add(ros.HospitalPolicy, 'policy', make)
        self._home = publishers.add(ros.HospitalPolicy, 'home', make)

    def publish(self, message: protocol.Message, stamp: Time) -> None:
        """Publish a policy as its sender signed it; the selectors check it themselves."""
        if isinstance(message, protocol.GlobalPolicy):
            self._global.publish(message, stamp)
        elif isinstance(message, protocol.HospitalPolicy):
            self._own.publish(message, stamp)

    def publish_home(self, message: protocol.HospitalPolicy, stamp: Time) -> None:
        """Publish the home policy to the hospital's own robots, released or not."""
        self._home.publish(message, stamp)

    def close(self) -> None:
        """Leave the domain."""
        self._joined.close()


class TrainerNode(PartyNode):
    """Moves a hospital's messages."""

    executable = 'trainer'
    groups = ('learner', 'privacy', 'home', 'collection', 'world')
    own = TrainerSettings

    def __init__(self, post: Post) -> None:
        self._stated = self._restored = False
        super().__init__(post)

    @property
    def member(self) -> str:
        """Name in the roster: the namespace."""
        return self.place

    def check(self) -> None:
        """Refuse robots in the federation's domain."""
        super().check()
        if (domain := self.settings.robot_domain) == self.context.get_domain_id():
            raise SettingError('robot_domain', domain, "another domain than the federation's")

    def open(self) -> None:
        """Make the publishers of both domains."""
        super().open()
        self._progress = self.publisher(ros.Progress, 'progress', qos.EVENT)
        self._privacy = self.publisher(ros.Privacy, 'privacy', qos.LATCHED)
        self._policy = self.policies.add(ros.HospitalPolicy, 'policy')
        domain = self.settings.robot_domain
        self._robots: RobotLink | None = None
        if domain >= 0:
            self._robots = RobotLink(self, domain)
            self.keep(self._robots.close)
            self._robots.open(self.policies)

    def prepare(self, report: Take, stopped: Callable[[], bool]) -> Trainer:
        """Collect records if there are none yet; open the ledger and verify it."""
        return parties.prepare_training(
            self.layout, self.member, self.plan(), report, stopped, niceness=self.settings.niceness
        )

    def make_party(self, prepared: Trainer, store: Store) -> Party:
        """Put the hospital together."""
        self.keep(prepared.ledger.close)
        self._trainer = prepared
        # What is spent is stated once both servers acknowledged the ledger.
        self._stated = self._restored = False
        self._publish_progress(Stage.WAITING)
        return parties.open_hospital(self.layout, self.member, self.plan(), prepared, store)

    def send(self, message: protocol.Message) -> None:
        """Publish; a released policy goes to the robots too."""
        if isinstance(message, protocol.HospitalPolicy):
            self._policy.publish(message, self.get_clock().now().to_msg())
            self._to_robots(message)
        else:
            super().send(message)

    def accepted(self, message: protocol.Message) -> None:
        """Hand a verified global policy on to the robots, and state what is spent once."""
        if isinstance(message, protocol.GlobalPolicy):
            self._to_robots(message)
        hospital, ledger = self._hospital, self._trainer.ledger
        if hospital.restored != self._restored or (hospital.accounted and not self._stated):
            self._stated, self._restored = True, hospital.restored
            newest = not hospital.restored
            stated = ledger.epsilon_stated(newest=newest)
            self._publish_progress(
                Stage.WAITING, epsilon=ledger.epsilon_bound() if newest else stated
            )
            self._publish_privacy(stated, ledger.chain.head.entries)

    @property
    def _hospital(self) -> Hospital:
        assert isinstance(self.party, Hospital)
        return self.party

    def _to_robots(self, message: protocol.Message) -> None:
        if self._robots is not None:
            self._robots.publish(message, self.get_clock().now().to_msg())

    def reported(self, progress: TrainingProgress | tuple[int, int]) -> None:
        """Publish how far collecting or training is."""
        if isinstance(progress, TrainingProgress):
            self._publish_progress(**asdict(progress))
        else:
            done, count = progress
            self._publish_progress(Stage.COLLECTING, step=done, steps=count)

    def finished(self, job: Job, result: object) -> None:
        """Publish what a round of training cost."""
        if isinstance(result, LocalUpdate):
            spent = result.result
            if not self._restored:
                self._publish_privacy(spent.epsilon, spent.ledger_entries)
            self._publish_progress(Stage.SENDING, round=result.round, epsilon=spent.epsilon)
        elif isinstance(result, HomePolicy):
            if not self._restored:
                self._publish_privacy(result.epsilon, self._trainer.ledger.chain.head.entries)
            self._publish_progress(Stage.AT_HOME, round=result.round, epsilon=result.epsilon)
            if self._robots is not None and (signed := self._hospital.signed_home()):
                self._robots.publish_home(signed, self.get_clock().now().to_msg())

    def health(self) -> Health:
        """Report why the hospital takes no part any more, if it does not."""
        health = super().health()
        if health.level is not Level.OK or self.party is None or not self._hospital.problem:
            return health
        return Health(Level.ERROR, self._hospital.problem, health.values)

    def _publish_progress(
        self, stage: Stage, *, epsilon: float = math.nan, **progress: int
    ) -> None:
        """Publish how far the hospital is, with an epsilon that may be stated."""
        if self._restored:
            epsilon = self._trainer.ledger.epsilon_stated(newest=False)
        elif not self._stated:
            epsilon = math.nan
        told = ros.Progress(stage=stage, epsilon=epsilon, public_return=math.nan, **progress)
        told.hospital = self.member
        self._progress.publish(self.stamped(told))

    def _publish_privacy(self, epsilon: float, entries: int) -> None:
        privacy = self.plan().privacy
        told = ros.Privacy(
            hospital=self.member,
            unit=privacy.unit,
            epsilon=epsilon,
            epsilon_paper=epsilon_paper(PAPER_ORDER, privacy.noise_multiplier),
            delta=privacy.delta,
            budget=privacy.budget,
            entries=entries,
            secure=self._trainer.secure,
        )
        self._privacy.publish(self.stamped(told))


NODE = TrainerNode
