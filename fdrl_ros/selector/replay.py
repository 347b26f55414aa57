# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the selector decides on a recorded robot: on the same states, the same as it did live."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
import math
from pathlib import Path
from typing import Any, Protocol

from fdrl_ros.errors import errors_named, RecordsError
from fdrl_ros.selector.candidates.candidate import Candidate, Selection
from fdrl_ros.selector.control.limiter import Limiter
from fdrl_ros.selector.control.loop import ControlLoop, Cycle
from fdrl_ros.selector.control.monitor import GateSettings
from fdrl_ros.selector.control.observation import (
    fault_in_words,
    Header,
    nanoseconds,
    Observation,
    observation,
    Reason,
    StateReader,
    told_fields,
)
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.selector.control.visibility import VisibilityCheck, VisibilitySettings
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.data.bag import (
    ARM_STATE,
    ARM_STATE_KINDS,
    recorded,
    TOPICS,
    VISIBILITY,
    VISIBILITY_KIND,
)
from fdrl_ros.surgery.data.log import ACTION, FIELDS, OPERATION, PATIENT
from fdrl_ros.surgery.gym.state import Field, OPERATION_LAYOUT, PATIENT_LAYOUT
from fdrl_ros.surgery.render.parts import JAW

_TIP = 'setpoint_cp'
_STATES = (OPERATION, PATIENT)
_REPLAYED_TOPICS = {
    OPERATION: (TOPICS[OPERATION],),
    PATIENT: (TOPICS[PATIENT],),
    _TIP: (TOPICS[_TIP],),
    ARM_STATE: ARM_STATE_KINDS,
    VISIBILITY: (VISIBILITY_KIND,),
}


@dataclass(frozen=True)
class ReplaySettings:
    """
    All that a node is told and that counts in its decisions.

    :param locked: name of the candidate that alone may act, as a surgeon may say; empty for none.
    :param needs_visibility: whether the robot held while nothing was seen.
    """

    selector: SelectorSettings = SelectorSettings()
    gate: GateSettings = GateSettings()
    plausibility: PlausibilitySettings = PlausibilitySettings()
    shield: ShieldSettings = ShieldSettings()
    locked: str = ''
    needs_visibility: bool = False
    visibility: VisibilitySettings = VisibilitySettings()


def replay(
    path: Path,
    candidates: Sequence[Candidate],
    rules: ReplaySettings = ReplaySettings(),  # noqa: B008 (frozen)
    *,
    robot: str | None = None,
    decided: Collection[int] | None = None,
) -> list[Selection]:
    """
    Choose in every recorded state as the robot would.

    Nothing is ever late here, and silence is no reason to hold: those are of the steady clock.
    Selections with a `risk` are decisions, made in a usable state of that stamp; the others hold
    because of what is wrong with a state. The replay begins with the first state that a recorded
    action answers, if there is one: its ticks are then those of the robot. Where most states were
    recorded at the time of their stamps, stamps are compared with that time as the node compares
    them with its clock.

    :param path: of a bag with `operation_state` and `patient_state`; `setpoint_cp`,
        `operating_state` and, for a robot that needed it, `visibility` count where they were
        recorded.
    :param robot: namespace of its topics; needed where the bag is of several robots.
    :param decided: stamps of the states to decide in, ns, as the robot did that missed some of
        what was recorded; by itself the replay decides once a tick.
    :raises RecordsError: if it is no such bag.
    :raises PolicyError: if the candidates contradict each other.
    """
    selector = Selector(rules.selector, gate=rules.gate, shield=rules.shield)
    selector.set_candidates(candidates)
    selector.lock(rules.locked or None)
    kinds = {**_REPLAYED_TOPICS, ACTION: (TOPICS[ACTION],)}
    found = recorded(path, robot, kinds, (OPERATION, PATIENT))
    start = _first_answered(found)
    plausibility = rules.plausibility
    if not _stamped_when_recorded(found, plausibility.clock_tolerance):
        plausibility = changed(plausibility, clock_tolerance=0.0)
    visibility = None
    if rules.needs_visibility:
        visibility = VisibilityCheck(rules.visibility, plausibility.clock_tolerance)
    loop = (
        ControlLoop(selector, Limiter(), plausibility, visibility=visibility)
        if decided is None
        else _ReplayLoop(selector, plausibility, visibility, decided)
    )
    chosen: list[Selection] = []
    now = 0.0
    for place, (recorded_at, topic, message) in enumerate(found):
        if topic == ACTION or (topic in _STATES and place < start):
            continue
        now = 1e-9 * recorded_at
        chosen += _selections(_feed(loop, topic, message, now))
    return chosen + _selections([loop.run_waiting(now)])


def other_layout(path: Path, robot: str | None = None) -> str:
    """
    Tell how the first recorded state of other fields differs from those of this robot.

    :returns: words, by what was recorded of `state_fields`; empty if all states have these fields.
    :raises RecordsError: if it is no bag of such a robot.
    """
    layouts: dict[str, tuple[Field, ...]] = {}
    halves: dict[str, Observation] = {}
    kinds = {topic: (TOPICS[topic],) for topic in (FIELDS, OPERATION, PATIENT)}
    for _, topic, message in recorded(path, robot, kinds, (OPERATION, PATIENT)):
        if topic == FIELDS:
            with errors_named(RecordsError, str(path)):
                layouts[message.layout] = told_fields(message)
            continue
        halves[topic] = observation(message, 0.0)
        both = [halves[each] for each in (OPERATION, PATIENT) if each in halves]
        if len(both) == 2 and [each.layout for each in both] != [OPERATION_LAYOUT, PATIENT_LAYOUT]:
            return fault_in_words(both[0], both[1], math.inf, layouts)
    return ''


class SelectedAction(Protocol):
    """The message of an action that the robot published, as it was recorded."""

    header: Header
    policy: str
    action: int
    reason: str


def recorded_actions(path: Path, robot: str | None = None) -> list[SelectedAction]:
    """
    Return what the selector said on `action`, in the order in which it was recorded.

    :returns: nothing where the topic was not recorded.
    :raises RecordsError: if it is no bag of such a robot.
    """
    found = recorded(path, robot, {ACTION: (TOPICS[ACTION],)}, ())
    return [message for _, _, message in found]


def _first_answered(found: list[tuple[int, str, Any]]) -> int:
    """
    Return the place of the first state, of either half, that a recorded action answers; or 0.

    The place counts and not the stamp: stamps go back where simulated time was reset.
    """
    there = {nanoseconds(each.header.stamp) for _, topic, each in found if topic == OPERATION}
    answers = (
        nanoseconds(each.header.stamp)
        for _, topic, each in found
        if topic == ACTION and each.reason not in BY_THE_CLOCK
    )
    first = next((stamp for stamp in answers if stamp in there), None)
    halves = (
        place
        for place, (_, topic, each) in enumerate(found)
        if topic in _STATES and nanoseconds(each.header.stamp) == first
    )
    return next(halves, 0)


def _stamped_when_recorded(found: list[tuple[int, str, Any]], tolerance: float) -> bool:
    """Tell whether the clock of the stamps is that by which they were recorded."""
    apart = [
        abs(at - nanoseconds(each.header.stamp)) for at, topic, each in found if topic == OPERATION
    ]
    return 2 * sum(each <= 1e9 * tolerance for each in apart) > len(apart)


class _ReplayLoop(ControlLoop):
    """Decides in the states in which a robot decided; feels what it felt in those between them."""

    def __init__(
        self,
        selector: Selector,
        plausibility: PlausibilitySettings,
        visibility: VisibilityCheck | None,
        decided: Collection[int],
    ) -> None:
        super().__init__(selector, Limiter(), plausibility, visibility=visibility)
        self._decided = frozenset(decided)
        self._reader = StateReader(selector.settings.state_bound)

    def is_due(self, operation: Observation) -> bool:
        """Tell whether the robot decided in this state, or held as nobody can decide in it."""
        if operation.stamp in self._decided:
            return True
        vitals = self._vitals_stamped_like(operation) or self._newest_patient
        undecidable = (
            vitals is None
            or abs(operation.time - vitals.time) > self._timeout
            or isinstance(self._reader.read(operation, vitals), Reason)
        )
        return undecidable and super().is_due(operation)


def _feed(loop: ControlLoop, topic: str, message: Any, now: float) -> Iterator[Cycle | None]:
    """Give a recorded message to a control loop."""
    stamp = 1e-9 * nanoseconds(message.header.stamp)
    if topic == _TIP:
        tip = message.pose.position
        loop.receive_tip((tip.x, tip.y, tip.z), stamp)
    elif topic == ARM_STATE:
        loop.receive_arm_state(message.state, bool(message.is_homed), stamp, now)
    elif topic == VISIBILITY:
        if loop.visibility is not None:
            jaw = float(message.share[JAW]), float(message.confidence[JAW])
            loop.visibility.receive(message.seen, jaw, stamp, message.reason)
    elif topic == PATIENT:
        yield loop.receive_patient(observation(message, now), now)
    else:
        yield loop.run_waiting(now)
        yield loop.receive_operation(observation(message, now), now, now)


def _selections(cycles: Iterable[Cycle | None]) -> list[Selection]:
    return [each.selection for each in cycles if each and each.selection]


BY_THE_CLOCK = frozenset({Reason.MISSING, Reason.STALE, Reason.LATE})
"""Reasons of holds that come of the steady clock: no recording tells them again."""


@dataclass(frozen=True)
class Difference:
    """
    A state in which the robot and the replay decided otherwise.

    :param stamp: of the state, ns.
    :param recorded: policy, action and reason that the robot told; empty where it decided nothing.
    :param replayed: those of the replay, likewise.
    """

    stamp: int
    recorded: tuple[str, int, str] | tuple[()]
    replayed: tuple[str, int, str] | tuple[()]


@dataclass(frozen=True)
class Comparison:
    """
    How a replay agrees with what was decided live.

    :param agree: states in which both decided the same: policy, action and reason.
    :param differ: states in which they did not, or one of them decided nothing.
    :param by_the_clock: holds that were told because of the steady clock; not compared.
    """

    agree: int
    differ: tuple[Difference, ...]
    by_the_clock: int


def decisions(actions: Sequence[SelectedAction]) -> list[int]:
    """Return the stamps of those recorded actions that are decisions in a state, ns."""
    return [nanoseconds(each.header.stamp) for each in actions if each.reason not in _NO_DECISION]


def compare(actions: Sequence[SelectedAction], replayed: Sequence[Selection]) -> Comparison:
    """Compare what was recorded with what the replay decided, state by state since it began."""
    start = min((each.stamp for each in replayed if each.stamp is not None), default=0)
    live = {
        nanoseconds(each.header.stamp): (each.policy, int(each.action), str(each.reason))
        for each in actions
        if each.reason not in _NO_DECISION and nanoseconds(each.header.stamp) >= start
    }
    again = {
        each.stamp: (each.policy, -1 if each.holds else each.action, str(each.reason))
        for each in replayed
        if each.risk is not None and each.stamp is not None
    }
    held = {nanoseconds(x.header.stamp) for x in actions if x.reason in BY_THE_CLOCK}
    stamps = sorted(live.keys() | again.keys() - held)
    differ = [
        Difference(each, live.get(each, ()), again.get(each, ()))
        for each in stamps
        if live.get(each) != again.get(each)
    ]
    return Comparison(len(stamps) - len(differ), tuple(differ), len(held))


_NO_DECISION = BY_THE_CLOCK | {
    Reason.CLOCK,
    Reason.FROZEN,
    Reason.MISMATCH,
    Reason.NOT_FINITE,
    Reason.OUT_OF_RANGE,
}
