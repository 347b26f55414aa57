# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A ledger for people, as a table, and for programs, as JSON."""

import math
from typing import Any

from fdrl_ros.privacy.ledger.chain import Chain
from fdrl_ros.privacy.ledger.record import Record

HEADINGS = ('entry', 'round', 'block', 'sigma', 'q', 'steps', 'group', 'epsilon <=', 'hash')


def number(count: int, what: str) -> str:
    """Say how many of something there are."""
    return f'{count} {what}{"" if count == 1 else "s"}'


def summary(name: str, record: Record, *, whole: bool) -> str:
    """
    Say in a line or two whose ledger it is and what it has spent.

    :param whole: whether it has all entries that anybody saw; else more may be spent.
    """
    chain, owner = record.chain, record.chain.owner
    budget = 'no budget' if math.isinf(owner.budget) else f'budget {owner.budget:g}'
    tight, quick = chain.epsilon(), chain.account.epsilon_rdp()
    spent = (
        f'epsilon {epsilon_text(tight)} (loss distribution), at most {epsilon_text(quick)} (Renyi)'
    )
    if not whole:
        spent = f'epsilon {epsilon_text(tight)} or more: entries are missing or wrong'
    return (
        f'{name}: {spent}, of {budget} at delta {owner.delta:g} for a '
        f'{owner.unit}; {number(chain.head.entries, "block")}\n'
        f'{record.path}{", in use" if record.in_use else ""}: {owner.hospital}, '
        f'{owner.model or "no model named"}; head {chain.head}'
    )


def table(chain: Chain) -> str:
    """Return a line for each entry, below headings; plain, since there may be very many."""
    rows = [HEADINGS]
    for entry, epsilon in zip(chain.entries, chain.epsilons_rdp(), strict=True):
        sigma, q, steps, group = entry.charge
        rows.append(
            (
                str(entry.number),
                str(entry.round),
                str(entry.block),
                f'{sigma:.6g}',
                f'{q:.6g}',
                str(steps),
                str(group),
                epsilon_text(epsilon),
                entry.digest.hex()[:12],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(
        '  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def document(name: str, record: Record, *, whole: bool) -> dict[str, Any]:
    """
    Return all of it as JSON values; an infinite epsilon or budget is null.

    :param whole: whether it has all entries that anybody saw; else epsilon is a lower bound.
    """
    chain, owner = record.chain, record.chain.owner
    return {
        'name': name,
        'file': str(record.path),
        'in_use': record.in_use,
        'hospital': owner.hospital,
        'unit': owner.unit,
        'model': owner.model,
        'delta': owner.delta,
        'budget': _finite(owner.budget),
        'epsilon': _finite(chain.epsilon()),
        'epsilon_is_lower_bound': not whole,
        'epsilon_rdp': _finite(chain.account.epsilon_rdp()),
        'head': {'entries': chain.head.entries, 'digest': chain.head.digest.hex()},
        'entries': [
            {
                'number': entry.number,
                'round': entry.round,
                'block': entry.block,
                **entry.charge._asdict(),
                'epsilon_rdp': _finite(epsilon),
                'inputs': entry.inputs.hex(),
                'digest': entry.digest.hex(),
            }
            for entry, epsilon in zip(chain.entries, chain.epsilons_rdp(), strict=True)
        ],
    }


def epsilon_text(epsilon: float) -> str:
    """Return an epsilon as people read it."""
    return 'infinite' if math.isinf(epsilon) else f'{epsilon:.4f}'


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
