# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an observer of a running system sees, as plain values that need no ROS."""

from dataclasses import dataclass, field

from fdrl_ros.federation.protocol import message as protocol


@dataclass(frozen=True)
class ReceivedMessage:
    """A message of the protocol: RoundStatus, GlobalPolicy, HospitalPolicy or MaskedUpdate."""

    message: protocol.Message


@dataclass(frozen=True)
class RejectedMessage:
    """A message of the protocol that nobody should believe, and why."""

    why: str


@dataclass(frozen=True)
class HospitalProgress:
    """How far a hospital is; see Progress.msg."""

    hospital: str
    stage: str
    round: int
    step: int
    steps: int
    epsilon: float


@dataclass(frozen=True)
class PrivacySpent:
    """What a hospital's ledger says; see Privacy.msg."""

    hospital: str
    unit: str
    epsilon: float
    epsilon_paper: float
    delta: float
    budget: float
    entries: int
    secure: bool


@dataclass(frozen=True)
class OperationEnded:
    """How an operation ended; see Outcome.msg."""

    robot: str
    patient: str
    procedure: str
    success: bool
    failure: str
    steps: int
    peak_force: float
    damage: float


@dataclass(frozen=True)
class PoliciesListed:
    """
    The policies of a robot, those that stand for their names; see Policies.msg.

    :param rounds: after which each was released, by name.
    :param valuing: names of those whose tests and value models are not done.
    """

    robot: str
    rounds: dict[str, int]
    valuing: tuple[str, ...]


@dataclass(frozen=True)
class NodeHealth:
    """A node's health from /diagnostics."""

    node: str
    level: int
    summary: str
    values: dict[str, str] = field(default_factory=dict)


Event = (
    ReceivedMessage
    | RejectedMessage
    | HospitalProgress
    | PrivacySpent
    | OperationEnded
    | PoliciesListed
    | NodeHealth
)
