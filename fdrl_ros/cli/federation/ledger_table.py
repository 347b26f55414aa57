# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A ledger for people, as a table, and for programs, as JSON."""

import math

from fdrl_ros.cli.output import number
from fdrl_ros.deployment.ledger_inspection import Inspection
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.privacy.ledger.chain import Chain

HEADINGS = ('entry', 'round', 'block', 'sigma', 'q', 'steps', 'group', 'epsilon <=', 'hash')


def summary(found: Inspection) -> str:
    """Say in a line or two whose ledger it is and what it has spent, or at least has spent."""
    record = found.record
    assert record is not None
    chain, owner = record.chain, record.chain.owner
    budget = 'no budget' if math.isinf(owner.budget) else f'budget {owner.budget:g}'
    tight, quick = epsilon_text(chain.epsilon()), epsilon_text(chain.account.epsilon_rdp())
    spent = f'epsilon {tight} (loss distribution), at most {quick} (Renyi)'
    if found.problems:
        spent = f'epsilon {tight} or more: entries are missing or wrong'
    elif found.uncompared:
        spent = f'epsilon {tight} or more: state files beside it cannot be read, see below'
    return (
        f'{found.name}: {spent}, of {budget} at delta {owner.delta:g} for a '
        f'{owner.unit}; {number(chain.head.entries, "block")}\n'
        f'{record.path}{", in use" if record.in_use else ""}: {owner.hospital}, '
        f'{owner.model or "no model named"}; head {chain.head}'
    )


def table(chain: Chain) -> str:
    """Return a line for each entry, below headings; plain, since there may be very many."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for entry, epsilon in zip(chain.entries, chain.epsilons_rdp(), strict=True):
        sigma, q, steps, group = entry.charge
        numbers = (
            entry.number,
            entry.round,
            entry.block,
            f'{sigma:.6g}',
            f'{q:.6g}',
            steps,
            group,
        )
        rows.append((*map(str, numbers), epsilon_text(epsilon), entry.digest.hex()[:12]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join(map(str.rjust, row, widths)) for row in rows)


def document(found: Inspection) -> Json:
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
        'budget': _finite(owner.budget),
        'epsilon': _finite(chain.epsilon()),
        'epsilon_is_lower_bound': bool(found.all_problems),
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
