# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the page shows, as plain values: the newest of each thing, and a bounded past.

Nodes feed it from their threads, the server reads snapshots from its own. Nothing here grows with
time: every list has a length. Numbers that are none become null, since JSON has no NaN.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import json
import math
import threading
import time
from typing import Any, Final

from fdrl_ros.crypto.masking.neighbourhoods import named
from fdrl_ros.deployment.events import (
    Event,
    HospitalProgress,
    NodeHealth,
    OperationEnded,
    PrivacySpent,
    ReceivedMessage,
    RejectedMessage,
)
from fdrl_ros.deployment.namespaces import absolute, FEDERATION
from fdrl_ros.federation.protocol.message import Blame, Fault, GlobalPolicy, Phase, RoundStatus
from fdrl_ros.privacy.stated import rounded_up
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    PATIENT_LAYOUT,
)

Clock = Callable[[], float]
"""Tells seconds: since 1970 (UTC), or such that only grow, from which ages follow."""

TIMELINE: Final = 200
"""Newest changes of the chosen policy that are shown."""

EVENTS: Final = 100
"""Newest events, refusals, blames and roll-backs that are shown."""

ROUNDS: Final = 500
"""Newest rounds whose success on public patients is shown."""

MOST_POLICIES: Final = 100
"""Versions of policies that are shown of a robot, the newest of each name first."""

MOST_NODES: Final = 1100
"""Nodes whose health is kept, the newest."""

SILENT: Final = 5.0
"""A hospital, or a node, of which nothing was heard for so long is not alive, second."""

FRESH: Final = 0.5
"""An operation goes on while its newest state is younger, second."""

_LASTING: Final = {'choice': FRESH, 'risk': FRESH, 'visibility': 2.0}
"""What is null when it is older, second."""

SILENT_LEVEL: Final = 3
"""Level of health of a node of which nothing is heard any more."""

_DIGITS: Final = 6  # micrometres, micronewtons: what a person can see

_LEFT_OUT, _SUCCESS = 'left out ', 'success '  # what keys of diagnostics begin with

_ROBOT: Final = (
    *('stamp', 'joints', 'tip', 'setpoint', 'waypoint', 'force', 'force_vector'),
    *('force_limit', 'procedure', 'patient', 'progress', 'time_left', 'jaw', 'surface', 'vitals'),
    *('choice', 'risk', 'driver', 'taken_by', 'armed', 'locked', 'vetoed', 'arm_state', 'homed'),
    *('policies', 'visibility', 'outcome'),
)
"""Fields of a robot that are null until something is heard."""

_POLICY_WORDS: Final = ('name', 'round', 'status', 'reason', 'pinned')
_POLICY_NUMBERS: Final = ('success_share', 'mean_return', 'hold_return', 'value_noise')
_CHOICE_NUMBERS: Final = ('value', 'uncertainty', 'expected_risk', 'predicted_force')
_RISK: Final = ('risk', 'force', 'damage', 'critical', 'mitigation', 'case_mitigation')


def number(value: float) -> float | None:
    """Return a number as it is shown, or None if it is not finite."""
    return round(float(value), _DIGITS) if math.isfinite(value) else None


def bound(value: float) -> float | None:
    """Return an upper bound, such as an epsilon, as it is shown: rounded up; as `number` else."""
    return rounded_up(value, _DIGITS) if math.isfinite(value) else None


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return numbers as they are shown."""
    return [number(each) for each in values]


class RobotState:
    """
    What is shown of one robot.

    Methods `receive_*` take the fields of the message of that name.

    :param clock: tells seconds that only grow.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, float] = {}
        self.shown: dict[str, Any] = dict.fromkeys(_ROBOT)
        self.shown |= {'locked': '', 'vetoed': [], 'policies': [], 'driver': None}
        self.shown |= {'picture': False, 'overlay': False}
        self._timeline: deque[list[Any]] = deque(maxlen=TIMELINE)

    @property
    def operating(self) -> bool:
        """Whether an operation goes on."""
        return self._younger('operation', FRESH)

    def _younger(self, source: str, seconds: float) -> bool:
        heard = self._heard.get(source)
        return heard is not None and self._clock() - heard <= seconds

    def _age(self, source: str) -> float | None:
        heard = self._heard.get(source)
        return None if heard is None else round(max(0.0, self._clock() - heard), 3)

    def _note(self, *sources: str) -> None:
        """Note that something was heard now."""
        self._heard |= dict.fromkeys(sources, self._clock())

    def receive_operation(
        self,
        stamp: float,
        procedure: str,
        patient: str,
        layout: str,
        values: Sequence[float],
    ) -> None:
        """
        Take a state of the operation.

        :param stamp: of the message, second.
        :param values: in the order and units of :data:`OPERATION_FIELDS`; of another layout only
            who and when is shown.
        """
        shown = self.shown
        self._note('operation', 'arm')
        shown |= {'stamp': stamp, 'procedure': procedure, 'patient': patient}
        if layout != OPERATION_LAYOUT or len(values) != OPERATION_SIZE:
            return

        def field(name: str) -> float | None:
            return number(values[INDEX[name]])

        shown['force'], shown['force_limit'] = field('force'), field('force_limit')
        shown['progress'], shown['time_left'] = field('done'), field('time_left')
        shown['jaw'], shown['surface'] = field('jaw'), field('surface')
        error = [field(f'goal_error_{axis}') for axis in 'xyz']
        setpoint = shown['setpoint']
        if setpoint is not None and None not in (*setpoint, *error):
            pairs = zip(setpoint, error, strict=True)
            shown['waypoint'] = numbers(at - off for at, off in pairs)

    def receive_patient(self, layout: str, values: Sequence[float]) -> None:
        """Take vital signs, in the order and units of :data:`PATIENT_FIELDS`."""
        if layout == PATIENT_LAYOUT and len(values) == len(PATIENT_FIELDS):
            names = (each.name for each in PATIENT_FIELDS)
            self.shown['vitals'] = dict(zip(names, numbers(values), strict=True))

    def receive_arm(
        self,
        joints: Mapping[str, float] | None = None,
        tip: Sequence[float] | None = None,
        setpoint: Sequence[float] | None = None,
        force: Sequence[float] | None = None,
    ) -> None:
        """
        Take what the arm measured last; what is None stays as it was.

        :param joints: angle of each joint, rad; of the insertion m.
        :param tip: measured, m in base_link; `setpoint` likewise.
        :param force: on the tip, N along the axes of base_link.
        """
        if joints is not None or tip is not None:
            self._note('arm')
        if joints is not None:
            self.shown['joints'] = {name: number(each) for name, each in joints.items()}
        for name, point in (('tip', tip), ('setpoint', setpoint), ('force_vector', force)):
            if point is not None:
                self.shown[name] = numbers(point)

    def receive_action(
        self, stamp: float, policy: str, reason: str, veto: str, action: int, **values: float
    ) -> None:
        """Take what the selector chose, and note it on the timeline where it changed."""
        self._note('choice', 'selector')
        choice = {'policy': policy, 'action': action, 'reason': reason, 'veto': veto}
        self.shown['choice'] = choice | {name: number(values[name]) for name in _CHOICE_NUMBERS}
        if not self._timeline or self._timeline[-1][1:] != [policy, reason, veto]:
            self._timeline.append([stamp, policy, reason, veto])

    def receive_risk(self, **values: float) -> None:
        """Take the risk of the newest step."""
        self._note('risk', 'selector')
        self.shown['risk'] = {name: number(values[name]) for name in _RISK}

    def receive_policies(
        self,
        driver: str,
        locked: str,
        vetoed: Sequence[str],
        policies: Iterable[Mapping[str, Any]],
    ) -> list[str]:
        """
        Take the policies and what the surgeon said of them.

        :returns: what changed of who drives, locks and vetoes, in words.
        """
        self._note('selector')
        shown, said = self.shown, []
        if shown['driver'] not in (None, driver):
            said.append(f'the {driver} drives')
        if driver == 'selector':
            shown['taken_by'] = None
        if shown['locked'] != locked:
            said.append(f'{locked} alone may act' if locked else 'all policies may act')
        if gone := sorted(set(vetoed) - set(shown['vetoed'])):
            said.append(f'vetoed: {", ".join(gone)}')
        if back := sorted(set(shown['vetoed']) - set(vetoed)):
            said.append(f'allowed: {", ".join(back)}')
        shown |= {'driver': driver, 'locked': locked, 'vetoed': sorted(vetoed)}
        shown['policies'] = [
            {name: each[name] for name in _POLICY_WORDS}
            | {name: number(each[name]) for name in _POLICY_NUMBERS}
            for each, _ in zip(policies, range(MOST_POLICIES), strict=False)
        ]
        return said

    def receive_visibility(self, seen: bool, reason: str, share: Sequence[float]) -> None:
        """Take what the segmenter sees."""
        self._note('visibility')
        self.shown['visibility'] = {'seen': seen, 'reason': reason, 'share': numbers(share)}

    def receive_outcome(self, event: OperationEnded) -> None:
        """Take how an operation ended."""
        self.shown['outcome'] = {
            'procedure': event.procedure,
            'patient': event.patient,
            'success': event.success,
            'failure': event.failure,
            'peak_force': number(event.peak_force),
        }

    def receive_arm_state(self, state: str, homed: bool) -> None:
        """Take the operating state that the arm told."""
        self._note('arm')
        self.shown |= {'arm_state': state, 'homed': homed}

    def receive_selector_health(self, values: Mapping[str, str]) -> None:
        """Take what the selector's diagnostics say."""
        self._note('selector')
        if 'armed' in values:
            self.shown['armed'] = values['armed'].lower() == 'true'

    def snapshot(self) -> dict[str, Any]:
        """Return all that is shown; what is too old to be believed is None."""
        old = [name for name, last in _LASTING.items() if not self._younger(name, last)]
        return {
            **self.shown,
            **dict.fromkeys(old),
            'age': self._age('arm'),
            'operating': self.operating,
            'selector_silent': self._age('selector'),
            'timeline': list(self._timeline),
        }


class FederationState:
    """
    What is shown of a federation.

    :param hospitals: names in the roster; nothing is kept of others.
    :param rounds: planned; None if there is no plan.
    :param home: whether hospitals make home policies after the rounds, which forecasts count.
    :param roster_digest: of that roster; empty if the aggregator's has the same hospitals.
    """

    def __init__(
        self,
        hospitals: Sequence[str],
        namespace: str = '',
        rounds: int | None = None,
        *,
        home: bool = False,
        roster_digest: bytes = b'',
    ) -> None:
        self._roster_digest = roster_digest
        self._servers = absolute(namespace, FEDERATION)
        self._namespace, self._rounds, self._home = namespace, rounds, home
        self._status: RoundStatus | None = None
        self._deadline: float | None = None
        self._last_sign: float | None = None
        self._missing: dict[str, str] = {}
        self._missing_told = -math.inf
        self._heard: dict[str, float] = {}
        self._hospitals: dict[str, dict[str, Any]] = {
            name: dict.fromkeys(
                (
                    *('stage', 'step', 'steps', 'round', 'epsilon', 'budget', 'delta', 'unit'),
                    *('secure', 'pays_for'),
                )
            )
            for name in hospitals
        }
        self._refusals: deque[list[Any]] = deque(maxlen=EVENTS)
        self._blames: deque[list[Any]] = deque(maxlen=EVENTS)
        self._roll_backs: deque[list[Any]] = deque(maxlen=EVENTS)
        self._rolled_back: deque[int] = deque(maxlen=EVENTS)
        self._success: deque[dict[str, Any]] = deque(maxlen=ROUNDS)

    def receive(self, event: Event, now: float, stamp: float) -> str:
        """
        Take what an observer heard.

        :param now: when, in seconds that only grow.
        :param stamp: the same since 1970 (UTC), second, which is shown.
        :returns: what a person should be told of it, in words; mostly empty.
        """
        match event:
            case ReceivedMessage(RoundStatus() as status):
                return self._receive_status(status, now)
            case ReceivedMessage(Blame() as blame):
                known = {int(each): each.name.lower() for each in Fault}
                fault = known.get(blame.fault, str(blame.fault))
                if [blame.guilty, fault] not in [each[1:] for each in self._blames]:
                    self._blames.append([stamp, blame.guilty, fault])
                    return f'{blame.guilty} was blamed: {fault}'
            case ReceivedMessage(GlobalPolicy() as policy):
                return self._receive_policy(policy, stamp)
            case RejectedMessage():
                self._refusals.append([stamp, event.why])
                return f'refused: {event.why}'
            case HospitalProgress() if event.hospital in self._hospitals:
                self._heard[event.hospital] = now
                names = ('stage', 'step', 'steps', 'round')
                own = self._hospitals[event.hospital]
                own |= {name: getattr(event, name) for name in names}
                if own['budget'] is None or math.isfinite(event.epsilon):
                    own['epsilon'] = bound(event.epsilon)
            case PrivacySpent() if event.hospital in self._hospitals:
                self._hospitals[event.hospital] |= {
                    'epsilon': bound(event.epsilon),
                    'budget': number(event.budget),
                    'delta': event.delta if math.isfinite(event.delta) else None,
                    'unit': event.unit,
                    'secure': event.secure,
                }
            case NodeHealth():
                self._receive_health(event, now)
        return ''

    def set_forecast(self, hospital: str, rounds: int | None) -> None:
        """Say how many more rounds a hospital's budget pays for; None where nobody knows."""
        self._hospitals[hospital]['pays_for'] = rounds

    def snapshot(self, now: float) -> dict[str, Any]:
        """
        Return all that is shown.

        :param now: in seconds that only grow.
        """
        status, left, sign = self._status, None, self._last_sign
        if self._deadline is not None:
            left = round(max(0.0, self._deadline - now), 1)
        alive = {name for name, heard in self._heard.items() if now - heard < SILENT}
        return {
            'namespace': self._namespace,
            'age': None if sign is None else round(max(0.0, now - sign), 3),
            'round': status.envelope.round if status else None,
            'rounds': self._rounds,
            'home': self._home,
            'attempt': status.envelope.attempt if status else None,
            'phase': Phase(status.phase).name if status else None,
            'reason': status.reason if status else '',
            'time_left': left,
            'members': self._named(status.members or status.keyed) if status else [],
            'survivors': self._named(status.survivors) if status else [],
            'missing': self._missing_now(now),
            'refusals': list(self._refusals),
            'blames': list(self._blames),
            'roll_backs': list(self._roll_backs),
            'hospitals': {
                name: {**each, 'alive': name in alive} for name, each in self._hospitals.items()
            },
            'success': list(self._success),
        }

    def _named(self, marks: bytes) -> list[str]:
        """Return the hospitals of a list of the status; none if it is by another roster."""
        assert self._status is not None
        same = self._roster_digest in (b'', self._status.roster_digest)
        return [*named(marks, sorted(self._hospitals))] if same else []

    def _missing_now(self, now: float) -> dict[str, str]:
        """Return why hospitals are missing; causes that are over, or may be, are left out."""
        over = self._status is not None and self._status.phase == Phase.FINISHED
        return {} if over or now - self._missing_told >= SILENT else dict(self._missing)

    def _receive_status(self, status: RoundStatus, now: float) -> str:
        self._last_sign = now
        before, self._status = self._status, status
        self._deadline = now + status.time_left if status.time_left > 0.0 else None
        if before and (before.envelope.round, before.phase) == (
            status.envelope.round,
            status.phase,
        ):
            return ''
        words = f'round {status.envelope.round}: {Phase(status.phase).name}'
        return f'{words}: {status.reason}' if status.reason else words

    def _receive_policy(self, policy: GlobalPolicy, stamp: float) -> str:
        round = policy.envelope.round
        if not policy.rolled_back or round in self._rolled_back:
            return ''
        self._rolled_back.append(round)
        words = f'round {round} was rolled back: {policy.reason}'
        self._roll_backs.append([stamp, words])
        return words

    def _receive_health(self, event: NodeHealth, now: float) -> None:
        place, _, executable = event.node.rpartition('/')
        name = place.rpartition('/')[2]
        if executable == 'trainer' and name in self._hospitals:
            self._heard[name] = now
        elif event.node == f'{self._servers}/aggregator':
            self._last_sign = self._missing_told = now
            self._missing = {
                key.removeprefix(_LEFT_OUT): why
                for key, why in event.values.items()
                if key.startswith(_LEFT_OUT)
            }
        elif event.node == f'{self._servers}/key_authority':
            self._receive_success(event.values)

    def _receive_success(self, values: Mapping[str, str]) -> None:
        """Take what the newest released policy did on public patients, if it is told."""
        try:
            round = int(values['tested round'])
            shares = {
                key.removeprefix(_SUCCESS): number(float(each))
                for key, each in values.items()
                if key.startswith(_SUCCESS)
            }
            mean = number(float(values['success']))
        except (KeyError, ValueError):
            return
        found = {'round': round, 'policy': 'global', 'success': mean, 'procedures': shares}
        if not self._success or self._success[-1]['round'] < round:
            self._success.append(found)
        elif self._success[-1]['round'] == round:
            self._success[-1] = found


class PageState:
    """
    All that the page shows.

    :param robots: names of the robots.
    :param federation: None if none is looked at.
    :param clock: tells seconds since 1970 (UTC), which are shown; passed in, so that tests can
        let a day pass.
    :param steady: tells seconds that only grow, from which ages follow.
    :param ended: tells whether the command has ended whose run is looked at.
    """

    def __init__(
        self,
        robots: Sequence[str],
        federation: FederationState | None,
        clock: Clock = time.time,
        steady: Clock = time.monotonic,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock, self._steady, self._ended = clock, steady, ended
        self._robots = {name: RobotState(steady) for name in robots}
        self._federation = federation
        self._health: dict[str, tuple[float, dict[str, Any]]] = {}
        self._events: deque[list[Any]] = deque(maxlen=EVENTS)
        self._lock = threading.Lock()
        self._number = self._urgent = self._told = 0
        self.changed: Callable[[], None] = lambda: None
        """Called, on whatever thread, when a snapshot is worth sending at once."""

    @property
    def robots(self) -> tuple[str, ...]:
        """Names of the robots."""
        return tuple(self._robots)

    @property
    def urgent(self) -> int:
        """Number of the newest snapshot that was worth sending at once."""
        return self._urgent

    @property
    def told(self) -> int:
        """How often the federation did what a person should be told of."""
        return self._told

    def _change(self, *, urgent: bool) -> None:
        """Count a change; while the lock is held."""
        self._number += 1
        if urgent:
            self._urgent = self._number

    def operates(self, name: str) -> bool:
        """Return whether a robot operates now."""
        with self._lock:
            return self._robots[name].operating

    @contextmanager
    def robot(self, name: str, *, urgent: bool = False) -> Iterator[RobotState]:
        """
        Change what is shown of a robot.

        :param urgent: whether a snapshot should be sent at once.
        """
        with self._lock:
            self._change(urgent=urgent)
            yield self._robots[name]
        if urgent:
            self.changed()

    def receive(self, event: Event) -> None:
        """Take what an observer heard."""
        now, stamp = self._steady(), self._clock()
        with self._lock:
            words = self._federation.receive(event, now, stamp) if self._federation else ''
            self._change(urgent=bool(words))
            if words:
                self._told += 1
                self._events.append([stamp, words])
            if isinstance(event, NodeHealth):
                self._receive_health(event, now)
        if words:
            self.changed()

    def set_forecast(self, hospital: str, rounds: int | None) -> None:
        """Say how many more rounds a hospital's budget pays for."""
        with self._lock:
            if self._federation:
                self._change(urgent=False)
                self._federation.set_forecast(hospital, rounds)

    def note(self, words: str) -> None:
        """Add an event that everybody sees."""
        with self._lock:
            self._change(urgent=True)
            self._events.append([self._clock(), words])
        self.changed()

    def rooms(self) -> dict[str, Any]:
        """Return what is shown of the robots now, and the newest events."""
        with self._lock:
            return {
                'n': self._number,
                'time': self._clock(),
                'robots': {name: each.snapshot() for name, each in self._robots.items()},
                'events': list(self._events),
            }

    def rest(self) -> dict[str, Any]:
        """Return what is shown of the federation, the health of nodes and the run's end now."""
        ended = self._ended()
        with self._lock:
            now = self._steady()
            return {
                'federation': self._federation.snapshot(now) if self._federation else None,
                'health': [_health(now - heard, told) for heard, told in self._health.values()],
                'ended': ended,
            }

    def snapshot(self) -> dict[str, Any]:
        """Return all that is shown now."""
        return self.rooms() | self.rest()

    def _receive_health(self, event: NodeHealth, now: float) -> None:
        self._health.pop(event.node, None)
        told = {'node': event.node, 'level': event.level, 'summary': event.summary}
        self._health[event.node] = now, told
        if len(self._health) > MOST_NODES:
            del self._health[next(iter(self._health))]
        place, _, executable = event.node.rpartition('/')
        robot = self._robots.get(place.rpartition('/')[2])
        if robot is not None and executable == 'selector':
            robot.receive_selector_health(event.values)


def _health(silent: float, told: dict[str, Any]) -> dict[str, Any]:
    """Return the health of a node of which nothing was heard for so many seconds."""
    if silent < SILENT:
        return told
    return told | {'level': SILENT_LEVEL, 'summary': f'nothing heard for {silent:.0f} s'}


def as_json(snapshot: Mapping[str, Any]) -> str:
    """
    Return a snapshot as JSON.

    :raises ValueError: if it holds a number that is not finite.
    """
    return json.dumps(snapshot, separators=(',', ':'), allow_nan=False)
