# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What benchmark/selector.py feeds the selector: real operations, policies, and their values.

The states are those of public patients whom the expert operates on, at the rate of the robot:
between two ticks what is measured moves on linearly. The policies have the shape of the shipped
ones and random weights; each has a value model fitted to returns that are made up. Neither the
numbers in a network nor those in a value model change how long they take.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
import gc
from itertools import cycle, pairwise
import time
from typing import Any

from benchmarking import has
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.policy import DuelingPolicy
from fdrl_ros.policy.onnx_model import export, OnnxModel, quantise
from fdrl_ros.selector import (
    Candidate,
    Experience,
    fit_value,
    Limiter,
    Observation,
    Selector,
    SelectorSettings,
    ValueModel,
)
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Choice, Episode, run_episode
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
    SCALES,
    STATE_FIELDS,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np

SEED = 1
CASES = 24
WORLD = WorldSettings(mode='kinematic')
COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""How many policies there are to choose from; hold comes besides."""

NEVER_HOLD = SelectorSettings(hold_return=-1000.0)
"""So that a policy acts in every state, and none is spared."""

_MOVING = np.array([each.unit != '1' for each in STATE_FIELDS])
_LAYOUTS = (OPERATION_LAYOUT, PATIENT_LAYOUT)


@dataclass(frozen=True)
class Beat:
    """
    What the robot says at one beat.

    :param values: in units, shape (STATE_SIZE,).
    :param tip: metre, shape (3,).
    """

    patient: str
    procedure: str
    values: np.ndarray
    tip: np.ndarray


def episodes(count: int = CASES) -> list[Episode]:
    """Operate on public patients, as the expert does."""
    cohort = Cohort(0, 1, 0.0, SEED)
    env = SurgeryEnv(settings=WORLD)
    try:
        patients = [cohort.patient(each) for each in range(count)]
        return [run_episode(env, lambda s, p=p: expert(s, p, WORLD)[0], p) for p in patients]
    finally:
        env.close()


def beats(played: list[Episode], rate: float) -> Iterator[Beat]:
    """
    Tell operations without end at a rate, each time of new patients.

    :param rate: a multiple of 20, hertz.
    """
    parts = round(rate * TICK)
    shares = [part / parts for part in range(parts)]
    for number, episode in enumerate(cycle(played)):
        patient, procedure = f'{episode.patient.name}_{number}', episode.patient.procedure.name
        values = episode.states.astype(np.float64) * SCALES
        for tick in range(episode.length):
            for share in shares:
                near = values[tick] + share * _MOVING * (values[tick + 1] - values[tick])
                tip = (1.0 - share) * episode.tips[tick] + share * episode.tips[tick + 1]
                yield Beat(patient, procedure, near, tip)


def candidates(played: list[Episode], count: int) -> list[Candidate]:
    """Make up policies, and value them by made-up rewards."""
    rng = np.random.default_rng(SEED)
    shape = Plan().network
    states = np.concatenate([each.states[:-1] for each in played])
    cases = np.repeat(np.arange(len(played)), [each.length for each in played])
    made = []
    for number in range(count):
        policy = shape.policy(shape.draw(rng))
        rewards = states @ rng.normal(size=states.shape[1]) + rng.normal(size=len(states))
        known = Experience(states, 0.03 * rewards, 0.1 + 0.0 * rewards, cases)
        value = dict.fromkeys(Plan().federation.names, fit_value(known))
        model = ValueModel(policy.digest.hex(), value)
        made.append(Candidate(f'policy_{number}', policy, model, policy.digest))
    return made


class Decisions:
    """A control loop that is told of one operation after the other, in time of its own."""

    def __init__(self, played: list[Episode], chosen: list[Candidate]) -> None:
        self._loop = ControlLoop(Selector(NEVER_HOLD), Limiter())
        self._loop.selector.set_candidates(chosen)
        self._beats = beats(played, 1.0 / TICK)
        self._now = 0.0

    def take(self, count: int) -> np.ndarray:
        """
        Make decisions: both halves of a state in; action, risk and set-point out.

        :returns: time of each, second, shape (count,).
        """
        taken = np.empty(count)
        gc.disable()  # as the node does it
        try:
            for index, beat in zip(range(count), self._beats, strict=False):
                taken[index] = self._decide(beat)
        finally:
            gc.enable()
        return taken

    def _decide(self, beat: Beat) -> float:
        self._now += TICK
        now, halves = self._now, np.split(beat.values, [OPERATION_SIZE])
        operation, patient = (
            Observation(beat.patient, layout, values, now, procedure)
            for layout, values, procedure in zip(
                _LAYOUTS, halves, (beat.procedure, ''), strict=True
            )
        )
        self._loop.receive_tip(beat.tip, now)
        begun = time.perf_counter()
        self._loop.receive_patient(patient, now)
        cycle = self._loop.receive_operation(operation, now, now)
        selection = cycle and cycle.selection
        taken = time.perf_counter() - begun
        adaptation = self._loop.selector.adaptation()
        if selection is None or selection.risk is None or adaptation is None:
            raise SystemExit(f'no decision: {selection}')
        if selection.holds:
            raise SystemExit(f'the selector holds: {selection.reason}')
        return taken


def networks(played: list[Episode], candidate: Candidate) -> dict[str, Choice]:
    """
    Return one network in every form: in numpy, and if there is onnxruntime, by that.

    :returns: what takes a scaled state and returns the number of an action, by name.
    """
    policy, states = candidate.policy, np.concatenate([each.states for each in played])
    assert isinstance(policy, DuelingPolicy)
    made: dict[str, Choice] = {'network': policy}
    if has('onnxruntime') and has('onnx'):
        model = export(policy)
        made |= {'onnx': OnnxModel(model), 'int8': OnnxModel(quantise(model, states))}
    return made


def network_times(played: list[Episode], network: Choice, count: int) -> np.ndarray:
    """
    Time a network alone: a scaled state in, the number of an action out.

    :returns: second, shape (count,).
    """
    states = np.concatenate([each.states for each in played])
    taken = np.empty(count)
    for index in range(count):
        state = states[index % len(states)]
        begun = time.perf_counter()
        network(state)
        taken[index] = time.perf_counter() - begun
    return taken


def line(times: Sequence[float]) -> tuple[float, float]:
    """
    Put a line through the times of all numbers of policies.

    :returns: its slope, for each policy, and R2.
    """
    slope, start = np.polyfit(COUNTS, times, 1)
    residual = np.var(times - (slope * np.array(COUNTS) + start)) / np.var(times)
    return float(slope), float(1.0 - residual)


def loop_time() -> float:
    """Time 100,000 additions in a loop, second: how fast the machine is at the moment."""
    begun, total = time.perf_counter(), 0
    for each in range(100_000):
        total += each
    return time.perf_counter() - begun


NUMBERS = 4096
LARGEST_FORCE = 1.0 / 16.0
"""Of what is told by force, as a fraction of the limit."""


def with_number(values: np.ndarray, number: int) -> np.ndarray:
    """
    Return a state whose force tells a number, modulo :data:`NUMBERS`.

    The selector says F_t = force / limit of each state that it decides on.
    """
    changed = values.copy()
    share = LARGEST_FORCE * (number % NUMBERS) / NUMBERS
    changed[INDEX['force']] = share * changed[INDEX['force_limit']]
    return changed


def number_of(force_term: float) -> int:
    """Return the number that :func:`with_number` put into a state, modulo :data:`NUMBERS`."""
    return round(force_term / LARGEST_FORCE * NUMBERS) % NUMBERS


NEVER = 1.0
"""What a missing answer counts as, second."""


def stamp_of(message: Any) -> int:
    """Return a header's stamp, nanosecond."""
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


@dataclass
class Answers:
    """
    What was said and heard in one measurement; times are nanoseconds of the system clock.

    :param sent: when each state was published.
    :param stamps: which state has which stamp.
    :param begin: number of the first state that counts.
    :param actions: when each was received, and its stamp.
    :param risks: stamp of each, and its F_t.
    :param set_points_heard: when each was received, and its stamp.
    """

    sent: list[int] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)
    begin: int = 0
    actions: list[tuple[int, int]] = field(default_factory=list)
    risks: list[tuple[int, float]] = field(default_factory=list)
    set_points_heard: list[tuple[int, int]] = field(default_factory=list)

    def echoes(self) -> np.ndarray:
        """
        Return how long the echo node took for each state.

        :returns: second.
        """
        taken = np.full(len(self.sent), NEVER)
        for came, stamp in self.actions:
            number = self.stamps[stamp]
            taken[number] = 1e-9 * (came - self.sent[number])
        return taken[self.begin :]

    def decisions(self) -> np.ndarray:
        """
        Return how long the selector took from a state to the action for it.

        An action without a state, and a tick without an action, count as never.

        :returns: second.
        """
        return np.concatenate([list(self._decided().values()), self._missing()])

    def set_points(self) -> np.ndarray:
        """
        Return how long the selector took from each state to its set-point.

        :returns: second.
        """
        return np.array(list(self._moved().values()))

    def whole(self) -> np.ndarray:
        """
        Return how long each state took to be answered in full: set-point, and action if due.

        :returns: second.
        """
        decided = self._decided()
        both = [max(taken, decided.get(state, 0.0)) for state, taken in self._moved().items()]
        return np.concatenate([both, self._missing()])

    def _anchors(self) -> list[tuple[int, int]]:
        """Return places in the actions, and the numbers of the states that they are of."""
        stamps = [stamp for _, stamp in self.actions]
        found: list[tuple[int, int]] = []
        for stamp, force in self.risks:
            place = bisect_right(stamps, stamp) - 1
            newest = bisect_right(self.sent, self.actions[place][0]) - 1
            number = newest - (newest - number_of(force)) % NUMBERS
            if place >= 0 and number > (found[-1][1] if found else -1):
                found.append((place, number))
        if not found or found[0][1] > self.begin:
            raise SystemExit(f'{len(found)} decisions were heard, none before measuring')
        return found

    def _decided(self) -> dict[int, float]:
        """Return which states had a decision, and how long it took, second."""
        return {
            number: 1e-9 * (self.actions[place][0] - self.sent[number])
            for place, number in self._anchors()
            if number >= self.begin
        }

    def _missing(self) -> np.ndarray:
        """Return NEVER for each action without a state, and each tick without an action."""
        anchors = self._anchors()
        times = np.array([self.sent[number] for _, number in anchors] + self.sent[-1:])
        spans = 1e-9 * np.diff(times[times >= self.sent[self.begin]])
        ticks = np.maximum(np.rint(spans / TICK) - 1, 0).sum()
        strange = sum(self.sent[self.begin] <= came <= self.sent[-1] for came, _ in self.actions)
        known = sum(number >= self.begin for _, number in anchors)
        return np.full(int(ticks) + max(strange - known, 0), NEVER)

    def _moved(self) -> dict[int, float]:
        """
        Return how long the set-point of each state took, second.

        Every state has one, in their order; a decision tells which state the last one before it
        was of: it has the stamp of its state, and the set-point is stamped after it. Where some
        are missing in between, those that came count for the oldest states.
        """
        taken = {}
        stamps = [stamp for _, stamp in self.set_points_heard]
        anchors = [
            (bisect_left(stamps, self.actions[place][1]), number)
            for place, number in self._anchors()
        ]
        for (place, number), (end, last) in pairwise(anchors):
            for offset in range(1, last - number + 1):
                state = number + offset
                came = self.set_points_heard[place + offset][0] if place + offset <= end else None
                taken[state] = NEVER if came is None else 1e-9 * (came - self.sent[state])
        return {state: each for state, each in taken.items() if state >= self.begin}
