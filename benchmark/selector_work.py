# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What benchmark/selector.py feeds the selector: real operations, policies, and their values.

The states are those of public patients whom the expert operates on, at the rate of the robot:
between two ticks what is measured moves on linearly. The policies have the shape of the shipped
ones and random weights; each has a value model fitted to returns that are made up. Neither the
numbers in a network nor those in a value model change how long they take.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import gc
from itertools import cycle
import time

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.policy import Policy
from fdrl_ros.policy.onnx_model import export, OnnxPolicy, quantise
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
    OPERATION_FIELDS,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    SCALES,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
from turns import has

SEED = 1
CASES = 24
WORLD = WorldSettings(mode='kinematic')
COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""How many policies there are to choose from; hold comes besides."""

NEVER_HOLD = SelectorSettings(hold_return=-1000.0)
"""So that a policy acts in every state, and none is spared."""

_MOVING = np.array([each.unit != '1' for each in OPERATION_FIELDS + PATIENT_FIELDS])
_NAMES = tuple(tuple(x.name for x in part) for part in (OPERATION_FIELDS, PATIENT_FIELDS))


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
    shape = Plan().shape
    states = np.concatenate([each.states[:-1] for each in played])
    cases = np.repeat(np.arange(len(played)), [each.length for each in played])
    made = []
    for number in range(count):
        policy = Policy(shape.draw(rng), shape)
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
        self._scales = np.split(SCALES, [OPERATION_SIZE])

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
            Observation(beat.patient, names, values, scales, now, procedure)
            for names, values, scales, procedure in zip(
                _NAMES, halves, self._scales, (beat.procedure, ''), strict=True
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
    assert isinstance(policy, Policy)
    made: dict[str, Choice] = {'network': policy}
    if has('onnxruntime') and has('onnx'):
        model = export(policy)
        made |= {'onnx': OnnxPolicy(model), 'int8': OnnxPolicy(quantise(model, states))}
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
