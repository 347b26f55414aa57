# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compares the round journals of all parties: what was released is what was sent, and was taken.

Rounds are compared band by band, so that memory does not grow with the length of the journals.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.errors import JournalError
from fdrl_ros.federation.journal.reader import Entry, JournalReader, Progress
from fdrl_ros.privacy.ledger.chain import Head

BAND_ENTRIES = 2**16
"""Updates of a band of rounds that are kept in memory at once, about."""

POLICIES = 100
"""Rounds, from the last, of whose policies the digests are kept."""

MOST_PROBLEMS = 100
"""Problems that are told; what is beyond is counted."""

_OFTEN = 256  # entries after which progress is told

AttemptId = tuple[int, int]  # a round and the attempt at it


class Blamed(NamedTuple):
    """A hospital that was left out, and what it did, in words."""

    round: int
    hospital: str
    fault: str


@dataclass
class Comparison:
    """
    What verifying all journals of a federation found.

    :param parties: the journals that are whole, by party.
    :param problems: sentences; none if everything fits.
    :param remarks: what could not be compared, and why.
    :param blamed: who noted a blame, by the hospital that was blamed, its fault in words, and the
        first round.
    :param released: the first and the last round released, (0, 0) for none.
    :param compared: updates in releases that were compared with what their hospital sent.
    :param omitted: how many more problems there are.
    :param authority: name of the key authority, if its journal is here.
    :param policies: digests of the newest policies that were released, by round.
    :param ledgers: newest heads of each hospital's privacy ledger, by whose journal tells them.
    """

    parties: dict[str, JournalReader] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    blamed: dict[Blamed, list[str]] = field(default_factory=dict)
    released: tuple[int, int] = (0, 0)
    compared: int = 0
    omitted: int = 0
    authority: str = ''
    policies: dict[int, str] = field(default_factory=dict)
    ledgers: dict[str, dict[str, Head]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, problem: str) -> None:
        """Note a problem."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.omitted += 1


@dataclass
class _Band:
    """
    What the journals tell of some rounds.

    :param said: what was sent, signed and settled, by kind of entry, hospital and attempt.
    :param taken: policies by their hospital, and whether the key authority's journal must have it.
    """

    releases: list[Entry] = field(default_factory=list)
    said: dict[tuple[str, str, AttemptId], set[object]] = field(
        default_factory=lambda: defaultdict(set)
    )
    taken: list[tuple[str, Entry, bool]] = field(default_factory=list)


class _BandReader:
    """One journal, read up to a round at a time; what is wrong with it is told."""

    def __init__(self, journal: JournalReader, found: Comparison) -> None:
        self.journal, self._found = journal, found
        self.broken = False
        # What is beyond is written while others are read: it may be ahead of them.
        self.size = journal.path.stat().st_size if journal.path.exists() else 0
        self.next: tuple[Entry, bool] | None = None
        with closing(journal.entries()) as entries:
            self._advance(entries)

    def before(self, round: int) -> Iterator[tuple[Entry, bool]]:
        """
        Yield the entries that follow, up to the first of that round or a later one.

        :returns: each with whether it was there when the comparison began.
        """
        with closing(self.journal.entries()) as entries:  # no file is open between two bands
            while self.next is not None and self.next[0].round < round:
                found = self.next
                self._advance(entries)
                yield found

    def _advance(self, entries: Iterator[Entry]) -> None:
        """Look at the entry that follows."""
        self.next = None
        try:
            if (entry := next(entries, None)) is not None:
                self.next = entry, self.journal.place.end <= self.size
        except JournalError as error:
            self.broken = True
            self._found.add(str(error))


def compare(
    journals: Mapping[str, Path],
    roster: Roster,
    *,
    seen: Mapping[str, Mapping[str, Head]],
    quick: bool = False,
    progress: Progress = lambda done: None,
) -> Comparison:
    """
    Verify every journal and compare them round by round, also while their parties write them.

    :param journals: files by the name of their party.
    :param roster: of today, whose keys sign the end of each journal.
    :param seen: heads that a party's journal must have had, by who saw them.
    :param quick: check the last signature of each key alone, which covers all before it.
    :param progress: told how many bytes were read.
    """
    members = [each for each in roster.members if each.name in journals]
    authority = next((each.name for each in members if each.role == 'key_authority'), '')
    found, federation = Comparison(authority=authority), roster.federation
    readers = {}
    # The key authority's last: what is in the others by then, it has released.
    for name in sorted(journals, key=lambda name: name == authority):
        told = seen.get(name, {})
        journal = JournalReader(journals[name], name, federation, seen=told, quick=quick)
        readers[name] = _BandReader(journal, found)
    return _Comparer(found, readers, roster, progress).run()


class _Comparer:
    """The work of :func:`compare`."""

    def __init__(
        self,
        found: Comparison,
        readers: dict[str, _BandReader],
        roster: Roster,
        progress: Progress,
    ) -> None:
        self._found, self._readers, self._roster = found, readers, roster
        self._progress = progress
        self._roles = {member.name: member.role for member in roster.members}
        self._known = self._roles.keys() | {each.name for each in roster.revoked}
        self._heads: dict[tuple[str, str], str] = {}
        """Newest ledger head in a journal, by hospital and whose journal."""
        self._read = 0
        self._start = ''
        """Digest of the policy that round 1 began from, if that is known."""
        self._policies: dict[int, tuple[str, frozenset[str]]] = {}
        """Digest and contributors by round, of this band and the one before."""
        self._newest: Entry | None = None
        self._earlier: set[int] = set()
        """The first 64 bits of the digest of every policy so far, which a roll-back may name."""

    def run(self) -> Comparison:
        """Compare everything."""
        found, readers = self._found, self._readers.values()
        width = max(64, BAND_ENTRIES // len(self._roster.hospitals))
        while waiting := [each.next[0].round for each in readers if each.next]:
            end = min(waiting) + width
            band = _Band()
            for name, reader in self._readers.items():
                for entry, early in reader.before(end):
                    self._note(band, name, entry, early)
            before = self._policies
            self._policies = {}
            self._judge_releases(band)
            self._judge_taken(band, before | self._policies)
        for name, reader in self._readers.items():
            if not reader.broken:
                self._summarise(name, reader)
        wanted = {name for name, role in self._roles.items() if role != 'operator'}
        if missing := sorted(wanted - self._readers.keys()):
            found.remarks.append(f'no journal here of {", ".join(missing)}')
        for (name, who), head in self._heads.items():
            found.ledgers[name][who] = Head.parse(head)
        return found

    def _note(self, band: _Band, name: str, entry: Entry, early: bool) -> None:
        """Sort an entry into the band, if its party is one that writes such."""
        self._read += 1
        if self._read % _OFTEN == 0:
            self._progress(sum(each.journal.place.end for each in self._readers.values()))
        fields, at = entry.fields, (entry.round, entry.attempt)
        match self._roles.get(name, 'hospital'), entry.kind:
            case 'aggregator' | 'hospital', 'blame':
                blamed = Blamed(entry.round, fields['hospital'], fields['fault'])
                if len(self._found.blamed) < MOST_PROBLEMS or blamed in self._found.blamed:
                    self._found.blamed.setdefault(blamed, []).append(name)
            case 'key_authority', 'release' if early:
                band.releases.append(entry)
            case 'aggregator', 'settle':
                band.said['settle', '', at].add(frozenset(fields['survivors']))
            case 'hospital', 'sent':
                band.said['sent', name, at].add((fields['update'], fields['ledger']))
                self._heads[name, 'its journal'] = fields['ledger']
            case 'hospital', 'signed':
                band.said['signed', name, at].add(frozenset(fields['survivors']))
            case 'hospital', 'policy':
                band.taken.append((name, entry, early))

    def _judge_releases(self, band: _Band) -> None:
        """Compare each release with the one before, and with what was sent and signed."""
        for entry in band.releases:
            last, round, fields = self._newest, entry.round, entry.fields
            if last is not None and round == last.round:
                if (entry.attempt, fields) != (last.attempt, last.fields):
                    self._found.add(f'round {round}: the key authority released two policies')
                continue
            if last is None:
                self._found.released = (round, round)
                self._start = fields['before'] if round == 1 else ''
            elif round != last.round + 1:
                self._found.add(
                    f'round {round}: the key authority released it after round {last.round}'
                )
            elif fields['before'] != last.fields['policy']:
                self._found.add(f'round {round}: began from another policy than was released')
            self._newest = entry
            self._found.released = (self._found.released[0], round)
            contributors = frozenset(fields['contributors'])
            self._policies[round] = fields['policy'], contributors
            found = self._found
            found.policies[round] = fields['policy']
            found.policies.pop(round - POLICIES, None)
            self._judge_policy(entry)
            if contributors:
                self._judge_contributors(band, entry, contributors)

    def _judge_policy(self, entry: Entry) -> None:
        """See that a policy is of updates, or else one that was there before."""
        fields = entry.fields
        policy, before = (int(fields[name][:16], 16) for name in ('policy', 'before'))
        self._earlier.add(before)
        old = fields['rolled_back'] or not fields['contributors']
        if old and policy not in self._earlier and self._found.released[0] == 1:
            self._found.add(f'round {entry.round}: neither of updates nor a policy of before')
        self._earlier.add(policy)

    def _judge_contributors(self, band: _Band, entry: Entry, contributors: frozenset[str]) -> None:
        """Compare what was summed with what its hospitals sent and who signed."""
        at, add = (entry.round, entry.attempt), self._found.add
        settled = band.said.get(('settle', '', at))
        if settled is not None and contributors not in settled:
            add(f'round {entry.round}: released for others than the aggregator settled on')
        for name, part in entry.fields['contributors'].items():
            self._heads[name, "the key authority's journal"] = part['ledger']
            if name not in self._known:
                add(f'round {entry.round}: {name} was never a member of the federation')
            if name not in self._readers or self._readers[name].broken:
                continue
            self._found.compared += 1
            sent = band.said.get(('sent', name, at), set())
            if (part['update'], part['ledger']) not in sent:
                updates = (each[0] for each in sent if isinstance(each, tuple))
                what = 'ledger head' if part['update'] in updates else 'update'
                add(f'round {entry.round}: {name} did not send the {what} that was released')
            signed = band.said.get(('signed', name, at))
            if signed is not None and contributors not in signed:
                add(f'round {entry.round}: {name} signed other survivors than were released')

    def _judge_taken(self, band: _Band, policies: dict[int, tuple[str, frozenset[str]]]) -> None:
        """Compare what hospitals took with what was released."""
        authority = self._readers.get(self._found.authority)
        if authority is None or authority.broken:
            return
        add = self._found.add
        first, last = self._found.released
        for hospital, entry, early in band.taken:
            round, policy = entry.round, entry.fields['policy']
            if round in policies:
                released, contributors = policies[round]
                if policy != released:
                    add(f'round {round}: {hospital} took another policy than was released')
                elif entry.fields['included'] != (hospital in contributors):
                    add(f'round {round}: {hospital} took it with another list of contributors')
            elif round == 0 and self._start:
                if policy != self._start:
                    add(f'round 0: {hospital} began from another policy than the key authority')
            elif round > last and early:
                add(f'round {round}: {hospital} took a policy that was never released')
            elif last and first <= round <= last:
                add(f'round {round}: {hospital} took its policy long after, or it is missing')

    def _summarise(self, name: str, reader: _BandReader) -> None:
        """Check whose keys signed, once the whole journal was read."""
        ended = {each.public: each.serial for each in self._roster.revoked if each.name == name}
        keys = set(ended)
        if name in self._roles:
            keys.add(self._roster.member(name).public)
        try:
            reader.journal.check_keys(keys)
        except JournalError as error:
            reader.broken = True
            self._found.add(str(error))
            return
        journal = self._found.parties[name] = reader.journal
        if journal.keys and (serial := ended.get(journal.keys[-1])):
            self._found.remarks.append(
                f'{name} signs with a key that roster {serial} revoked'
                + ('; its next start brings in the new one' if name in self._roles else '')
            )
        if journal.cut_short:
            self._found.remarks.append(
                f'{name}: a half line after its last entry; it is being written, or was cut short '
                'and goes with the next start'
            )
