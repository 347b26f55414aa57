# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A robot's policies on disk: each as its sender signed it, with its test and its value model.

What is read is checked again, signature and digest. What cannot be used is put aside, and nothing
else is lost by it.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
import json
from pathlib import Path
from typing import TypeVar

from fdrl_ros.errors import FdrlError, MessageError, PolicyError
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy, message_from_bytes
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.durable import exclusive, make_private_directory, write_whole
from fdrl_ros.selector.candidates.candidate import HOLD
from fdrl_ros.selector.candidates.registry import name_of, PolicyRegistry, Released, Version
from fdrl_ros.selector.candidates.safety_limits import SafetyReport
from fdrl_ros.selector.candidates.supervision import Supervision
from fdrl_ros.selector.value.model import ValueModel
from fdrl_ros.surgery.data.json_dataclasses import from_plain

POLICIES = 'policies'
"""Folder of them, in the robot's directory."""

ASIDE = 'aside'
"""Folder below it of files that could not be used."""

VALUED_FOR = 'valued_for.json'
"""File of the digests of the policies that tell how far off the robot is that values are for."""

_NOTHING = Supervision()

T = TypeVar('T')
Problems = list[tuple[Path, Exception]]
"""Files that are there and cannot be used, and why."""


class PolicyFiles:
    """The files of one robot's policies; it belongs to one thread at a time."""

    def __init__(self, robot: Path) -> None:
        """
        Make the folder, for the owner alone.

        :param robot: the robot's directory.
        :raises KeyFileError: if it cannot be made, or others may enter it.
        """
        self.folder = robot / POLICIES
        make_private_directory(self.folder)

    def lock(self) -> ExitStack:
        """
        Keep other processes from writing here until what is returned is closed.

        :raises StoreBusyError: if another one, a node or a command, does.
        :raises StoreError: if the files cannot be used.
        """
        return exclusive(self.folder)

    def model(self, digest: str, fitted_with: str = '') -> Path:
        """
        Return the file of a policy's value model.

        :param fitted_with: hash over all that value models depend on beside their policy; those
            fitted with something else are left alone.
        """
        return self.folder / f'value_{digest[:16]}_{fitted_with[:16]}.npz'

    def report(self, digest: str) -> Path:
        """Return the file of what the test of a policy found."""
        return self.folder / f'safety_{digest[:16]}.json'

    def path(self, version: Version) -> Path:
        """Return the file of a policy itself."""
        return self.folder / _file_name(version.message)

    def save(self, version: Version) -> None:
        """
        Write a policy as it was signed; it is on the disk at the end.

        :raises StoreError: if it cannot be written.
        """
        came = json.dumps({'came': version.came}).encode()
        write_whole(self.path(version), came + b'\n' + version.message.to_bytes())

    def save_report(self, report: SafetyReport) -> None:
        """
        Write what the test of a policy found.

        :raises StoreError: if it cannot be written.
        """
        write_whole(self.report(report.policy), json.dumps(asdict(report), indent=1).encode())

    def save_model(self, digest: str, data: bytes, fitted_with: str = '') -> None:
        """
        Write a value model.

        :raises StoreError: if it cannot be written.
        """
        write_whole(self.model(digest, fitted_with), data)

    def save_known(self, known: Sequence[Policy]) -> None:
        """
        Write which policies tell how far the robot is off, for which the values in use are.

        :raises StoreError: if it cannot be written.
        """
        digests = [each.digest.hex() for each in known]
        write_whole(self.folder / VALUED_FOR, json.dumps(digests).encode())

    def load_known(
        self, policies: Iterable[Policy], problems: Problems | None = None
    ) -> tuple[Policy, ...] | None:
        """
        Return those among policies that :meth:`save_known` wrote; None if one is not there.

        :param problems: to which a file that cannot be used is added.
        """
        by_digest = {each.digest.hex(): each for each in policies}

        def read(data: bytes) -> list[Policy | None]:
            digests = json.loads(data)
            if not isinstance(digests, list) or not all(isinstance(x, str) for x in digests):
                raise PolicyError('expected digests')
            return [by_digest.get(each) for each in digests]

        found = _read_checked(self.folder / VALUED_FOR, read, problems)
        if found is None or None in found:
            return None
        return tuple(each for each in found if each is not None)

    def load_report(self, digest: str, problems: Problems | None = None) -> SafetyReport | None:
        """
        Return what the test of a policy found; None if there is no whole file of it.

        :param problems: to which one that cannot be used is added.
        """

        def read(data: bytes) -> SafetyReport:
            report = from_plain(SafetyReport, json.loads(data))
            if report.policy != digest:
                raise PolicyError(f'safety report of policy {report.policy}: expected {digest}')
            return report

        return _read_checked(self.report(digest), read, problems)

    def load_model(
        self, digest: str, problems: Problems | None = None, fitted_with: str = ''
    ) -> ValueModel | None:
        """
        Return the value model of a policy; None if there is no whole one.

        :param problems: to which one that cannot be used is added.
        """
        return _read_checked(
            self.model(digest, fitted_with),
            lambda data: ValueModel.from_bytes(data, digest),
            problems,
        )

    def load(
        self,
        registry: PolicyRegistry,
        supervision: Supervision = _NOTHING,
        fitted_with: Callable[[Sequence[Policy]], str] = lambda known: '',
        *,
        put_aside: bool = True,
    ) -> list[str]:
        """
        Fill a registry with all policies that are here, with their tests and models.

        The values are those that were in use. A test or model that is damaged or missing is found
        out anew by whoever asks the registry what is pending.

        :param supervision: in force.
        :param fitted_with: returns the hash over what models are fitted with, given the policies
            that tell how far the robot is off.
        :param put_aside: whether to do so; who only looks does not.
        :returns: sentences on the files that cannot be used.
        """
        problems: Problems = []
        found: list[tuple[int, int, Path, float, Released]] = []
        for path in sorted(self.folder.glob('*.policy')):
            try:
                came, message = _read_policy(path)
                order = message.envelope.round, message.envelope.counter
                found.append((*order, path, came, message))
            except (OSError, ValueError, FdrlError) as error:
                problems.append((path, error))
        for _, _, path, came, message in sorted(found, key=lambda each: each[:3]):
            try:
                registry.receive(message, came)
            except MessageError as error:
                problems.append((path, error))
        for version in registry.versions:
            try:
                if report := self.load_report(version.digest, problems):
                    registry.add_report(version, report)
            except PolicyError:
                continue
        known = self.load_known((each.policy for each in registry.versions), problems)
        if known is None:
            known = tuple(each.policy for each in registry.calibrated(supervision))
        settings = fitted_with(known)
        registry.value_with(settings, known)
        registry.use_newer_values(supervision)
        for each in (None, *registry.versions):
            digest = each.digest if each else HOLD
            try:
                if model := self.load_model(digest, problems, settings):
                    registry.add_model(each, model)
            except PolicyError:
                continue
        if not put_aside:
            return [f'{path} cannot be used: {error}' for path, error in problems]
        return [self._put_aside(path, error) for path, error in problems]

    def remove(self, versions: Iterable[Version], left: Iterable[Version]) -> None:
        """
        Remove the files of versions that were forgotten.

        :param left: those that stay; the same weights may be there under another name.
        """
        needed = {each.digest for each in left}
        for each in versions:
            self.path(each).unlink(missing_ok=True)
            if each.digest not in needed:
                for model in self.folder.glob(f'value_{each.digest[:16]}_*.npz'):
                    model.unlink(missing_ok=True)
                self.report(each.digest).unlink(missing_ok=True)

    def _put_aside(self, path: Path, error: Exception) -> str:
        aside = self.folder / ASIDE
        try:
            make_private_directory(aside)
            path.replace(aside / path.name)
        except (OSError, FdrlError) as again:
            return f'{path} cannot be used ({error}), nor put aside ({again})'
        return f'{path.name} cannot be used, and is in {aside} now: {error}'


def _read_checked(path: Path, read: Callable[[bytes], T], problems: Problems | None) -> T | None:
    """Return what a file holds; None if it is not there, or cannot be used."""
    try:
        return read(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, FdrlError) as error:
        if problems is not None and all(path != each for each, _ in problems):
            problems.append((path, error))
        return None


def _file_name(message: Released) -> str:
    return f'{name_of(message)}_{message.digest.hex()[:16]}.policy'


def _read_policy(path: Path) -> tuple[float, Released]:
    """Read one file, without looking at who signed it."""
    line, data = path.read_bytes().split(b'\n', 1)
    message = message_from_bytes(data)
    if not isinstance(message, GlobalPolicy | HospitalPolicy):
        raise PolicyError(f'a {type(message).__name__} is no policy')
    came = json.loads(line)['came'] if line.startswith(b'{') else None
    if not isinstance(came, int | float):
        raise PolicyError('it does not say when it came')
    if path.name != _file_name(message):
        raise PolicyError(f'it is {_file_name(message)}')
    return float(came), message
