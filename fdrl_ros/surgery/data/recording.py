# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Record operations so that an interruption loses little, and replay them bit by bit."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
import os
from pathlib import Path
import shutil

from fdrl_ros.errors import errors_named, FdrlError, os_errors_as, RecordsError, SettingError
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.data.dataset import Dataset, record, SCALARS
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import Action, Choice, Episode, PER_STATE, run_episode, SIGNALS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import STATE_FIELDS
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, PatientSource, public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np

Progress = Callable[[int, int], None]
"""Gets how many operations of how many are done after each; what it raises stops the work."""

Watch = Callable[[Operation], None]
"""Gets the operation at its start and after every tick."""

PART = 10
"""Operations in one part of an unfinished recording."""

_LAST = '; operations 0 to '
"""What the note of a finished file goes on with: the number of the last one that was done."""

_TRIES = 3
"""How many operations one that is kept may take, on average."""


class RecordingStopped(FdrlError):
    """The user asked to stop; what is finished is kept and not done again."""


def silent(done: int, count: int) -> None:
    """Report to nobody."""


def recorded_episode(
    env: SurgeryEnv, choose: Choice, patient: Patient, seed: int | None
) -> Episode:
    """
    Operate on one patient with a generator of its own, which nobody else draws from.

    :param seed: of that generator; None for a world without noise.
    """
    env.np_random = np.random.default_rng(0 if seed is None else seed)
    return run_episode(env, choose, patient)


@dataclass(frozen=True)
class Operator:
    """
    Operates on patient after patient: the expert, or a policy.

    :param patients: who is operated on.
    :param world: settings of the world.
    :param seed: of the sensor's noise and of the random moves.
    :param split: 'train' or 'test' patients.
    :param choice: who operates; the expert unless given.
    :param exploration: share of ticks at which a random move is made instead.
    :param procedure: the only one that patients may have; empty for any.
    """

    patients: PatientSource
    world: WorldSettings
    seed: int
    split: str = 'train'
    choice: Choice | None = None
    exploration: float = 0.0
    procedure: str = ''

    def operate(self, env: SurgeryEnv, index: int) -> tuple[Episode, int | None]:
        """Do operation number `index`, the same every time; return it and its seed."""
        patient = self.patients.patient(index, self.split)
        if self.procedure and patient.procedure.name != self.procedure:
            raise SettingError('patients', patient.procedure.name, f'all of {self.procedure}')
        moves = np.random.default_rng([Stream.RECORDING_MOVES, self.seed, index])

        def choose(state: np.ndarray) -> Action:
            if self.exploration > 0.0 and moves.random() < self.exploration:
                return int(moves.integers(ACTION_COUNT))
            if self.choice is not None:
                return self.choice(state)
            return expert(state, patient, self.world)[0]

        key = np.random.SeedSequence([Stream.RECORDING_SENSORS, self.seed, index])
        own = int(key.generate_state(1, np.uint64)[0])
        return recorded_episode(env, choose, patient, own), own


def record_operations(
    path: Path,
    operator: Operator,
    *,
    count: int,
    note: str,
    keep: Callable[[Episode], bool] = lambda episode: True,
    progress: Progress = silent,
) -> Dataset:
    """
    Operate and record until there are enough; what a file holds already is not done again.

    While it is not finished, parts lie in a folder beside the file; the same call goes on there.
    A finished file with fewer operations grows into the one that it would be if they had been
    asked for at once.

    :param path: file to write.
    :param count: operations to keep.
    :param note: tells this recording from every other; the file's goes on with what was done.
    :param keep: which operations are wanted.
    :raises SettingError: on a count below 1.
    :raises RecordsError: if the file holds something else or more, or cannot be written, or far
        too few operations are worth keeping.
    """
    if count < 1:
        raise SettingError('count', count, 'at least 1')
    episodes: list[Episode] = []
    seeds: list[int | None] = []
    tried = 0
    if path.exists():
        whole = Dataset.load(path)
        tried = _tried(path, whole, note, operator.world)
        if len(whole) > count:
            raise RecordsError(
                f'{path} holds {len(whole)} operations already, more than the {count} asked for: '
                'ask for as many, or take another file'
            )
        if len(whole) == count:
            progress(count, count)
            return whole
        episodes, seeds = list(whole.episodes), list(whole.seeds)
    if not path.parent.is_dir():
        raise RecordsError(f'{path.parent} is no directory: make it first')
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RecordsError(f'cannot write into {path.parent}: no permission')
    parts = path.with_name(path.name + '.parts')
    limit = tried + _TRIES * (count - len(episodes)) + PART
    with closing(_operations(parts, operator, note, tried)) as operations:
        while len(episodes) < count:
            if tried >= limit:
                raise RecordsError(
                    f'of {tried} operations only {len(episodes)} are worth keeping, '
                    f'expected {count}'
                )
            episode, seed = next(operations)
            tried += 1
            if keep(episode):
                episodes.append(episode)
                seeds.append(seed)
            progress(len(episodes), count)
    note = f'{note}{_LAST}{tried - 1}'
    dataset = record(path, episodes, operator.world, seeds=seeds, note=note)
    shutil.rmtree(parts, ignore_errors=True)
    return dataset


def _operations(
    folder: Path, operator: Operator, note: str, first: int
) -> Generator[tuple[Episode, int | None]]:
    """
    Yield operations from a number on and keep each part in a folder once it is finished.

    A part that is there is read instead; one that is broken or of another recording is made anew.
    """
    with SurgeryEnv(settings=operator.world) as env:
        while True:
            path, name = folder / f'{first:06d}.npz', f'part {first}: {note}'
            try:
                part = Dataset.load(path)
            except RecordsError:
                part = None
            if part is not None and (part.note, part.world) == (name, operator.world):
                yield from zip(part.episodes, part.seeds, strict=True)
                first += len(part)
                continue
            made: list[tuple[Episode, int | None]] = []
            for index in range(first, first + PART):
                made.append(operator.operate(env, index))
                if len(made) == PART:
                    with os_errors_as(RecordsError, f'cannot make {folder}'):
                        folder.mkdir(exist_ok=True)
                    episodes, seeds = zip(*made, strict=True)
                    record(path, episodes, operator.world, seeds=seeds, note=name)
                yield made[-1]
            first += PART


def _tried(path: Path, whole: Dataset, note: str, world: WorldSettings) -> int:
    """Return how many operations a finished file was chosen from, or refuse one of another."""
    head, _, last = whole.note.rpartition(_LAST)
    before, now = asdict(whole.world), asdict(world)
    other = [
        f'{name} {before[name]}, not {now[name]}' for name in now if before[name] != now[name]
    ]
    if head != note or not last.isdecimal():
        other.insert(0, f'"{head or whole.note}", not "{note}"')
    if other:
        raise RecordsError(
            f'{path} holds something else: {"; ".join(other)}; take another file, or what that '
            'one was made with'
        )
    return int(last) + 1


def in_words(patients: PatientSource) -> str:
    """Say which patients these are, hospitals counted from 1."""
    if not isinstance(patients, Cohort):
        return repr(patients)
    who = 'public patients'
    if not patients.public:
        who = f'patients of hospital {patients.hospital + 1} of {patients.hospitals}'
    done = ', '.join(patients.procedures)
    return f'{who}, H = {patients.heterogeneity}, seed {patients.seed}, for {done}'


def demonstrations(
    procedure: str,
    path: Path,
    count: int = 100,
    *,
    world: WorldSettings | None = None,
    patients: Cohort | None = None,
    progress: Progress = silent,
) -> Dataset:
    """
    Record the expert's successes in one procedure, as :func:`record_operations` does.

    Operations that fail are left out; the next patient takes their place.

    :param path: file to write.
    :param patients: all of this procedure; public ones at H = 0 with seed 0 unless given.
    :raises SettingError: on an unknown procedure, or a patient of another one.
    """
    procedure_named(procedure)
    source = patients or public_cohort(0, procedures=(procedure,))
    return record_operations(
        path,
        Operator(source, world or WorldSettings(), source.seed, procedure=procedure),
        count=count,
        note=f'expert, successes alone, seed {source.seed}; {in_words(source)}',
        keep=lambda episode: episode.success,
        progress=progress,
    )


def repeat(
    env: SurgeryEnv,
    actions: np.ndarray,
    patient: Patient,
    seed: int | None,
    watch: Watch = lambda operation: None,
) -> Episode:
    """
    Operate on a patient with recorded actions.

    :raises RecordsError: if the operation goes on after the last of them.
    """
    waiting = iter(actions.tolist())

    def choose(state: np.ndarray) -> int:
        watch(env.operation)
        for action in waiting:
            return int(action)
        raise RecordsError(f'ended after {len(actions)} ticks, now it goes on')

    found = recorded_episode(env, choose, patient, seed)
    watch(env.operation)
    return found


def replay(
    dataset: Dataset,
    index: int,
    env: SurgeryEnv | None = None,
    watch: Watch = lambda operation: None,
) -> Episode:
    """
    Operate on a recorded patient with the recorded actions, and compare every number.

    :param env: to operate in, of the dataset's world; one of its own unless given.
    :returns: what happened now: the same, bit by bit.
    :raises RecordsError: if anything differs, saying what differed first.
    """
    if not 0 <= index < len(dataset):
        raise RecordsError(f'episode {index}: expected 0 to {len(dataset) - 1}')
    if env is None:
        with closing(SurgeryEnv(settings=dataset.world)) as own:
            return replay(dataset, index, own, watch)
    if env.settings != dataset.world:
        raise RecordsError(f'the env is of {env.settings}, the recording of {dataset.world}')
    recorded = dataset.episodes[index]
    with errors_named(RecordsError, f'episode {index}'):
        found = repeat(env, recorded.actions, recorded.patient, dataset.seeds[index], watch)
        if difference := first_difference(recorded, found):
            raise RecordsError(difference)
    return found


def first_difference(recorded: Episode, found: Episode) -> str:
    """Say what differs first in time between two operations; nothing if no bit does."""
    firsts = []
    for name in SIGNALS:
        old, new = getattr(recorded, name), getattr(found, name)
        count = min(len(old), len(new))
        places = np.argwhere(_bits(old[:count]) != _bits(new[:count]))
        if len(places):
            place = tuple(int(axis) for axis in places[0][: old.ndim])
            # What is judged at the end of tick t comes with state t + 1.
            firsts.append((place[0] + (name not in PER_STATE), name, place))
    if firsts:
        _, name, place = min(firsts, key=lambda first: first[0])
        old, new = getattr(recorded, name)[place], getattr(found, name)[place]
        field = f', {STATE_FIELDS[place[1]].name}' if name == 'states' else ''
        return f'{name}{list(place)}{field} was {old!r}, is now {new!r}'
    if recorded.length != found.length:
        return f'ended after {recorded.length} ticks, now after {found.length}'
    for name in SCALARS:
        if getattr(recorded, name) != getattr(found, name):
            return f'{name} was {getattr(recorded, name)!r}, is now {getattr(found, name)!r}'
    return ''


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array in a last dimension more."""
    whole = np.ascontiguousarray(array)
    return whole.reshape(*array.shape, 1).view(np.uint8)
