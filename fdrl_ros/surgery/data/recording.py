# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Record operations so that they can be gone through again; an interruption loses little."""

from collections.abc import Callable
from dataclasses import asdict
import os
from pathlib import Path
import shutil

from fdrl_ros.errors import FdrlError, RecordsError, SettingError
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.data.dataset import Dataset, record
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import Choice, Episode, run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, PatientSource, public_cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np

Progress = Callable[[int, int], None]
"""How many of how many are done."""

PART = 10
"""Patients in one part of an unfinished recording."""

Operate = Callable[[SurgeryEnv, int], tuple[Episode, int | None]]
"""Does operation number so and so; returns it and the seed of its generator."""

_LAST = '; operations 0 to '
"""What the note of a finished file goes on with: the number of the last one that was done."""

_TRIES = 3
"""How many operations one that is kept may take, on average."""


class RecordingStopped(FdrlError):
    """The one who waits asked to stop; what is finished is kept and not done again."""


def _nothing(done: int, count: int) -> None:
    """Report to nobody."""


def _any(episode: Episode) -> bool:
    """Keep every operation."""
    return True


def _never() -> bool:
    return False


def recorded_episode(
    env: SurgeryEnv, choose: Choice, patient: Patient, seed: int | None
) -> Episode:
    """
    Operate on one patient with a generator of its own, which nobody else draws from.

    :param seed: of that generator; None for a world without noise.
    """
    env.np_random = np.random.default_rng(0 if seed is None else seed)
    return run_episode(env, choose, patient)


def seed_of(seed: int, index: int) -> int:
    """Return the seed of operation `index` of a recording."""
    return int(
        np.random.SeedSequence([Stream.RECORDING_SENSORS, seed, index]).generate_state(
            1, np.uint64
        )[0]
    )


def record_operations(
    path: Path,
    operate: Operate,
    *,
    count: int,
    world: WorldSettings,
    note: str,
    keep: Callable[[Episode], bool] = _any,
    progress: Progress = _nothing,
    stopped: Callable[[], bool] = _never,
) -> Dataset:
    """
    Operate and record until there are enough; what a file holds already is not done again.

    While it is not finished, parts lie in a folder beside the file; the same call goes on there.
    A finished file with fewer operations grows into the one that it would be if they had been
    asked for at once.

    :param path: file to write.
    :param operate: operation number so and so, in the env that it is given; the same every time.
    :param count: operations to keep.
    :param note: tells this recording from every other; the file's goes on with what was done.
    :param keep: which operations are wanted.
    :param progress: told how many there are.
    :param stopped: asked before each operation.
    :raises SettingError: on a count below 1.
    :raises RecordsError: if the file holds something else or more, or cannot be written, or far
        too few operations are worth keeping.
    :raises RecordingStopped: as soon as `stopped` says so.
    """
    if count < 1:
        raise SettingError('count', count, 'at least 1')
    episodes: list[Episode] = []
    seeds: list[int | None] = []
    tried = 0
    if path.exists():
        whole = Dataset.load(path)
        tried = _tried(path, whole, note, world)
        if len(whole) > count:
            raise RecordsError(
                f'{path} holds {len(whole)} operations already, more than the {count} asked for: '
                'ask for as many, or take another file'
            )
        if len(whole) == count:
            progress(count, count)
            return whole
        episodes, seeds = list(whole.episodes), list(whole.seeds)
    _check_folder(path.parent)
    parts = _Parts(path.with_name(path.name + '.parts'), world, note)
    limit = tried + _TRIES * (count - len(episodes)) + PART
    env = SurgeryEnv(settings=world)
    try:
        while len(episodes) < count:
            if tried >= limit:
                raise RecordsError(
                    f'of {tried} operations only {len(episodes)} are worth keeping, '
                    f'expected {count}'
                )
            found = parts.load(tried)
            if found is None:
                made = []
                for index in range(tried, tried + PART):
                    if stopped():
                        raise RecordingStopped(f'stopped before operation {index} of {path}')
                    made.append(operate(env, index))
                    kept = len(episodes) + sum(keep(each) for each, _ in made)
                    progress(min(kept, count), count)
                    if kept >= count:
                        break
                found = parts.save(tried, made)
            for episode, seed in zip(found.episodes, found.seeds, strict=True):
                tried += 1
                if keep(episode):
                    episodes.append(episode)
                    seeds.append(seed)
                if len(episodes) == count:
                    break
            progress(len(episodes), count)
    finally:
        env.close()
    dataset = record(path, episodes, world, seeds=seeds, note=f'{note}{_LAST}{tried - 1}')
    parts.remove()
    return dataset


def in_words(patients: PatientSource) -> str:
    """Say which patients these are, hospitals counted from 1."""
    if not isinstance(patients, Cohort):
        return repr(patients)
    who = 'public patients'
    if not patients.public:
        who = f'patients of hospital {patients.hospital + 1} of {patients.hospitals}'
    done = ', '.join(patients.procedures)
    return f'{who}, H = {patients.heterogeneity}, seed {patients.seed}, for {done}'


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


def _check_folder(folder: Path) -> None:
    """Refuse a place that nothing can be written to before anybody operates."""
    if not folder.is_dir():
        raise RecordsError(f'{folder} is no directory: make it first')
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecordsError(f'cannot write into {folder}: no permission')


def behaving(
    patients: PatientSource,
    world: WorldSettings,
    seed: int,
    split: str = 'train',
    *,
    choice: Choice | None = None,
    exploration: float = 0.0,
    procedure: str = '',
) -> Operate:
    """
    Return how somebody operates on patient after patient.

    :param seed: of the sensor's noise and of the random moves.
    :param split: 'train' or 'test' patients.
    :param choice: who operates; the expert unless given.
    :param exploration: share of ticks at which a random move is made instead.
    :param procedure: the only one that patients may have; empty for any.
    """

    def operate(env: SurgeryEnv, index: int) -> tuple[Episode, int]:
        patient = patients.patient(index, split)
        if procedure and patient.procedure.name != procedure:
            raise SettingError('patients', patient.procedure.name, f'all of {procedure}')
        moves = np.random.default_rng([Stream.RECORDING_MOVES, seed, index])

        def choose(state: np.ndarray) -> int:
            if exploration > 0.0 and moves.random() < exploration:
                return int(moves.integers(ACTION_COUNT))
            return choice(state) if choice is not None else expert(state, patient, world)[0]

        own = seed_of(seed, index)
        return recorded_episode(env, choose, patient, own), own

    return operate


def demonstrations(
    procedure: str,
    path: Path,
    count: int = 100,
    *,
    world: WorldSettings | None = None,
    patients: PatientSource | None = None,
    seed: int = 0,
    progress: Progress = _nothing,
    stopped: Callable[[], bool] = _never,
) -> Dataset:
    """
    Record the expert's successes in one procedure, as :func:`record_operations` does.

    Operations that fail are left out; the next patient takes their place.

    :param path: file to write.
    :param patients: all of this procedure; public ones at H = 0 unless given.
    :param seed: of public patients and of the sensor's noise.
    :raises SettingError: on an unknown procedure, or a patient of another one.
    """
    procedure_named(procedure)
    chosen = world or WorldSettings()
    source = patients or public_cohort(seed, procedures=(procedure,))

    return record_operations(
        path,
        behaving(source, chosen, seed, procedure=procedure),
        count=count,
        world=chosen,
        note=f'expert, successes alone, seed {seed}; {in_words(source)}',
        keep=lambda episode: episode.success,
        progress=progress,
        stopped=stopped,
    )


class _Parts:
    """The folder of an unfinished recording; a part that is broken or of another is made anew."""

    def __init__(self, folder: Path, world: WorldSettings, note: str) -> None:
        self._folder = folder
        self._world = world
        self._note = note

    def load(self, first: int) -> Dataset | None:
        """Return the part that begins with an operation, if it was finished."""
        try:
            part = Dataset.load(self._path(first))
        except RecordsError:
            return None
        same = (part.note, part.world) == (self._name(first), self._world)
        return part if same else None

    def save(self, first: int, made: list[tuple[Episode, int | None]]) -> Dataset:
        """Keep a finished part."""
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise RecordsError(f'cannot make {self._folder}: {error.strerror}') from error
        episodes, seeds = zip(*made, strict=True)
        return record(
            self._path(first), episodes, self._world, seeds=seeds, note=self._name(first)
        )

    def remove(self) -> None:
        """Forget all parts: the recording is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, first: int) -> Path:
        return self._folder / f'{first:06d}.npz'

    def _name(self, first: int) -> str:
        return f'part {first}: {self._note}'
