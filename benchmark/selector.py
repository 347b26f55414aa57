# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast the selector decides, in process and from topic to topic, beside a bare echo node.

    tools/in_workspace python benchmark/selector.py --json selector.json
    tools/in_workspace python benchmark/selector.py --minutes 10 --json selector.json
    tools/in_workspace python benchmark/selector.py --robots 2 --minutes 10 --json selector.json
    tools/in_workspace python benchmark/selector.py --alone

In process a decision is: both halves of a state in; action, risk and the arm's set-point out.
Adaptation is worked out behind it, as in the node, and not counted. `decision_*_us` is of 8
policies and hold; the other numbers of policies show how it grows. The peer is one of the networks
alone. `plain_loop_ms` are 100,000 additions in Python, which tell how fast the machine was. The
line through the numbers of policies goes through the least median of each;
`decision_linearity_turn_r2` is of the medians of one repeat, in which each number of policies has
its short turn after the other.

From topic to topic there are three processes: this one is the room (selector_room.py), the others
are the selector's node, as `fdrl` starts it and with 8 policies that came to it as policies do,
and a bare rclpy node that answers each state with an action (selector_echo.py). They have their
turns one after the other, each idle and beside a process that only counts. With `--robots` so many
selectors answer at the same time, each to its own robot's states, and so many echo nodes in the
other turns; times and fractions are of all of them together, `cpu_share` is of one.

The selector decides at 20 Hz whatever the rate of states, and moves the arm at each state. So two
times are told. `topic_*_us` goes from a state's publishing to the arrival of the *action* that was
decided on in that state: of 200 states a second about 22 have one. `setpoint_*_us` goes to the
arrival of the set-point that each state brings. The echo node answers each state with an action.
An answer has arrived when the middleware of the room's process received it, by that middleware's
timestamp: the room's own handling of answers is in none of these times.

`missed_deadline_fraction` is of states at 100 Hz for `--minutes`: whose set-point, or whose action
if one was due, arrived later than 10 ms after the state, or never.
`missed_decision_fraction` is of decisions alone. `missed_deadline_worst_turn_fraction` is of
the turn with the most. `--minutes` is per node and load, in turns of
`--seconds`; `--busy-minutes` is another number of them beside the busy core.

With `--segmenter FILE` the nodes also have turns (`_segmenter`) beside the segmenter's node, which
labels 10 pictures a second of 128 x 128 and is idle in the other turns. `seen_rate` counts what it
tells, `visibility_latency_p50_ms` is the age of a picture by then.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, ExitStack
from dataclasses import dataclass
import math
import os
from pathlib import Path
import struct
import sys
import tempfile
import time

from benchmarking import (
    as_process,
    check,
    circumstances,
    Measurement,
    options,
    progress,
    Row,
    Table,
    write,
)
from fdrl_ros.deployment.bringup import BringupSettings, free_domains, middleware
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.environment_variables import with_variables
import numpy as np
from selector_robot import busy, ECHO, echoes, ROBOT, segmenter, selectors
from selector_room import Bedside, Camera, ClockSetError, operate, processor_time, Room
from selector_work import (
    Answers,
    beats,
    candidates,
    COUNTS,
    Decisions,
    episodes,
    line,
    loop_time,
    network_times,
    networks,
    SEED,
)

POLICIES = 8
FAST, SLOW = 200.0, 100.0
"""Rates of states, hertz: for how long answers take, and for deadlines."""

PERIOD = 0.01
"""Deadline: of a state at 100 Hz, second."""

BATCH = 2000
"""Decisions of each number of policies in a repeat."""

TURNS = 20
"""In which they are made."""

ATTEMPTS = 3
"""At a turn on topics, if the system clock is set in it."""

ALONE = 'one network alone'
RATE = 10.0
"""Pictures a second."""

BARE = 'bare rclpy echo node'
AWAKE = Path('/dev/cpu_dma_latency')
"""Tells how long processors may take to wake, us."""

SEGMENTER = '_segmenter'
LOADS = ('', '_busy')
"""What works beside the nodes: nothing, or a process that only counts; as names tell of it."""


def loads(given: argparse.Namespace) -> tuple[str, ...]:
    """Return what works beside the nodes in this run, a segmenter too if it is given."""
    return (*LOADS, SEGMENTER) if given.segmenter else LOADS


def topic_rows(loads: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of what goes over topics."""
    for load in loads:
        goal = {'': 1000.0, '_busy': 2000.0}.get(load)
        for name in ('topic', 'setpoint'):
            for part in PARTS:
                own, peer = f'{name}{load}_{part}_us', f'echo{load}_{part}_us'
                wanted = goal if (name, part) == ('topic', 'p99') else None
                yield Row(own, own, peer, BARE, wanted, False)
        own, peer = f'topic{load}_p99_us', f'echo{load}_p99_us'
        name = f'topic{load}_p99_over_echo'
        worst = None if load == SEGMENTER else 2.5
        yield Row(name, own, peer, f'{BARE}, us', worst, False, 'own/peer')
    for load in loads:
        name, goal = f'cpu{load}_share', None if load else 0.15
        yield Row(name, name, f'echo_{name}', BARE, goal, False)
    if SEGMENTER in loads:
        for name, wanted in (('seen_rate', 0.95 * RATE), ('visibility_latency_p50_ms', None)):
            yield Row(name, name, None, '', wanted)


PARTS = {'p50': 50.0, 'p99': 99.0, 'p999': 99.9}
IN_PROCESS = (
    *(
        Row(
            f'decision_{part}_us',
            f'decision_{POLICIES}_{part}_us',
            f'network_{part}_us',
            ALONE,
            goal,
            False,
        )
        for part, goal in (('p50', None), ('p99', 200.0), ('p999', None))
    ),
    *(
        Row(name, name, None, '', None, False)
        for name in (f'decision_{count}_p50_us' for count in COUNTS)
    ),
    Row('decision_per_policy_us', 'decision_per_policy_us', None, '', None, False),
    Row('network_p50_us', 'network_p50_us', 'onnx_p50_us', 'onnxruntime', None, False),
    Row('network_int8_p50_us', 'int8_p50_us', 'network_p50_us', 'numpy', None, False),
    Row('plain_loop_ms', 'loop_ms', None, '', None, False),
    Row('decision_linearity_r2', 'decision_linearity_r2', None, '', 0.95),
    Row('decision_linearity_turn_r2', 'decision_linearity_turn_r2', None, '', None),
)


def missed_rows(loads: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of fractions of all turns together."""
    for what in ('deadline', 'decision'):
        for load in loads:
            goal = {'': 1e-4, '_busy': 1e-3}.get(load)
            name = f'missed_{what}{load}_fraction'
            yield Row(name, f'{what}{load}', f'echo{load}', BARE, goal, False)


def worst_rows(loads: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of the largest fraction of a turn."""
    for load in loads:
        name = f'missed_deadline{load}_worst_turn_fraction'
        yield Row(name, f'deadline{load}', f'echo{load}', BARE, None, False)


class Figures(dict[str, Measurement]):
    """What was measured, by name; each turn adds a sample."""

    def put(self, name: str, value: float, unit: str) -> None:
        """Add a sample."""
        self.setdefault(name, Measurement(lambda: lambda: 0.0, unit)).samples.append(value)

    def leave_out(self, name: str, reason: str) -> None:
        """Say why something is not measured."""
        self[name] = Measurement(lambda: lambda: 0.0, 'us', reason=reason)

    def put_times(self, name: str, taken: np.ndarray) -> None:
        """
        Add percentiles of times.

        :param name: which `_p99_us` and others are appended to.
        :param taken: second.
        """
        for part, percent in PARTS.items():
            value = float(np.percentile(taken, percent, method='higher'))
            self.put(f'{name}_{part}_us', 1e6 * value, 'us')


@dataclass
class Lateness:
    """How many of how many came later than one period, or never."""

    late: int = 0
    count: int = 0
    worst: float = 0.0

    def add(self, taken: np.ndarray) -> None:
        """Count the times of another turn, second."""
        late = int((taken > PERIOD).sum())
        self.late += late
        self.count += len(taken)
        self.worst = max(self.worst, late / len(taken))

    @property
    def fraction(self) -> float:
        """Return the part that was late."""
        return self.late / self.count


def in_process(found: Figures, given: argparse.Namespace) -> None:
    """Measure decisions in process, for several numbers of policies in turns."""
    progress('making policies and their values')
    played = episodes()
    made = candidates(played, max(COUNTS))
    forms = networks(played, made[0])
    for name in ('onnx', 'int8'):
        if name not in forms:
            found.leave_out(f'{name}_p50_us', 'the extra fdrl_ros[onnx] is not installed')
    decisions = {count: Decisions(played, made[:count]) for count in COUNTS}
    for each in decisions.values():
        each.take(BATCH)
    for repeat in range(given.repeats):
        progress(f'repeat {repeat + 1} of {given.repeats}: decisions in process')
        # In short turns, so that a machine that slows down does so to every number of policies.
        taken: dict[int, list[np.ndarray]] = {count: [] for count in COUNTS}
        for _ in range(TURNS):
            for count, each in decisions.items():
                taken[count].append(each.take((5 if count == POLICIES else 1) * BATCH // TURNS))
        medians = []
        for count, parts in taken.items():
            times = np.concatenate(parts)
            found.put_times(f'decision_{count}', times)
            medians.append(1e6 * float(np.median(times)))
        _, fit = line(medians)
        found.put('decision_linearity_turn_r2', fit, '1')
        for name, each in forms.items():
            found.put_times(name, network_times(played, each, BATCH))
        found.put('loop_ms', 1e3 * loop_time(), 'ms')
    # The least of the turns: what a machine that slows down does to one number of policies and not
    # to the next would else hide how time grows.
    least = [min(found[f'decision_{count}_p50_us'].samples) for count in COUNTS]
    slope, fit = line(least)
    found.put('decision_per_policy_us', slope, 'us')
    found.put('decision_linearity_r2', fit, '1')


class Topics:
    """The room, and both kinds of nodes in it."""

    def __init__(
        self,
        room: Room,
        processes: Mapping[str, Mapping[str, int]],
        loads: Sequence[str],
        camera: Camera | None = None,
    ) -> None:
        """
        Wait until all nodes hear the room.

        :param processes: of the nodes of each kind, by namespace.
        :param loads: what works beside them.
        :param camera: whose pictures a segmenter gets, if one is among the loads.
        """
        self._room, self._camera = room, camera
        self._beds = {
            kind: [Bedside(room, name) for name in each] for kind, each in processes.items()
        }
        self._processes = {kind: list(each.values()) for kind, each in processes.items()}
        self._played = episodes()
        self._beats = {rate: beats(self._played, rate) for rate in (FAST, SLOW)}
        beds = [bed for each in self._beds.values() for bed in each]
        if not room.spin(lambda: all(each.is_heard for each in beds), 30.0):
            raise SystemExit('nobody hears the states')
        rows = list(missed_rows(loads))
        self.missed = {name: Lateness() for row in rows for name in (row.own, row.peer or '')}

    @contextmanager
    def _beside(self, found: Figures, load: str) -> Iterator[None]:
        """Have something work beside the nodes."""
        if load != SEGMENTER:
            with busy(1 if load else 0):
                yield
            return
        assert self._camera is not None
        begun = time.monotonic()
        with self._camera.running(RATE) as latencies:
            yield
        found.put('seen_rate', len(latencies) / (time.monotonic() - begun), 's-1')
        found.put('visibility_latency_p50_ms', 1e3 * float(np.median(latencies)), 'ms')

    def turn(self, found: Figures, load: str, rate: float, seconds: float) -> None:
        """Let the nodes answer, one kind after the other."""
        with self._beside(found, load):
            for kind in self._beds:
                answers, share = self._operate(kind, rate, seconds)
                if rate == FAST:
                    self._put_times(found, kind, load, answers)
                else:
                    own = '' if kind == ROBOT else 'echo_'
                    found.put(f'{own}cpu{load}_share', share, '1')
                    self._count(kind, load, answers)

    def _operate(self, kind: str, rate: float, seconds: float) -> tuple[list[Answers], float]:
        """Return what nodes answered and one's share of a core; anew if the clock was set."""
        beds, processes = self._beds[kind], self._processes[kind]

        def used() -> float:
            return sum(map(processor_time, processes)) / len(processes)

        for _ in range(ATTEMPTS):
            before = used(), time.monotonic()
            try:
                answers = operate(self._room, beds, self._beats[rate], rate, seconds)
            except ClockSetError as error:
                progress(f'{error}: once more')
                continue
            return answers, (used() - before[0]) / (time.monotonic() - before[1])
        raise SystemExit("this machine's clock is set all the time")

    @staticmethod
    def _put_times(found: Figures, kind: str, load: str, answers: Sequence[Answers]) -> None:
        if kind == ECHO:
            found.put_times(f'echo{load}', joined(Answers.echoes, answers))
            return
        found.put_times(f'topic{load}', joined(Answers.decisions, answers))
        found.put_times(f'setpoint{load}', joined(Answers.set_points, answers))

    def _count(self, kind: str, load: str, answers: Sequence[Answers]) -> None:
        if kind == ECHO:
            self.missed[f'echo{load}'].add(joined(Answers.echoes, answers))
            return
        self.missed[f'decision{load}'].add(joined(Answers.decisions, answers))
        self.missed[f'deadline{load}'].add(joined(Answers.whole, answers))


def joined(times: Callable[[Answers], np.ndarray], answers: Sequence[Answers]) -> np.ndarray:
    """Return the times of all robots' answers, second."""
    return np.concatenate([times(each) for each in answers])


def check_granted(process: int, given: argparse.Namespace) -> None:
    """
    Look whether the system granted the node what it was told to ask for.

    :raises SystemExit: if not.
    """
    policy = os.sched_getscheduler(process) & ~os.SCHED_RESET_ON_FORK
    if given.priority and policy != os.SCHED_FIFO:
        raise SystemExit('the system does not permit --priority here')
    if given.awake and struct.unpack('i', AWAKE.read_bytes()[:4])[0]:
        raise SystemExit('the system does not permit --awake here')


def on_topics(found: Figures, given: argparse.Namespace, folder: Path) -> dict[str, Lateness]:
    """Measure both kinds of nodes in turns."""
    federation_domain, robot_domain = free_domains(2)
    settings = BringupSettings(str(folder / 'federation'), federation_domain, robot_domain)
    with ExitStack() as stack:
        stack.enter_context(with_variables(middleware(settings)))
        room = Room(robot_domain)
        stack.callback(room.close)
        progress('starting the selectors, which value their policies')
        parameters = {'priority': given.priority, 'awake': given.awake}
        processes = {
            ROBOT: stack.enter_context(
                selectors(room, settings, given.robots, given.policies, parameters)
            ),
            ECHO: stack.enter_context(echoes(settings, given.robots)),
        }
        for process in processes[ROBOT].values():
            check_granted(process, given)
        camera = None
        if given.segmenter:
            progress('starting the segmenter')
            camera = stack.enter_context(segmenter(room, settings, given.segmenter))
        topics = Topics(room, processes, loads(given), camera)
        for repeat in range(given.repeats):
            for load in loads(given):
                progress(f'repeat {repeat + 1} of {given.repeats}: {FAST:g} Hz{load}')
                topics.turn(found, load, FAST, given.seconds)
        minutes = dict.fromkeys(loads(given), given.minutes)
        minutes['_busy'] = given.busy_minutes or given.minutes
        left = {load: math.ceil(60.0 * each / given.seconds) for load, each in minutes.items()}
        for turn in range(max(left.values())):
            for load in left:
                if turn < left[load]:
                    progress(f'turn {turn + 1} of {left[load]}: {SLOW:g} Hz{load}')
                    topics.turn(found, load, SLOW, given.seconds)
    return topics.missed


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast the selector decides.')
    parser.set_defaults(seconds=10.0)
    parser.add_argument(
        '--minutes', type=float, default=0.5, help='of each node and load at 100 Hz (0.5)'
    )
    parser.add_argument(
        '--busy-minutes', type=float, help='the same beside a busy core (as --minutes)'
    )
    parser.add_argument(
        '--robots', type=int, default=1, help='whose selectors answer at the same time (1)'
    )
    parser.add_argument(
        '--policies', type=int, default=POLICIES, help='of the selector on topics (8; at most 8)'
    )
    parser.add_argument(
        '--priority',
        type=int,
        default=0,
        help="of the selector's node in real time, 1 to 99, where the system permits it (0: none)",
    )
    parser.add_argument(
        '--awake',
        action='store_true',
        help="let the selector's node keep the processors awake, where the system permits it",
    )
    parser.add_argument(
        '--segmenter',
        type=Path,
        metavar='FILE',
        help='a trained segmenter, which works beside the nodes in further turns',
    )
    parser.add_argument('--alone', action='store_true', help='only in process, without nodes')
    given = parser.parse_args()
    check(parser, given)
    if not 1 <= given.policies <= POLICIES:
        parser.error('expected --policies from 1 to 8')
    if not 1 <= given.robots <= 16:
        parser.error('expected --robots from 1 to 16')
    if not 0 <= given.priority <= 99:
        parser.error('expected --priority from 0 to 99')
    for each in (given.minutes, given.busy_minutes):
        if each is not None and not 0.0 < each <= 600.0:
            parser.error('expected --minutes and --busy-minutes above 0')
    if given.segmenter and not given.segmenter.is_file():
        parser.error(f'--segmenter {given.segmenter}: there is no such file')
    as_process()
    run = circumstances(given, SEED, ('numpy', 'onnxruntime', 'ros-rclpy'), bind=False)
    run |= {'minutes': given.minutes, 'policies': given.policies, 'priority': given.priority}
    run['robots'] = given.robots
    run['arithmetic'] = 'compiled' if kernels.built() else 'NumPy'
    run |= {'awake': given.awake, 'busy_minutes': given.busy_minutes or given.minutes}
    found = Figures()
    in_process(found, given)
    rows, worst = IN_PROCESS, list(worst_rows(loads(given)))
    counted = [*missed_rows(loads(given)), *worst]
    if given.alone:
        counted = []
    else:
        with tempfile.TemporaryDirectory() as folder:
            missed = on_topics(found, given, Path(folder))
        rows += tuple(topic_rows(loads(given)))
    progress('')
    table = Table([row.name for row in (*rows, *counted)], run)
    for row in rows:
        table.add(row, found)
    for row in counted:
        own, peer = (
            each.worst if row in worst else each.fraction
            for each in (missed[row.own], missed[row.peer])
        )
        table.add_one(row, own, '1', peer_value=peer)
    table.end()
    if given.json:
        write(given.json, table.written)


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: nothing is written')
