# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Named quality-of-service profiles of every topic; what each is for is said once, here."""

from collections.abc import Sequence
from typing import Final

from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
)
from rclpy.topic_endpoint_info import TopicEndpointInfo


def _profile(
    depth: int,
    *,
    latched: bool = False,
    reliable: bool = True,
    period: float | None = None,
    life: float | None = None,
) -> QoSProfile:
    profile = QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )
    if period is not None:
        profile.deadline = Duration(seconds=period)
    if life is not None:
        profile.lifespan = Duration(seconds=life)
    return profile


LATCHED: Final = _profile(1, latched=True)
"""To publish what late joiners need the newest of: round status, keys, a robot's policies."""

OPERATING: Final = _profile(10, latched=True)
"""To publish the operating state: a client that waits for a move sees it begin and end."""

KEPT: Final = _profile(64, latched=True)
"""To publish chunks of updates, of which half as many at most are on their way
(federation.protocol.chunk_requests), so that none is overwritten; a server that was cut off for
long gets them when it is back. What proves faults is kept too, of which there may be several."""

RELEASED: Final = _profile(8, latched=True)
"""To publish global policies: who comes late, or cannot listen for some short rounds, misses none
of the last eight. Robots get the newest alone."""

CHUNKS: Final = _profile(1200, latched=True)
"""To publish and hear long weights in chunks: all of the newest, 73 MB (parties.weights_topic)."""

HEARD: Final = _profile(1000, latched=True)
"""To hear both; a depth of 1 would keep one message of *all* hospitals together."""

EVENT: Final = _profile(100)
"""Rare things that nobody may miss while listening: progress, outcomes, verdicts."""

EXCHANGED: Final = _profile(100)
"""Messages of the protocol that count only now: requests, relayed chunks, verdicts."""

OUTCOME: Final = _profile(10, latched=True)
"""To publish how operations ended: who comes late sees the last ten."""

CLOCK: Final = _profile(1)
"""To publish /clock: reliable, so that any subscriber matches."""

STATE: Final = _profile(5, period=0.1)
"""To publish the robot's state at 100 Hz: reliable, so that any subscriber matches."""

SENSOR: Final = _profile(1, reliable=False)
"""To hear the robot's state and set-points, of any sender: the newest counts, none queues."""

ACTION: Final = _profile(5, period=0.1, life=0.1)
"""To publish the selected action; an old one is not delivered."""

COMMAND: Final = _profile(1, life=0.1)
"""To publish set-points: an old one moves nothing; hosts need one time of day."""

SEEN: Final = _profile(1)
"""To publish what the segmenter sees: reliable, so that any subscriber matches."""

PICTURE: Final = _profile(2)
"""Markers and pictures, for people; a segmenter takes the newest."""

DIAGNOSTICS: Final = _profile(10)
"""/diagnostics, as REP 107 has it."""


def overridable(profile: QoSProfile) -> tuple[QoSPolicyKind, ...]:
    """
    Return what parameters `qos_overrides` may change of a profile.

    Nothing of latched topics and of the protocol: who comes late would miss a policy, what was
    spent of the privacy budget or the state of the arm, and rounds would stop. Of topics whose
    newest message alone counts only the reliability, so that no old command or state queues.
    """
    if profile.durability == DurabilityPolicy.TRANSIENT_LOCAL or profile is EXCHANGED:
        return ()
    if profile.depth == 1:
        return (QoSPolicyKind.RELIABILITY,)
    return (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY)


def matching(publishers: Sequence[TopicEndpointInfo], depth: int) -> QoSProfile:
    """
    Return what hears all of some publishers: reliable and latched if each of them is.

    :param depth: messages that wait at most.
    """
    offered = [each.qos_profile for each in publishers]
    return _profile(
        depth,
        latched=all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in offered),
        reliable=all(each.reliability == ReliabilityPolicy.RELIABLE for each in offered),
    )
