# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Run a federation over ROS 2: start its nodes, watch the rounds, let a robot operate, end it all.

The nodes do the work in processes of their own; this only looks on and keeps what is released.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import contextlib
from dataclasses import asdict, replace
from datetime import datetime, UTC
import importlib
import importlib.util
import itertools
import threading
import time
from typing import TypeVar

from fdrl_ros.crypto.keys.keystore import KEY_FILE
from fdrl_ros.deployment.bringup import (
    BringupSettings,
    check_middleware,
    check_participants,
    federation_graph,
    free_domains,
    middleware,
    NodeSpec,
    robot_graph,
    RoomArguments,
    warnings,
)
from fdrl_ros.deployment.events import (
    Event,
    HospitalProgress,
    NodeHealth,
    OperationEnded,
    PoliciesListed,
    PrivacySpent,
    ReceivedMessage,
    RejectedMessage,
)
from fdrl_ros.deployment.interfaces import OPERATOR
from fdrl_ros.deployment.layout import ROBOTS
from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
from fdrl_ros.deployment.link.transport import free_port, open_router, place_of
from fdrl_ros.deployment.live.running import (
    Companion,
    companion_variables,
    free_page_port,
    noted_running,
    page_variables,
    page_words,
    record_words,
)
from fdrl_ros.deployment.namespaces import absolute, FEDERATION
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import taking_part
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.errors import FdrlError, MessageError, os_errors_as, StoreError
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.metric_logs import tensorboard
from fdrl_ros.experiments.round_recorder import Meters, NoteTaken, RoundNote, RoundRecorder
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.training import prepare_run, training_progress
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    Phase,
    RoundStatus,
)
from fdrl_ros.learner.learner import Stage, TrainingProgress
from fdrl_ros.runtime.environment_variables import ONE_THREAD, with_variables
from fdrl_ros.runtime.progress import Caller, Progress
from fdrl_ros.runtime.stopwatch import Stopwatch
from fdrl_ros.selector.candidates.candidate import GLOBAL, HOME
from fdrl_ros.selector.candidates.registry import Status
from fdrl_ros.surgery.gym.actions import TICK

Say = Callable[[str], None]
R = TypeVar('R')

_POLL = 0.2  # longest wait for the next event, seconds
_PATIENCE = 3  # times that the aggregator waits for hospitals before we give up
_LAST_WORDS = 3.0  # for the last policies and diagnostics to arrive, seconds
_START = 60.0  # for the robot's nodes to come up, seconds
_VALUING = 60.0  # for a robot to value a policy, seconds


def missing_ros() -> str:
    """
    Return what nodes lack of ROS 2; empty if they can run.

    :raises SettingError: if RMW_IMPLEMENTATION names a middleware that is not installed.
    """
    check_middleware()
    if importlib.util.find_spec('rclpy') is None:
        return 'rclpy is not found (source a ROS 2 installation, or run `make setup`)'
    try:
        importlib.import_module('fdrl_ros.msg')
    except ImportError:
        return 'the messages of this package are not built (colcon build, then source install/)'
    return ''


def unvalued_policies(operations: Sequence[Json]) -> list[str]:
    """
    List the policies that robots could not yet choose when they operated.

    :param operations: as operations.json holds them.
    """
    said = []
    for robot in sorted({each['robot'] for each in operations}):
        own = [each for each in operations if each['robot'] == robot]
        early = [each for each in own if each['not_valued_yet']]
        if early:
            chosen, missing = ['hold', *early[-1]['candidates']], early[-1]['not_valued_yet']
            said.append(
                f'{robot}: {len(early)} of {len(own)} operations ended before all policies were '
                f'valued; in the last of those it chose among {", ".join(chosen)}, and not yet '
                f'{", ".join(missing)}. The same command with --directory operates again, and '
                'goes on valuing.'
            )
    return said


def has_valued(listed: PoliciesListed | None, released: Mapping[str, int]) -> bool:
    """
    Return whether a robot has all policies that were released, and has valued them.

    :param listed: what it said of them last; None for nothing.
    :param released: the round of each, by name.
    """
    if listed is None or not listed.rounds or listed.valuing:
        return False
    return all(listed.rounds.get(name, -1) >= round for name, round in released.items())


class RosFederation:
    """One federation on this host, as processes over DDS."""

    def __init__(
        self,
        run: RunDirectory,
        plan: Plan,
        caller: Caller,
        say: Say,
        *,
        namespace: str = '',
        page: bool = False,
        link: bool = False,
    ) -> None:
        """
        Prepare the directory.

        :param caller: told the progress of each hospital.
        :param say: told what people should know, such as the death of a node.
        :param namespace: in front of those of all nodes.
        :param page: whether a page of it is served meanwhile; where that fails, nothing else does.
        :param link: whether Zenoh carries the federation's messages, with a router of this
            process on loopback; robots stay on DDS.
        :raises FdrlError: if the directory cannot be prepared.
        """
        self._run, self._page = run, page
        self._plan = plan
        self._caller = caller
        self._say = say
        self._layout = prepare_run(run.path, plan, caller)
        federation, robots = free_domains(2)
        self._settings = BringupSettings(
            directory=str(self._layout.directory.resolve()),
            federation_domain=federation,
            robot_domain=robots,
            namespace=namespace,
            router=f'tls/127.0.0.1:{free_port()}' if link else '',
        )
        here = taking_part(self._layout, plan)
        self._federation = federation_graph(self._settings, here)
        check_participants(self._settings, self._federation)
        self._epsilon: dict[str, float] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._memory: dict[str, float] = {}
        self._left_out: list[str] = []
        self._at_home: set[str] = set()
        self._released: dict[str, int] = {}
        """Policies that robots get, and after which round they were released."""
        self._listed: dict[str, PoliciesListed] = {}
        self._operations: list[Json] = []
        self._roster = self._layout.roster()
        self._recorder = RoundRecorder(
            self._roster,
            run.policies,
            run.path / 'rounds.json',
            plan,
            Meters(
                Stopwatch(),
                lambda: dict(self._epsilon),
                self._peak_memory,
                lambda note: self._log_round(note),
            ),
        )
        self._log_round: NoteTaken = lambda note: None
        self._heard = time.monotonic()
        self._phase = Phase.WAITING
        self._reason = 'nothing was heard of the aggregator'

    def operate(
        self,
        operations: int,
        alone: Callable[[Caller], None],
        evaluate: Callable[[Caller], R],
    ) -> tuple[list[RoundNote], R]:
        """
        Run all rounds, then let a robot operate under the selector.

        :param operations: patients of the robot.
        :param alone: work for another thread from when the rounds are over.
        :param evaluate: work for that thread after it, when all policies are here too. What either
            raises is raised here.
        :returns: notes of every round, and what `evaluate` returned.
        :raises TrainingStopped: as soon as asked to stop; all nodes have ended then.
        :raises FdrlError: if a node cannot begin, or no round was done.
        """
        with_robot = self._plan.task.robot
        if operations and not with_robot:
            self._say(f'No robot acts in task {self._plan.task.name}: its policies are evaluated.')
            operations = 0
        watching = importlib.import_module('fdrl_ros.nodes.observer')
        before = len(self._recorder.notes)
        settings = self._settings
        broken = threading.Event()

        def stopped() -> bool:
            return broken.is_set() or self._caller.stopped()

        with (
            tensorboard(self._run.path) as self._log_round,
            with_variables({**middleware(settings), **ONE_THREAD}),
            noted_running(self._layout, settings),
            self._routed(),
            self._served(),
            contextlib.ExitStack() as recorders,
            ThreadPoolExecutor(1, 'evaluation') as beside,
            contextlib.ExitStack() as ended,
            Runner(settings, self._layout.log) as runner,
            watching.Observer(
                self._roster,
                settings.federation_domain,
                ROBOTS,
                settings.robot_domain,
                namespace=settings.namespace,
                n_parameters=self._plan.network.layout.n_parameters,
            ) as watch,
        ):
            ended.callback(broken.set)  # unless all goes well
            self._say(
                f'To look on: ROS_DOMAIN_ID={settings.federation_domain} is the federation'
                + (f', ROS_DOMAIN_ID={settings.robot_domain} the robot.' if with_robot else '.')
            )
            for words in warnings(settings):
                self._say(words)
            runner.start(self._federation)
            rounds = self._plan.rounds
            self._follow(runner, watch.poll, lambda: watch.finished, rounds.train_timeout)
            if watch.finished:  # the last policy may come after the word that all is done
                self._follow(runner, watch.poll, lambda: self._done >= rounds.rounds, _LAST_WORDS)
            if not watch.finished or self._done < rounds.rounds:
                self._say(words := self._stuck(self._done))
                if not watch.finished:
                    self._recorder.note_end(words)
            if self._plan.home.epochs and watch.finished:
                everyone = set(taking_part(self._layout, self._plan))
                self._follow(
                    runner, watch.poll, lambda: self._at_home >= everyone, rounds.train_timeout
                )
            if not self._recorder.notes:
                raise FdrlError(f'not one round was done; the logs are in {self._layout.log}')
            caller = replace(self._caller, stopped=stopped)
            trained = beside.submit(alone, caller)
            specs: list[NodeSpec] = []
            if operations:
                # With home policies the robot is of a hospital, and operates on its patients.
                home = self._plan.hospitals[0] if self._plan.home.epochs else ''
                # The page shows the endoscope's picture; without one nobody looks at it.
                room = RoomArguments(home=home, endoscope=self._page)
                specs = [
                    spec
                    for robot in ROBOTS
                    for spec in robot_graph(settings, robot, operations, room)
                ]
                # Patients come once the selector knows what to expect of each policy.
                runner.start(each for each in specs if each.executable != 'env')
            until = time.monotonic() + _LAST_WORDS
            self._follow(
                runner, watch.poll, lambda: time.monotonic() > until, rounds.train_timeout
            )
            self._share_seconds(before)
            work = beside.submit(evaluate, caller)
            if operations:
                if home:
                    self._released.pop(home, None)  # it goes by another name here
                    self._released[HOME] = 0
                self._value(runner, watch.poll)
                recording = [
                    recorders.enter_context(self._recording(robot, operations)) for robot in ROBOTS
                ]
                # A recorder says what it waits for, or why it cannot begin.
                self._follow(
                    runner, watch.poll, lambda: all(it.spoke.is_set() for it in recording), _START
                )
                waits = {'recorded': all(each.running for each in recording)}
                runner.start(
                    replace(each, parameters={**each.parameters, **waits})
                    for each in specs
                    if each.executable == 'env'
                )
                each = self._plan.world.horizon * TICK + 5.0
                self._follow(
                    runner,
                    watch.poll,
                    lambda: len(self._operations) >= operations * len(ROBOTS),
                    _START + operations * each,
                    operations,
                )
                write_json(self._run.path / 'operations.json', self._operations)
                for words in (*self._missed(operations), *unvalued_policies(self._operations)):
                    self._say(words)
            ended.pop_all()
        trained.result()
        return self._recorder.notes, work.result()

    @property
    def _done(self) -> int:
        """The last round that is done."""
        return self._recorder.notes[-1].round if self._recorder.notes else 0

    def _routed(self) -> contextlib.AbstractContextManager[object]:
        """Make links and run their router, if messages go over one."""
        place = self._settings.router
        if not place:
            return contextlib.nullcontext()
        host, now = place_of('router', place)[0], datetime.now(UTC)
        make_links(self._layout, [host], now, 30, self._layout.passphrase)
        self._say(f'A Zenoh router at {place} carries what the parties send each other.')
        return open_router(LinkFiles(self._layout.keys, ROUTER), self._roster, place)

    def _served(self) -> contextlib.AbstractContextManager[object]:
        """Serve the page, if it is wanted; it offers orders if an operator's key is here."""
        if not self._page:
            return contextlib.nullcontext()
        signing = (self._layout.keys / OPERATOR / KEY_FILE).exists()
        words = page_words(
            self._settings,
            free_page_port(),
            (),
            *('--link-minutes', '60'),
            *(('--operator-key', OPERATOR) if signing else ()),
        )
        return Companion(words, page_variables(self._settings), self._say)

    def _recording(self, robot: str, operations: int) -> Companion:
        """Record the operations of a robot in a new bag of the run, for replay."""
        folder = self._run.operations
        with os_errors_as(StoreError, f'cannot make {folder}'):
            folder.mkdir(exist_ok=True)
        paths = (folder / f'{robot}_{number}' for number in itertools.count(1))
        bag = next(path for path in paths if not path.exists())
        words = record_words(self._settings, robot, bag, operations)

        def say(line: str) -> None:
            if line.startswith('fdrl: '):
                self._say(f'{robot} is not recorded: {line.removeprefix("fdrl: ")}')

        return Companion(words, companion_variables(), say)

    def _value(self, runner: Runner, poll: Callable[[float], Iterable[Event]]) -> None:
        """Wait until the selectors have valued all policies, or for a time that is told."""
        expected = max(1, len(self._released))
        limit = _START + expected * _VALUING
        self._say(
            f'The robot values its policies before it operates (released: {expected}), some ten '
            f'seconds each, {limit / 60:.0f} min at most.'
        )
        deadline = time.monotonic() + limit

        def done() -> bool:
            valued = (has_valued(self._listed.get(robot), self._released) for robot in ROBOTS)
            return time.monotonic() > deadline or all(valued)

        self._follow(runner, poll, done, limit)

    def _follow(
        self,
        runner: Runner,
        poll: Callable[[float], Iterable[Event]],
        done: Callable[[], bool],
        limit: float,
        operations: int = 0,
    ) -> None:
        """
        Wait until a condition holds, or no progress was made for a time.

        :param poll: returns the next events, after so many seconds at most.
        :param limit: longest time without progress, seconds.
        """
        self._heard = time.monotonic()
        waiting = _PATIENCE * self._plan.rounds.open_timeout
        while not done():
            silence = time.monotonic() - self._heard
            if silence > limit or (self._phase is Phase.OPEN and silence > waiting):
                return
            self._caller.check()
            for event in poll(_POLL):
                self._handle_event(event, operations)
            for happened in runner.poll():
                self._say(str(happened))
                happened.check()
            if runner.done:
                raise FdrlError(f'no node runs any more; the logs are in {self._layout.log}')

    def _handle_event(self, event: Event, operations: int) -> None:
        """Keep and show what was heard."""
        match event:
            case ReceivedMessage():
                try:
                    self._recorder.handle(event.message, time.monotonic())
                except MessageError as error:
                    self._say(f'refused: {error}')
                    return
                if isinstance(event.message, GlobalPolicy):
                    self._released[GLOBAL] = event.message.envelope.round
                elif isinstance(event.message, HospitalPolicy):
                    self._released[event.message.sender] = event.message.envelope.round
                if isinstance(event.message, RoundStatus):
                    # Saying again what is waited for is no progress.
                    self._phase = Phase(event.message.phase)
                    self._reason = event.message.reason
                    return
            case RejectedMessage():
                self._say(f'refused: {event.why}')
                return
            case PoliciesListed():
                before, self._listed[event.robot] = self._listed.get(event.robot), event
                if before != event and not self._operations:
                    total = len(event.rounds)
                    done, words = total - len(event.valuing), ', '.join(event.valuing)
                    self._caller.report(Progress('value', event.robot, done, total, words))
            case PrivacySpent():
                self._epsilon[event.hospital] = event.epsilon
            case NodeHealth():
                self._read_diagnostics(event.node, event.values)
                return
            case HospitalProgress():
                if event.stage == Stage.AT_HOME:
                    self._at_home.add(event.hospital)
                if event.steps:
                    self._caller.report(self._progress(event))
            case OperationEnded():
                found = RobotPolicies(self._layout, event.robot)
                valued, waiting = found.named(Status.CANDIDATE), found.named(Status.VALUING)
                self._operations.append(
                    {**asdict(event), 'candidates': valued, 'not_valued_yet': waiting}
                )
                words = 'success' if event.success else f'failure: {event.failure}'
                count = sum(each['robot'] == event.robot for each in self._operations)
                words = f'{event.patient} {event.procedure}: {words}'
                if waiting:
                    words += f' ({len(valued)} of {len(valued + waiting)} policies valued)'
                self._caller.report(Progress('operate', event.robot, count, operations, words))
            case _:
                return
        self._heard = time.monotonic()

    def _read_diagnostics(self, node: str, values: dict[str, str]) -> None:
        def named(prefix: str) -> dict[str, str]:
            own = (key for key in values if key.startswith(prefix))
            return {key.removeprefix(prefix): values[key] for key in own}

        # Diagnostics are not signed: no node of ours sends other than numbers.
        with contextlib.suppress(ValueError):
            spent = {name: float(value) for name, value in named('seconds ').items()}
            self._seconds |= {node: spent} if spent else {}
            if held := values.get('peak memory'):
                self._memory[node] = float(held)
            if node == absolute(self._settings.namespace, FEDERATION, 'key_authority'):
                if 'tested round' in values and 'success' in values:
                    self._recorder.note_success(
                        int(values['tested round']), float(values['success'])
                    )
            if node == absolute(self._settings.namespace, FEDERATION, 'aggregator'):
                self._left_out = [f'{name}: {why}' for name, why in named('left out ').items()]

    def _progress(self, event: HospitalProgress) -> Progress:
        if event.stage == Stage.COLLECTING:
            return Progress('collect', event.hospital, event.step, event.steps)
        told = event.round, event.step, event.steps, event.epsilon
        stage = Stage.HOME if event.stage == Stage.HOME else Stage.TRAINING
        progress = TrainingProgress(*told, stage)
        return training_progress('train', event.hospital, progress, self._plan)

    def _share_seconds(self, before: int) -> None:
        """Distribute the nodes' timings over the rounds of this run."""
        notes = self._recorder.notes
        count = len(notes) - before
        if count < 1:
            return

        def total(name: str) -> float:
            return sum(each.get(name, 0.0) for each in self._seconds.values()) / count

        for number in range(before, len(notes)):
            notes[number] = replace(
                notes[number],
                encrypt_seconds=total('encrypt'),
                sum_seconds=total('sum'),
                decrypt_seconds=max(0.0, total('decrypt') - total('validate')),
            )
        notes[-1] = replace(notes[-1], peak_memory=self._peak_memory())
        self._recorder.save()

    def _peak_memory(self) -> float | None:
        return max(self._memory.values(), default=None)

    def _missed(self, operations: int) -> list[str]:
        """List robots that did not operate, and the policies that they had."""
        said = []
        for robot in ROBOTS:
            done = sum(each['robot'] == robot for each in self._operations)
            if done < operations:
                found = RobotPolicies(self._layout, robot)
                candidates, valuing, refused = (
                    ', '.join(found.named(status)) or 'none'
                    for status in (Status.CANDIDATE, Status.VALUING, Status.REFUSED)
                )
                said.append(
                    f'{robot}: {done} of {operations} operations were done: one begins when the '
                    f'selector moves the arm; its candidates: {candidates}, not valued yet: '
                    f'{valuing}, refused: {refused}'
                )
        return said

    def _stuck(self, done: int) -> str:
        """Describe a federation whose rounds have stopped."""
        return (
            f'the federation ended in phase {self._phase.name} after {done} of '
            f'{self._plan.rounds.rounds} rounds: {"; ".join((self._reason, *self._left_out))} '
            f'(logs in {self._layout.log})'
        )
