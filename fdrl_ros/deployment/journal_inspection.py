# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Compares the journals of a directory with what lies beside them: states, ledgers, policies."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fdrl_ros.crypto.keys.roster import ROSTER_MEMORY
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.ledger_inspection import inspect_file
from fdrl_ros.deployment.parties.hospital import LEDGER
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.federation.journal.comparison import Comparison
from fdrl_ros.federation.journal.journal import head_noted
from fdrl_ros.federation.key_authority.state import policies_kept
from fdrl_ros.policy import digest_of
from fdrl_ros.privacy.ledger.chain import Head

STATE = 'its state file'
_LEDGER = 'its privacy ledger'


@dataclass
class ComparedFiles:
    """What a party's journal was compared with, and what there was not to compare it with."""

    compared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class FilesBesideJournals:
    """
    What lies beside journals.

    A directory in which a party ran has all that it wrote. One into which somebody copied a
    journal alone has nothing else, and nothing is missing there.
    """

    def __init__(self, layout: Layout, names: Iterable[str]) -> None:
        """Read the heads that state files note, before the journals are read."""
        self._layout = layout
        self.problems: list[str] = []
        self.beside: dict[str, ComparedFiles] = {}
        self.noted: dict[str, Head] = {}
        """The head that each state file noted, by party."""
        self._unread: set[str] = set()
        for name in names:
            try:
                if (noted := head_noted(layout.state(name))) is not None:
                    self.noted[name] = noted
            except StoreError as error:
                self._unread.add(name)
                self.problems.append(
                    f'{error}; so the journal of {name} cannot be compared with it'
                )

    def judge(self, found: Comparison) -> None:
        """Compare journals that are whole with all that is here; they may grow meanwhile."""
        for name in found.parties:
            beside = self.beside[name] = ComparedFiles()
            self._judge_state(name, found, beside)
            self._judge_ledger(name, found, beside)
            if name == found.authority and STATE in beside.compared:
                self._judge_policies(name, found, beside)

    def _ran_here(self, name: str) -> bool:
        return (self._layout.party(name) / ROSTER_MEMORY).exists()

    def _judge_state(self, name: str, found: Comparison, beside: ComparedFiles) -> None:
        path, entries = self._layout.state(name), found.parties[name].head.entries
        if name in self._unread:
            beside.unread.append(STATE)
            return
        if not path.exists():
            beside.missing.append(STATE)
            if self._ran_here(name):
                self.problems.append(
                    f'the state file {path} is missing, and {name} ran here: put it back; '
                    'docs/journal.md says what happens without it'
                )
            return
        # Once more: who writes notes each entry before it writes the next.
        noted = head_noted(path)
        beside.compared.append(STATE)
        if noted is None or noted.entries < entries - 1:
            known = 0 if noted is None else noted.entries
            self.problems.append(
                f'the state file {path} knows of {known} of the {entries} entries of its journal: '
                'it was lost, or an older copy was put back'
            )

    def _judge_ledger(self, name: str, found: Comparison, beside: ComparedFiles) -> None:
        heads, path = found.ledgers.get(name), self._layout.party(name) / LEDGER
        if not heads:
            return
        if path.exists():
            beside.compared.append(_LEDGER)
            self.problems += inspect_file(path, heads).problems
            return
        beside.missing.append(_LEDGER)
        if self._ran_here(name):
            who, head = next(iter(heads.items()))
            self.problems.append(f'ledger {path} is missing, and {who} has its head {head}')

    def _judge_policies(self, name: str, found: Comparison, beside: ComparedFiles) -> None:
        path, (_, last), newest, count = self._layout.state(name), found.released, 0, 0
        try:
            for row, released in policies_kept(path):
                newest = max(newest, released.round)
                told = found.policies.get(released.round)
                count += told is not None
                if told is not None and told != digest_of(released.weights).hex():
                    self.problems.append(
                        f'{path}: {row!r} is not the policy that was released in round '
                        f'{released.round}'
                    )
        except FdrlError as error:
            self.problems.append(f'{path}: its policies cannot be read: {error}')
            return
        if newest < last:
            self.problems.append(
                f'{path}: its newest policy is of round {newest}, and its journal tells of the '
                f'release of {last}'
            )
        if count:
            beside.compared.append('the policies in it')
