# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl privacy`: what hospitals have spent, out of their ledgers, and whether to believe it."""

from collections.abc import Sequence
import math
from pathlib import Path

import click
from fdrl_ros.cli.options import json_option, plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console, counted, echo_json, fail_if
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.deployment.layout import Layout, MAKERS
from fdrl_ros.deployment.ledger_inspection import inspect_file, inspect_hospital, Inspection
from fdrl_ros.deployment.parties.hospital import LEDGER
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PrivacyError, StoreError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.run_table import shared_patients
from fdrl_ros.experiments.reports.text_table import NOT_PRIVATE
from fdrl_ros.federation.protocol.ledger_watch import heads_seen
from fdrl_ros.learner.home import ledger_words
from fdrl_ros.learner.privacy_cost import calibrated, RecordCounts
from fdrl_ros.privacy.accountant.accountant import sum_guarantees
from fdrl_ros.privacy.ledger.account import ACCOUNT, parts
from fdrl_ros.privacy.ledger.chain import Chain, Head
from fdrl_ros.privacy.ledger.content import LedgerContent
from fdrl_ros.privacy.stated import stated

HEADINGS = ('entry', 'round', 'block', 'sigma', 'q', 'steps', 'group', 'epsilon <=', 'hash')

_PATH = click.argument('path', type=click.Path(path_type=Path))


@click.group()
def privacy() -> None:
    """
    Show and verify the privacy ledgers of hospitals.

    A ledger is one file, ledger.sqlite, in its hospital's directory. Nothing is trained unless
    the ledger was charged for it first, so the file is the only record of what the patients have
    spent. These commands read it without touching it, also while a hospital trains.

    Back up the whole directory of a hospital, after each round and while nothing trains: the
    ledger goes with the noise key and the checkpoint beside it. `fdrl privacy verify` tells of a
    copy too whether it is whole.

    Restore only the newest state. Whoever saw a newer head refuses an older ledger, since it
    would forget what was spent; there is no way to make an older one valid again.

    A ledger that is lost is retired: its patients count as having spent the whole budget, the
    hospital leaves the roster, and its noise key is destroyed. New patients may begin again under
    a new name. docs/privacy.md says more.
    """


@privacy.command()
@_PATH
@json_option
def show(path: Path, as_json: bool) -> None:
    """
    Print every entry of a ledger, and what it has spent.

    PATH is a ledger file, or the directory of a hospital, a run or a federation. Epsilon after
    each entry is a quick upper bound (Renyi); the sum below is tight (privacy loss distribution).
    In JSON an epsilon without noise is null.

    Where several federations charge a shared account, it follows: the part of each of their
    ledgers, and the epsilon of all together. PATH may also be the file of an account.
    """
    found, layout, plan = _inspected(path, {})
    accounts = _accounts(found)
    seeded = plan is not None and plan.federation.noise != 'secure'
    if as_json:
        ledgers = [_document(each) for each in found if each.record and not _is_account(each)]
        problems = [problem for ledger in found for problem in ledger.all_problems]
        private = None if plan is None else not seeded
        shared = [_account_document(account) for account in accounts]
        echo_json(
            {'private': private, 'ledgers': ledgers, 'accounts': shared, 'problems': problems}
        )
    else:
        if seeded:
            console().print(NOT_PRIVATE, style='bold red')
        for ledger in found:
            if ledger.record is not None and not _is_account(ledger):
                click.echo(_summary(ledger))
                if ledger.record.chain.head.entries:
                    click.echo(_table(ledger.record.chain) + '\n')
            elif ledger.record is None and not ledger.all_problems:
                click.echo(f'{ledger.name}: nothing spent here, there is no ledger yet')
        for account in accounts:
            wrong = any(ledger.all_problems for ledger in found)
            click.echo(_account_summary(account, lower_bound=wrong))
        if plan and layout and not layout.roster().disjoint_patients:
            spent = [
                plan.privacy.budget if ledger.all_problems else ledger.record.chain.epsilon()
                for ledger in found
                if ledger.record is not None
            ]
            if spent:
                click.echo(shared_patients(*sum_guarantees(spent, plan.privacy.delta)))
    _fail_on_problems(found)


@privacy.command()
@_PATH
@click.option(
    '--seen',
    'heads',
    multiple=True,
    metavar='ENTRIES:HASH',
    help='A head that somebody saw of this ledger; may be repeated. Only for a ledger file.',
)
def verify(path: Path, heads: tuple[str, ...]) -> None:
    """
    Find whatever was done to a ledger; exit code 1 if it was anything.

    PATH is a ledger file, or the directory of a run or of a federation. Each ledger is read byte
    by byte and its chain of hashes walked. So is the shared account that it charges, if any, which
    must have all of its entries. In a directory it must also be that of the plan, and go
    on from the heads of its hospital's last update and checkpoint and from those that the servers
    there saw.

    Who holds the file can rebuild all hashes: only heads that others saw find that. The operators
    of the servers print theirs with `fdrl privacy heads`; a hospital compares with --seen.
    """
    try:
        seen = {f'--seen {text.partition(":")[0]}': Head.parse(text) for text in heads}
    except PrivacyError as error:
        raise click.BadParameter(str(error), param_hint='--seen') from error
    found, _, _ = _inspected(path, seen)
    for ledger in found:
        if ledger.all_problems:
            continue
        if ledger.record is None:
            click.echo(f'{ledger.name}: no ledger here yet')
            continue
        head = ledger.record.chain.head
        by = ', '.join(f'{who} ({seen.entries})' for who, seen in ledger.seen.items())
        click.echo(
            f'{ledger.name}: {counted(head.entries, "block")}, whole'
            f'{", in use" if ledger.record.in_use else ""}'
            f'{", the last one cut short and not charged" if ledger.record.interrupted else ""}; '
            f'{"goes on from the heads seen by " + by if by else "compared with no head"}; '
            f'{f"all of it is in account {ledger.account.path}; " if ledger.account else ""}'
            f'head {head}'
        )
    _fail_on_problems(found)


@privacy.command(cls=PlanCommand)
@plan_option
@click.option(
    '--epsilon',
    type=click.FloatRange(0.0, min_open=True),
    required=True,
    help='What all rounds together may cost.',
)
@click.option(
    '--transitions',
    type=click.IntRange(min=1),
    help='Transitions of a hospital, where they are the unit, or what is clipped.',
)
def calibrate(
    plan_file: str | None, epsilon: float, transitions: int | None, **flags: object
) -> None:
    """
    Give epsilon, get the noise: what to set so that a whole training costs no more.

    The plan says what is trained: --collection-patients (of a hospital), --privacy-batch,
    --privacy-unit, --learner-epochs, --rounds and so on; noise and budget in it do not count.
    """
    plan = plan_from(flags, plan_file)
    counted = 'transition' in (plan.privacy.unit, plan.privacy.clipped)
    if counted and transitions is None:
        raise click.UsageError('--transitions says how many there are, where they are counted')
    patients = plan.collection.patients
    size = RecordCounts(patients, transitions or patients, plan.privacy.most_transitions)
    found = calibrated(
        plan.learner, plan.privacy, size, epsilon=epsilon, rounds=plan.rounds.rounds
    )
    charge = found.charge
    click.echo(
        f'{charge.steps} steps, q = {charge.sampling_probability:.4g}, group {charge.group}, '
        f'delta {found.privacy.delta:g}, unit {found.privacy.unit}\n'
        f'--privacy-noise-multiplier {found.privacy.noise_multiplier:g} '
        f'--privacy-budget {epsilon:g}'
    )


@privacy.command()
@_PATH
def heads(path: Path) -> None:
    """
    Print the newest head of each hospital's ledger that a server saw.

    PATH is the directory of a run or of a federation, or the state.sqlite of an aggregator or key
    authority.
    """
    files = {'': path}
    if not path.is_file():
        layout = Layout.find_whole(path)
        files = {f'{server} saw ': layout.state(server) for server in SERVERS}
    for who, file in files.items():
        for name, head in heads_seen(file).items():
            click.echo(f'{who}{name} {head}')


def _inspected(
    path: Path, seen: dict[str, Head]
) -> tuple[Sequence[Inspection], Layout | None, Plan | None]:
    """
    Look at a ledger file, at that of a hospital's directory, or at every one of a federation.

    A hospital's directory may lie beside the states of others, who have seen its ledger.
    """
    if not path.exists():
        expected = 'a ledger file, or the directory of a hospital, a run or a federation'
        raise StoreError(f'{path} is not there: expected {expected}; {MAKERS}')
    around = Layout(path.absolute().parent)
    if (path / LEDGER).is_file() and not seen and around.plan.exists() and around.keys.exists():
        plan = Plan.load(around.plan)
        return [inspect_hospital(around, path.absolute().name, plan)], None, None
    if path.is_file() or (path / LEDGER).is_file():
        return [inspect_file(path / LEDGER if path.is_dir() else path, seen)], None, None
    if seen:
        raise PrivacyError('--seen is of one ledger: name its file, not a directory')
    layout = Layout.find_whole(path)
    plan = Plan.load(layout.plan)
    roster = layout.roster()
    names = [each.name for each in roster.hospitals]
    # Whoever is not in the roster any more, or not yet, may have spent something all the same.
    others = (*(each.name for each in roster.revoked), *plan.hospitals)
    names += [name for name in others if (layout.party(name) / LEDGER).is_file()]
    found = [inspect_hospital(layout, name, plan) for name in dict.fromkeys(names)]
    return found, layout, plan


def _fail_on_problems(found: Sequence[Inspection]) -> None:
    """Print all problems, and end with exit code 1 if there are any."""
    fail_if(problem for ledger in found for problem in ledger.all_problems)


def _summary(found: Inspection) -> str:
    """Say in a line or two whose ledger it is and what it has spent, or at least has spent."""
    record = found.record
    assert record is not None
    chain, owner = record.chain, record.chain.owner
    budget = 'no budget' if math.isinf(owner.budget) else f'budget {owner.budget:g}'
    tight, quick = _epsilon_text(chain.epsilon()), _epsilon_text(chain.account.epsilon_rdp())
    spent = f'epsilon {tight} (quick bound while training: {quick})'
    if found.problems:
        spent = f'epsilon {tight} or more: entries are missing or wrong'
    elif found.uncompared:
        spent = f'epsilon {tight} or more: state files beside it cannot be read, see below'
    return (
        f'{found.name}: {spent}, of {budget} at delta {owner.delta:g} for a '
        f'{owner.unit}; {counted(chain.head.entries, "block")}\n'
        f'{record.path}{", in use" if record.in_use else ""}: {owner.hospital}, '
        f'{owner.model or "no model named"}; head {chain.head}'
    )


def _is_account(found: Inspection) -> bool:
    return found.record is not None and found.record.chain.owner.model == ACCOUNT


def _accounts(found: Sequence[Inspection]) -> list[LedgerContent]:
    """Return each account once: those that ledgers charge, and what is itself one."""
    records = (each.record if _is_account(each) else each.account for each in found)
    return list({each.path: each for each in records if each is not None}.values())


def _account_summary(account: LedgerContent, *, lower_bound: bool) -> str:
    """
    Say what each ledger of an account has spent, and all together.

    :param lower_bound: whether entries may be missing.
    """
    chain, owner = account.chain, account.chain.owner
    rows = [('blocks', 'epsilon', 'ledger')]
    for part in parts(chain):
        rows.append((str(part.blocks), _epsilon_text(part.epsilon), part.ledger))
    budget = 'no budget' if math.isinf(owner.budget) else f'budget {owner.budget:g}'
    return (
        f'account {account.path}: epsilon {_epsilon_text(chain.epsilon())}'
        f'{" or more" if lower_bound else ""} of all its ledgers together, of {budget} at delta '
        f'{owner.delta:g} for a {owner.unit}; head {chain.head}\n{_aligned(rows)}'
    )


def _account_document(account: LedgerContent) -> Json:
    """Return what an account has as JSON values."""
    chain, owner = account.chain, account.chain.owner
    return {
        'file': str(account.path),
        'unit': owner.unit,
        'delta': owner.delta,
        'budget': owner.budget,
        'epsilon': chain.epsilon(),
        'head': {'entries': chain.head.entries, 'digest': chain.head.digest.hex()},
        'parts': [part._asdict() for part in parts(chain)],
    }


def _table(chain: Chain) -> str:
    """Return a line for each entry, below headings; plain, since there may be very many."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for entry, epsilon in zip(chain.entries, chain.epsilons_rdp(), strict=True):
        sigma, q, steps, group = entry.charge
        numbers = (
            entry.number,
            ledger_words(entry.round),
            entry.block,
            f'{sigma:.6g}',
            f'{q:.6g}',
            steps,
            group,
        )
        rows.append((*map(str, numbers), _epsilon_text(epsilon), entry.digest.hex()[:12]))
    return _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as lines, each column to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join(map(str.rjust, row, widths)) for row in rows)


def _document(found: Inspection) -> Json:
    """
    Return all of it as JSON values; an infinite epsilon or budget is null.

    Epsilon is a lower bound unless the ledger has all entries that anybody saw.
    """
    record = found.record
    assert record is not None
    chain, owner = record.chain, record.chain.owner
    return {
        'name': found.name,
        'file': str(record.path),
        'in_use': record.in_use,
        'hospital': owner.hospital,
        'unit': owner.unit,
        'model': owner.model,
        'delta': owner.delta,
        'budget': owner.budget,
        'epsilon': chain.epsilon(),
        'epsilon_is_lower_bound': bool(found.all_problems),
        'epsilon_rdp': chain.account.epsilon_rdp(),
        'head': {'entries': chain.head.entries, 'digest': chain.head.digest.hex()},
        'account': str(found.account.path) if found.account else None,
        'entries': [
            {
                'number': entry.number,
                'round': entry.round,
                'stage': ledger_words(entry.round),
                'block': entry.block,
                **entry.charge._asdict(),
                'epsilon_rdp': epsilon,
                'inputs': entry.inputs.hex(),
                'digest': entry.digest.hex(),
            }
            for entry, epsilon in zip(chain.entries, chain.epsilons_rdp(), strict=True)
        ],
    }


def _epsilon_text(epsilon: float) -> str:
    """Return an epsilon as people read it."""
    return 'infinite' if math.isinf(epsilon) else stated(epsilon, 4)
