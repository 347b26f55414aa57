# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A study: many independent parts, each a pure function of its settings, measured once and kept.

Every experiment over several seeds is a :class:`Study`. Its parts run in worker processes; each
finished part is one JSON file with its settings and the versions that made it. A study that was
interrupted reads what is finished and measures the rest. To add a study, write a function that
measures one part and a list of :class:`Part`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
import hashlib
import json
from pathlib import Path
import shutil
import tempfile
import time

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.experiments.json_file import from_json, Json, json_text, write_json
from fdrl_ros.experiments.reports.versions import commit, versions
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.runtime.progress import Caller, NOBODY, Progress, Report
from fdrl_ros.runtime.worker_processes import run_tasks

PART_FORMAT = 1
"""Format of a part's file; files without one are older and hold the same names."""

HEADER = 'study'
"""Name in a part's file of its format, study, digest of settings, and versions."""

_IRRELEVANT = ('workers',)
"""Settings that change no result, wherever they stand."""


@dataclass
class Work:
    """
    What a part is given beside its arguments while it is measured.

    :param directory: for checkpoints; without any at first, kept after an interruption, removed
        at the end. A part of other settings never gets it.
    :param progress: what and who the part's progress is of.
    """

    directory: Path
    progress: tuple[str, str]
    caller: Caller
    total: int = 1

    def tell(self, done: int, total: int, detail: str = '') -> None:
        """Report progress; the end is reported once the part is written."""
        self.total = total
        if done < total:
            self.caller.report(Progress(*self.progress, done, total, detail))

    def check(self) -> None:
        """
        Stop here if the user asked to.

        :raises TrainingStopped: if so.
        """
        self.caller.check()


Measure = Callable[..., Json]
"""
Measures one part: takes the part's arguments and the keyword `work`, a :class:`Work`; returns
what came out. Worker processes import it by its name.
"""


@dataclass(frozen=True)
class Part:
    """
    One part of a study.

    :param name: of its file, without suffix.
    :param settings: all that its result depends on, by names that its file holds too.
    :param arguments: of the function that measures it.
    :param title: in progress; the name unless given.
    :param effort: how long it takes, in any unit.
    """

    name: str
    settings: Mapping[str, object]
    arguments: tuple[object, ...]
    title: str = ''
    effort: float = 1.0


@dataclass(frozen=True)
class Study:
    """
    Where parts are kept and how they are measured.

    :param name: of the study, in progress and files.
    :param directory: of the parts, made if it is not there; None keeps nothing.
    :param measure: called with a part's arguments.
    :param validate: raises KeyError, TypeError or ValueError where something is missing in a
        result that was read.
    :param workers: processes that measure at once.
    """

    name: str
    directory: Path | None
    measure: Measure
    validate: Callable[[Json], object] = dict
    workers: int = 1

    def finished(self, parts: Sequence[Part]) -> list[Json | None]:
        """
        Read finished parts; None where there is none.

        :raises StoreError: if one is damaged, or of other settings.
        """
        if self.directory is None:
            return [None] * len(parts)
        return [self._read(self.directory / f'{each.name}.json', each) for each in parts]

    def run(self, parts: Sequence[Part], caller: Caller = NOBODY) -> list[Json]:
        """
        Measure what is not finished, and return the results in the order of the parts.

        :raises TrainingStopped: as soon as the caller says so; call it again to go on.
        :raises StoreError: if a part is damaged, or of other settings, or cannot be written.
        """
        with os_errors_as(StoreError, f'cannot make {self.directory}'):
            if self.directory is not None:
                self.directory.mkdir(parents=True, exist_ok=True)
        found = self.finished(parts)
        missing = [each for each, result in zip(parts, found, strict=True) if result is None]
        measured = run_tasks(
            _measure,
            [(replace(self, validate=dict), each) for each in missing],
            workers=self.workers,
            caller=replace(caller, report=_Overall(self.name, len(parts), missing, caller.report)),
        )
        fresh = iter(measured)
        return [next(fresh) if each is None else each for each in found]

    def _read(self, path: Path, part: Part) -> Json | None:
        if not path.exists():
            return None
        try:
            result: Json = from_json(path.read_text('utf-8'))
            header = result.pop(HEADER, {'format': 0})
            if header['format'] > PART_FORMAT:
                raise StoreError(
                    f'{path} has format {header["format"]}, of a newer fdrl_ros: update, or take '
                    'another directory'
                )
            kept = {name: result.get(name) for name in part.settings}
            changed = _difference(_comparable(kept), _comparable(dict(part.settings)))
            if not changed:
                self.validate(result)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f'{path} cannot be read: {error}; remove it to run it again'
            ) from error
        if changed:
            raise StoreError(
                f'{path} is of other settings ({changed}): remove it, or take another directory'
            )
        return result


class _Overall:
    """Pass progress of parts on, with that of the whole study and the time that is left."""

    def __init__(self, name: str, total: int, missing: Sequence[Part], report: Report) -> None:
        self._name, self._total, self._report = name, total, report
        self._efforts = {title_of(each): each.effort for each in missing}
        self._left, self._done = sum(self._efforts.values()), 0.0
        self._count, self._began = total - len(missing), time.perf_counter()
        if missing:
            self._report_total('')

    def __call__(self, progress: Progress) -> None:
        """Take progress of a part."""
        self._report(progress)
        if progress.what != part_progress(self._name) or progress.done < progress.total:
            return
        effort = self._efforts[progress.who]
        self._count, self._done, self._left = (
            self._count + 1,
            self._done + effort,
            self._left - effort,
        )
        elapsed = time.perf_counter() - self._began
        self._report_total(
            left_words(elapsed * self._left / self._done) if self._left > 1e-9 else ''
        )

    def _report_total(self, words: str) -> None:
        self._report(Progress(self._name, 'all parts', self._count, self._total, words))


def part_progress(name: str) -> str:
    """Return what the progress of a study's parts is called."""
    return f'{name} part'


def title_of(part: Part) -> str:
    """Return what a part is called in progress."""
    return part.title or part.name


def left_words(seconds: float) -> str:
    """Write a time to wait, as exactly as it can be known."""
    if seconds < 90.0:
        return f'about {max(10.0, 10.0 * round(seconds / 10.0)):.0f} s left'
    if seconds < 5400.0:
        return f'about {seconds / 60.0:.0f} min left'
    return f'about {seconds / 3600.0:.1f} h left'


def _measure(study: Study, part: Part, caller: Caller) -> Json:
    """Measure one part and keep it; runs in a worker process."""
    progress = (part_progress(study.name), title_of(part))
    if study.directory is None:
        folder = Path(tempfile.mkdtemp())
    else:
        folder = _unfinished(study.directory, part)
    work = Work(folder, progress, caller)
    try:
        result = study.measure(*part.arguments, work=work)
    finally:
        if study.directory is None:
            shutil.rmtree(folder, ignore_errors=True)
    content: Json = from_json(json_text({**part.settings, **result}))
    if study.directory is not None:
        header = {
            'format': PART_FORMAT,
            'name': study.name,
            'settings_digest': digest_of(part.settings),
            'commit': commit(),
            'versions': versions(),
        }
        write_json(study.directory / f'{part.name}.json', {HEADER: header, **content})
        shutil.rmtree(folder, ignore_errors=True)
    caller.report(Progress(*progress, work.total, work.total))
    return content


def commits_of(parts: Iterable[Path]) -> list[str]:
    """
    Return the commits of the code that measured some parts, each once.

    :raises StoreError: if a part cannot be read.
    """
    found = set()
    for path in parts:
        try:
            found.add(from_json(path.read_text('utf-8'))[HEADER].get('commit', 'unknown'))
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(f'{path} cannot be read: {error}; remove it') from error
    return sorted(found)


def _unfinished(directory: Path, part: Part) -> Path:
    """
    Return the folder for a part's checkpoints, made if it is not there.

    :raises StoreError: if it is of other settings.
    """
    folder = directory / f'{part.name}.unfinished'
    mark, digest = folder / 'settings_digest', digest_of(part.settings)
    with os_errors_as(StoreError, f'cannot make {folder}'):
        folder.mkdir(exist_ok=True)
        if not mark.exists():
            write_whole(mark, digest.encode())
        same = mark.read_bytes() == digest.encode()
    if not same:
        raise StoreError(f'{folder} is of other settings: remove it, or take another directory')
    return folder


def chosen_settings(plan: Plan, *groups: str, **some: Collection[str]) -> Json:
    """
    Return what a result depends on of a plan's settings, as its file holds them.

    :param groups: whole groups.
    :param some: settings of a group, by the group.
    """
    every = plan.to_mapping()
    return {name: every[name] for name in groups} | {
        group: {name: every[group][name] for name in names} for group, names in some.items()
    }


def digest_of(settings: Mapping[str, object]) -> str:
    """Return a hash over settings, hexadecimal; those that change no result do not count."""
    return hashlib.sha256(json.dumps(_comparable(settings), sort_keys=True).encode()).hexdigest()


def _difference(kept: object, asked: object, name: str = '') -> str:
    """Say which setting differs first, and how; empty if none does."""
    if isinstance(kept, Mapping) and isinstance(asked, Mapping):
        for key in asked:
            if words := _difference(kept.get(key), asked[key], f'{name}.{key}'.lstrip('.')):
                return words
        return ''
    return '' if kept == asked else f'{name} was {kept!r}, is {asked!r}'


def _comparable(value: object) -> object:
    """Return settings as JSON reads them back, without those that change no result."""
    if isinstance(value, Mapping):
        return {k: _comparable(v) for k, v in value.items() if k not in _IRRELEVANT}
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    return value
