# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A simulated federation on Ray: servers in this process, hospitals in shards on cores and hosts.

Requires `pip install "fdrl_ros[ray]"`. Whatever the number of shards, messages are taken and jobs
done in the order of the in-process driver; only, what waits at one time is done at once.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
import logging
import os
from pathlib import Path
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from types import ModuleType
from typing import Any

from fdrl_ros.crypto.keys.keystore import PASSPHRASE_VARIABLE
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, PluginError, SettingError
from fdrl_ros.experiments.hospital_group import JOB, Reply, Shard, Standing, START, Task, TICK
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.resources import package_version
from fdrl_ros.runtime.environment_variables import ONE_THREAD, with_variables
from fdrl_ros.runtime.progress import Progress, stop_if, Stopped
from fdrl_ros.runtime.stopwatch import peak_memory

STORE_BYTES = 200 * 2**20
"""Ray's memory for messages between processes; more goes to files of its own."""

ATTEMPTS = 3
"""Processes of a shard that may end one after the other in the same work."""

log = logging.getLogger(__name__)

_POLL = 0.2  # seconds between two looks at what shards tell
_PATIENCE = 5.0  # seconds for a cluster's host to accept a connection, or for a shard to close
_ANSWER = 20  # seconds for a cluster to let a process in
_UNCOUNTED = {'RAY_USAGE_STATS_ENABLED': '0'}

_CONFINED = {
    'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',  # all ports on the loopback address alone
    'RAY_AUTH_MODE': 'token',  # other users of this host reach those too
    'RAY_AUTH_TOKEN': secrets.token_hex(32),  # Ray's own lies in the home directory
}

# ray.init would wait in C++ for what is no Ray: not even a signal ends that, but an alarm does.
_TRY = """
import signal, sys
signal.alarm(int(sys.argv[2]))
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')
print(int(ray.cluster_resources().get('CPU', 0)))
"""

_stays_here = False  # whether Ray was imported so


@dataclass(frozen=True)
class RayEngine:
    """
    Where hospitals of a simulated federation work.

    :param cores: how many shards there are, one core each; 0 for as many as there are cores.
    :param address: HOST:PORT of a Ray cluster that this host belongs to; a Ray of this host alone,
        which ends with the federation, unless given.
    """

    cores: int = 0
    address: str = ''

    def check(self) -> int:
        """
        Refuse what cannot work, before anything begins; a cluster is joined for a moment.

        :returns: the cores that there are for shards.
        :raises PluginError: without Ray.
        :raises SettingError: if no Ray answers at the address, or has fewer cores.
        """
        _ray(self.address)
        if not self.address:
            return self._of(len(os.sched_getaffinity(0)), 'this host')
        host, _, port = self.address.rpartition(':')
        if not port.isdecimal():
            raise self._unanswered('it has no port, which stands after the host: HOST:PORT')
        try:
            socket.create_connection((host, int(port)), _PATIENCE).close()
        except (OSError, ValueError, OverflowError) as error:
            raise self._unanswered(str(error)) from error
        tried = subprocess.run(
            [sys.executable, '-P', '-c', _TRY, self.address, str(_ANSWER)],
            env={**os.environ, **_UNCOUNTED},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process
        )
        if tried.returncode == -signal.SIGALRM:
            words = f'no Ray, or one with another token: it let nobody in within {_ANSWER} s'
            raise self._unanswered(words)
        if tried.returncode:
            raise self._unanswered(tried.stderr.strip().rpartition('\n')[2][:300])
        return self._of(int(tried.stdout.split()[-1]), 'the cluster')

    def _of(self, there: int, where: str) -> int:
        """Return how many of the cores that are there shards get."""
        if not 0 < (self.cores or there) <= there:
            raise SettingError('cores', self.cores, f'1 to the {there} of {where}')
        return self.cores or there

    def _unanswered(self, reason: str) -> SettingError:
        expected = f'HOST:PORT of a Ray cluster that answers: {reason}'
        return SettingError('address', self.address, expected)

    @contextmanager
    def started(self) -> Iterator[int]:
        """
        Start Ray or join its cluster; give the number of shards.

        :raises PluginError: without Ray, or if it runs in this process already.
        :raises SettingError: if the cluster lets nobody in, or there are fewer cores.
        """
        cores = self.check()
        ray, at_end = _ray(self.address), signal.getsignal(signal.SIGTERM)
        if ray.is_initialized():
            raise PluginError(
                'engine ray', 'Ray runs in this process already: ray.shutdown() first'
            )
        with (
            tempfile.TemporaryDirectory(prefix='fdrl_ray_', ignore_cleanup_errors=True) as folder,
            with_variables({**_UNCOUNTED, **ONE_THREAD}),
            with_variables({} if self.address else _CONFINED),
        ):
            own = {
                'num_cpus': cores,
                'include_dashboard': False,
                'object_store_memory': STORE_BYTES,
                '_temp_dir': folder,
            }
            where = {'address': self.address} if self.address else own
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **where)
            except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                ray.shutdown()
                expected = f'one where Ray starts: {" ".join(str(error).split())[:300]}'
                raise SettingError('address', self.address, expected) from error
            finally:
                signal.signal(signal.SIGTERM, at_end)  # Ray takes it
            try:
                there = int(ray.cluster_resources().get('CPU', 0))
                cores = self._of(there, 'the cluster')
                free = int(ray.available_resources().get('CPU', 0))
                if free < cores:
                    log.warning('%d of %d cores are free: hospitals wait for others', free, there)
                yield cores
            finally:
                ray.shutdown()


def _ray(address: str) -> ModuleType:
    """
    Import Ray, which then reads whether it is to stay on this host.

    :raises PluginError: if it is not there, or was imported before and would not stay here.
    """
    global _stays_here
    if not address and sys.modules.get('ray') and not _stays_here:
        raise PluginError('engine ray', 'import Ray after RayEngine.check, which confines it')
    with with_variables({} if address else _CONFINED):
        try:
            import ray
            import ray.exceptions
        except ImportError as error:
            words = f'{error}: pip install "fdrl_ros[ray]", or -r requirements/ray.txt in a clone'
            raise PluginError('engine ray', words) from error
    _stays_here |= not address
    return ray


@dataclass(eq=False)
class _Handle:
    """
    A shard as the driver has it.

    :param actor: its present process.
    :param ended: processes that ended since hospitals of it last did a job.
    :param look: an answer to :meth:`Shard.look` that is not here yet.
    :param words: what Ray said of the last one that ended.
    """

    names: tuple[str, ...]
    actor: Any = None
    ended: int = 0
    look: Any = None
    words: str = ''

    def __str__(self) -> str:
        """Name its hospitals."""
        return ' to '.join(dict.fromkeys((self.names[0], self.names[-1])))


Action = Callable[[], Effects] | Message | str
"""What waits: something for a server to do, or what :class:`Task` has for hospitals."""


class RayFederation(LocalFederation):
    """
    An in-process driver whose hospitals live in shards.

    It lets all parties act at once on what waits, and carries out what they want in the order in
    which they would have acted one by one. A shard whose process ended is started anew: its
    hospitals go on from the disk as killed ones do.

    :param names: of the hospitals; each shard has neighbours among them.
    :param done: rounds that the federation ended before.
    :param shards: how many there are at most.
    :param report: see :class:`LocalFederation`; the name is empty for what is no party's job.
    :param stopped: whether jobs are to stop, and :meth:`run` to return.
    """

    def __init__(
        self,
        layout: Layout,
        plan: Plan,
        names: Sequence[str],
        *,
        done: int,
        shards: int,
        report: Callable[[str, Any], None],
        stopped: Stopped,
    ) -> None:
        super().__init__({}, report=report)
        import ray

        self._ray = ray
        self._terms = _anywhere(layout), plan, done
        self._asked = stopped
        count, size = min(shards, len(names)), len(names)
        self._shards = [
            _Handle(tuple(names[each * size // count : (each + 1) * size // count]))
            for each in range(count)
        ]
        self._homes = {name: shard for shard in self._shards for name in shard.names}
        self._waiting: deque[tuple[str, Action]] = deque()
        self._all_open = False
        self._standings: dict[str, Standing] = {}
        self._held = 0.0

    def open(self) -> None:
        """
        Open all hospitals, which collect their records first, and let them begin.

        :raises FdrlError: if one cannot be opened, or a shard ends again and again.
        :raises TrainingStopped: if that was asked for.
        """
        for reply in self._gather(self._shards, self._begin).values():
            self._take(reply)
        self._all_open = True
        self._waiting.append(('', START))

    def close(self) -> None:
        """Close all hospitals; their processes end with Ray, or with what this one had of it."""
        closing = []
        for actor in (each.actor for each in self._shards if each.actor is not None):
            actor.look.options(concurrency_group='look').remote(True)
            closing.append(actor.close.remote())
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_PATIENCE)

    def standings(self) -> dict[str, Standing]:
        """Return where each hospital stands."""
        return self._standings

    def peak_memory(self) -> float | None:
        """Return the most memory that this process or that of a shard has held so far, MB."""
        here = peak_memory()
        return None if here is None else max(here, self._held)

    def epsilons(self) -> dict[str, float]:
        """Return what each hospital has spent."""
        found = self._gather(self._shards, lambda shard: shard.actor.epsilons.remote())
        return {name: each for shard in self._shards for name, each in found[shard].items()}

    # What the driver does otherwise than in one process.

    @property
    def idle(self) -> bool:
        """Whether nothing is left to deliver or to do before time passes."""
        return not self._waiting

    def run(self, until: Callable[[], bool], *, ticks: int = 10_000) -> bool:
        """Move messages until a condition holds; see :class:`LocalFederation`."""
        self._stopped = False
        while not until() and not self._stopped:
            if not self._waiting:
                if ticks == 0:
                    return False
                ticks -= 1
                self.now += self._tick
                for name, party in self.parties.items():
                    self._later(name, partial(party.tick, self.now))
                self._waiting.append(('', TICK))
            wave, self._waiting = list(self._waiting), deque()
            self._play(wave)
        return until()

    def post(self, message: Message) -> None:
        """Deliver a message to everyone but its sender."""
        super().post(message)
        if self._is_for_hospitals(message):
            self._waiting.append((_receiver(message), message))

    def _later(self, name: str, action: Callable[[], Effects]) -> None:
        self._waiting.append((name, action))

    def _is_for_hospitals(self, message: Message) -> bool:
        receiver = _receiver(message)
        return type(message) in Hospital.takes and (not receiver or receiver in self._homes)

    def _play(self, wave: Sequence[tuple[str, Action]]) -> None:
        """Let all hospitals do at once what waits, and then, in order, servers what is theirs."""
        shared, own = list[Task](), {shard: list[Task]() for shard in self._shards}
        for place, (name, action) in enumerate(wave):
            if not callable(action):
                (own[self._homes[name]] if name else shared).append(Task(place, name, action))
        given = self._ray.put(shared) if shared else shared
        replies = self._gather(
            [each for each in self._shards if shared or own[each]],
            lambda shard: shard.actor.play.remote(given, own[shard], self.now),
            again=False,
        )
        wanted: defaultdict[int, list[Message | str]] = defaultdict(list)
        for shard, reply in replies.items():
            if any(task.what == JOB for task in own[shard]):
                shard.ended = 0  # what a shard does besides jobs proves little
            self._take(reply)
            for place, each in reply.wanted.items():
                wanted[place] += each
        for place, (name, action) in enumerate(wave):
            if callable(action) and name in self.parties:
                self.apply(name, action)
            for each in wanted[place]:
                if isinstance(each, str):
                    self._waiting.append((each, JOB))
                else:
                    self.post(each)

    # Shards, and what becomes of them.

    def _begin(self, shard: _Handle) -> Any:
        """
        Start a shard's process, and let it open its hospitals.

        :raises FdrlError: if too many ended since the last reply.
        """
        if shard.ended > ATTEMPTS:
            raise FdrlError(
                f'the process of {shard} ended {shard.ended} times: killed, or out of memory; '
                f'fewer cores need less; Ray says: {shard.words}'
            )
        options: dict[str, Any] = {
            'num_cpus': 1,
            'concurrency_groups': {'look': 1},
            'runtime_env': {'env_vars': dict(ONE_THREAD)},
        }
        shard.actor = self._ray.remote(**options)(Shard).remote()
        layout, plan, done = self._terms
        return shard.actor.open.remote(layout, plan, shard.names, done, package_version())

    def _begin_again(self, shard: _Handle) -> None:
        """Start a shard anew: its hospitals are sent what any party is sent that joins."""
        self._take(self._gather([shard], self._begin)[shard])
        self.latched = {
            key: each for key, each in self.latched.items() if key[0] not in shard.names
        }
        # Its jobs are gone with it: what it is sent makes it ask for them again.
        self._waiting = deque(
            each for each in self._waiting if each[0] not in shard.names or each[1] != JOB
        )
        kept = [each for each in self.latched.values() if self._is_for_hospitals(each)]
        for name in shard.names:
            self._waiting.append((name, START))
            self._waiting += [(name, each) for each in kept if _receiver(each) in ('', name)]

    def _gather(
        self, shards: Sequence[_Handle], call: Callable[[_Handle], Any], *, again: bool = True
    ) -> dict[_Handle, Any]:
        """
        Call shards, wait for them, and pass on what they tell meanwhile.

        :param again: whether to call one once more that was started again; if not, it is missing
            in what is returned.
        :returns: what they answered, in their order.
        :raises FdrlError: the one that a shard raised, or if its process ends again and again.
        """
        errors, answers = self._ray.exceptions, dict[_Handle, Any]()
        waiting = {call(each): each for each in shards}
        while waiting:
            ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=_POLL)
            for asked in ready:
                shard = waiting.pop(asked)
                try:
                    answers[shard] = self._ray.get(asked)
                    if shard.look is not None:
                        self._hear(self._ray.get(shard.look))
                    shard.look = None
                except errors.RayTaskError as error:
                    raise error.cause from error
                except errors.RayError as error:
                    stop_if(self._asked)  # whoever asked may have asked all processes
                    answers.pop(shard, None)
                    shard.ended, shard.look = shard.ended + 1, None
                    shard.words = str(error).splitlines()[0] if str(error) else repr(error)
                    log.warning(
                        'the process of %s ended (%s): another one goes on from what its '
                        'hospitals stored, and none of them pays twice',
                        shard,
                        shard.words,
                    )
                    self._ray.kill(shard.actor)  # it may only have been out of reach
                    if call != self._begin:
                        self._begin_again(shard)
                    if again:
                        waiting[call(shard)] = shard
            self._watch(waiting.values())
        return {each: answers[each] for each in shards if each in answers}

    def _take(self, reply: Reply) -> None:
        self._hear(reply.told)
        self._standings.update(reply.standings)
        self.notes.update(reply.notes)
        self.refused += reply.refused
        for name, seconds in reply.seconds.items():
            self.stopwatch.add(name, seconds)
        self._held = max(self._held, reply.held or 0.0)

    def _watch(self, shards: Iterable[_Handle]) -> None:
        """Pass on what shards at work tell, and whether they are to stop."""
        if not self._all_open:
            stop_if(self._asked)
        elif self._asked():
            self.stop()
        for shard in shards:
            if shard.look is not None:
                if not self._ray.wait([shard.look], timeout=0)[0]:
                    continue
                with suppress(self._ray.exceptions.RayError):
                    self._hear(self._ray.get(shard.look))
            look = shard.actor.look.options(concurrency_group='look')
            shard.look = look.remote(self._stopped)

    def _hear(self, told: Sequence[object]) -> None:
        for each in told:
            match each:
                case logging.LogRecord():
                    logging.getLogger(each.name).handle(each)
                case Progress():
                    self._report('', each)
                case (str() as name, progress):
                    self._report(name, progress)


def _anywhere(layout: Layout) -> Layout:
    """Return a layout that means the same in another working directory and environment."""
    file = layout.passphrase_file or os.environ.get(PASSPHRASE_VARIABLE)
    return Layout(layout.directory.absolute(), Path(file).absolute() if file else None)


def _receiver(message: Message) -> str:
    """Return the hospital or server that a message is for; empty for all."""
    receiver: str = getattr(message, 'to', '')
    return receiver
