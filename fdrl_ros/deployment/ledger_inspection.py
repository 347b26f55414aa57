# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the ledgers of a federation's directory hold, and whether everyone who saw them agrees."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
import os
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties import hospital as hospitals
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, LedgerError, PrivacyError
from fdrl_ros.federation.protocol.ledger_watch import heads_seen
from fdrl_ros.learner.checkpoint import recorded_ledger_head
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.account import charged_by_others, missing_entry, Note
from fdrl_ros.privacy.ledger.chain import Chain, Head, Owner
from fdrl_ros.privacy.ledger.content import LedgerContent, read_content


@dataclass(frozen=True)
class Inspection:
    """
    A ledger, and what is wrong with it.

    :param name: of the hospital.
    :param record: what it holds; None where there is none, or it cannot be read.
    :param seen: heads that it must go on from, by who saw them.
    :param problems: sentences that begin with the path; none if the ledger is whole.
    :param uncompared: why heads that others may have seen of it are not known.
    :param account: the shared account that it charges, if there is one that can be read.
    """

    name: str
    record: LedgerContent | None
    seen: dict[str, Head]
    problems: tuple[str, ...]
    uncompared: tuple[str, ...] = ()
    account: LedgerContent | None = None

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Everything for which the ledger cannot be called whole."""
        return *self.problems, *self.uncompared


def inspect_file(path: Path, seen: dict[str, Head], expected: Owner | None = None) -> Inspection:
    """
    Read a ledger file without touching it.

    :param seen: heads that it must go on from, by who saw them.
    :param expected: whose ledger it must be; anyone's if None.
    """
    try:
        record = read_content(path)
    except LedgerError as error:
        return Inspection(path.name, None, seen, (str(error),))
    owner, chain = record.chain.owner, record.chain
    found = record.problems()
    if expected is not None and (difference := owner.difference_from(expected)):
        found.append(difference)
    for who, head in seen.items():
        if problem := chain.contradiction(head):
            found.append(f'{problem} (seen by {who})')
    problems = [f'ledger {path} {problem}' for problem in found]
    account, wrong = _account_of(path, chain)
    name = owner.hospital or path.name
    return Inspection(name, record, seen, (*problems, *wrong), account=account)


def _account_of(path: Path, chain: Chain) -> tuple[LedgerContent | None, list[str]]:
    """Read the shared account that a ledger charges, after the ledger; say what is wrong."""
    try:
        if (note := Note.read(path)) is None:
            return None, []
        record = read_content(note.path)
    except PrivacyError as error:
        return None, [str(error)]
    held = record.chain
    found = (*record.problems(), held.contradiction(note.head), missing_entry(held, chain))
    return record, [f'account {note.path} {problem}' for problem in found if problem]


def inspect_hospital(layout: Layout, name: str, plan: Plan) -> Inspection:
    """Read a hospital's ledger and compare it with all heads that parties here remember."""
    path = layout.party(name) / hospitals.LEDGER
    # First what was seen, then the ledger: a hospital that trains meanwhile only adds to it.
    seen, uncompared = _seen(layout, name, plan)
    if os.path.lexists(path):
        found = inspect_file(path, seen, hospitals.ledger_owner(name, plan))
        return replace(found, name=name, uncompared=uncompared)
    problems: tuple[str, ...] = ()
    try:
        hospitals.check_not_lost(layout.party(name), plan)
    except FdrlError as error:
        problems = (str(error),)
    if not problems and seen and layout.state(name).exists():
        who, head = next(iter(seen.items()))
        problems = (f'ledger {path} is missing, and {who} saw its head {head}',)
    return Inspection(name, None, seen, problems, uncompared)


def charged_so_far(
    layout: Layout | None, name: str, plan: Plan
) -> tuple[Chain | None, tuple[Charge, ...]]:
    """
    Return a hospital's ledger, and what other federations charged to its account, if it has one.

    :param layout: of the federation; None for a new one.
    :returns: None and nothing where nothing can be read: the hospital refuses a damaged ledger
        when it opens it.
    """
    chain, place = None, plan.privacy.account_of(name)
    try:
        if layout and (path := layout.party(name) / hospitals.LEDGER).exists():
            chain = read_content(path).chain
            if note := Note.read(path):
                place = note.path
        if place is None or not place.exists():
            return chain, ()
        account = read_content(place).chain
    except (PrivacyError, OSError):
        return chain, ()
    return chain, charged_by_others(account, chain.owner if chain else None)


def _seen(layout: Layout, name: str, plan: Plan) -> tuple[dict[str, Head], tuple[str, ...]]:
    """Return the heads of a hospital's ledger by who remembers them, and who cannot tell."""
    home = layout.party(name)
    witnesses: dict[str, Callable[[], Head | None]] = {
        'its last update': lambda: hospitals.last_sent(home),
        **{
            f'its {each.replace("_", " ")}': partial(recorded_ledger_head, home / each)
            for each in hospitals.CHECKPOINTS
        },
        'the aggregator': lambda: heads_seen(layout.state('aggregator')).get(name),
        'the key authority': lambda: heads_seen(layout.state('key_authority')).get(name),
    }
    seen, problems = {}, []
    for who, ask in witnesses.items():
        try:
            if (head := ask()) is not None:
                seen[who] = head
        except FdrlError as error:
            problems.append(f'{error}; so {name} cannot be compared with {who}')
    return seen, tuple(problems)
