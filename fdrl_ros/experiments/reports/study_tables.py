# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of studies over seeds, for the terminal and for reports."""

from collections.abc import Iterator

from fdrl_ros.audit.privacy_audit import BOUNDS
from fdrl_ros.experiments.intervals import interval, interval_words, share_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.selector import ROWS
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.heterogeneity import CURVES, verdict
from fdrl_ros.experiments.studies.hospitals import ALONE, HOME, NEWCOMERS, SHARED
from fdrl_ros.experiments.studies.measures import OVER_ALL, SHOWN
from fdrl_ros.experiments.studies.selector.summary import GLOBAL, SELECTOR
from fdrl_ros.privacy.stated import stated
from rich.table import Table


def audit_tables(summary: Json) -> Iterator[Table]:
    """Make the table of what was claimed and what was shown of it, a row a seed."""
    parts, failure = summary['parts'], summary['settings']['audit']['failure']
    one, charge = parts[0], parts[0]['charge']
    rows = []
    for part in parts:
        numbers = [part[name] for name in (*BOUNDS, 'attainable', 'shift', 'sigma')]
        words = (*(f'{each:.3f}' for each in numbers), f'{part["least_p"]:.2g}')
        words = stated(part['claimed'], 3), *words
        found = str(len(part['faults'])) if part['faults'] else 'none'
        rows.append((part['seed'], *words, found, part['seconds']))
    yield make_table(
        f'Epsilon at delta = {one["delta"]:g}: {one["canaries"]} canaries among '
        f'{one["patients"]} patients, {charge["steps"]} steps, sigma_m = '
        f'{charge["noise_multiplier"]:g}, q = {charge["sampling_probability"]:.3g}. Lower bounds '
        f'and tests of a seed are all right with {100.0 * (1.0 - failure):g} %',
        ('seed', 'claimed', 'if Gaussian', 'whatever it is', 'by errors', 'on a flawless one')
        + ('left of a canary, C', 'noise, C', 'least p', 'faults', 'seconds'),
        rows,
    )


def audit_sentences(summary: Json) -> list[str]:
    """Return what all seeds prove, a line for each confidence."""
    claimed = min(each['claimed'] for each in summary['parts'])
    lines = []
    for confidence, bounds in summary['together'].items():
        shares = (
            f'{bounds[name]:.3f} ({bounds[name] / claimed:.2f} of it) {what}'
            for name, what in BOUNDS.items()
        )
        sure = f'{100.0 * float(confidence):g} %'
        lines.append(
            f'All seeds, of {stated(claimed, 3)} claimed, {sure} each: {"; ".join(shares)}.'
        )
    return lines


def heterogeneity_tables(summary: Json) -> Iterator[Table]:
    """Make the table of what heterogeneity does."""
    rows = []
    for index, level in enumerate(summary['levels']):
        found = (
            interval_words(summary['curves'][name]['at'][index], curve.form, curve.factor)
            for name, curve in CURVES.items()
        )
        rows.append((f'{level:g}', *found))
    title = f'Over {len(summary["seeds"])} seeds: mean [95 % interval]'
    yield make_table(title, ('H', *(curve.heading for curve in CURVES.values())), rows)


def heterogeneity_sentences(summary: Json) -> list[str]:
    """Return what the curves are, and what they show."""
    return [
        *(f'{name}: {curve.what}' for name, curve in CURVES.items()),
        *(verdict(summary, name) for name in ('distance', 'mix', 'loss')),
    ]


def hospitals_tables(summary: Json) -> Iterator[Table]:
    """Make the tables of what more hospitals bring: all procedures together, and each."""
    counts, chosen = summary['counts'], summary['settings']
    title = (
        f'success, %, {len(summary["seeds"])} seeds: mean [95 % interval]; '
        f'{chosen["collection"]["patients"]} patients of each hospital; tried on at most '
        f'{chosen["shown"]} hospitals'
    )
    for place, found, who in (
        ('own patients', summary, tuple(summary['success'])),
        ('patients of hospitals that took no part', summary['away'], NEWCOMERS),
    ):
        yield make_table(
            f'{place}: {title}',
            ('hospitals', *map(reader_name, who)),
            (
                (count, *(share_words(found['success'][each]['at'][number]) for each in who))
                for number, count in enumerate(counts)
            ),
        )
    away = {f'{name}, away': each for name, each in summary['away']['leads'].items()}
    leads = {**summary['leads'], **away}
    spent = tuple(f'epsilon, {reader_name(who)}' for who in (SHARED, HOME, ALONE))
    yield make_table(
        f'Differences in points, paired by seed; epsilon at delta {summary["delta"]:g}',
        ('hospitals', *map(reader_name, leads), *spent),
        (
            (
                count,
                *(interval_words(each[number], '+.1f', 100.0) for each in leads.values()),
                *(stated(summary['epsilon'][who][number], 2) for who in (SHARED, HOME, ALONE)),
            )
            for number, count in enumerate(counts)
        ),
    )
    who = tuple(summary['success'])
    yield make_table(
        'By procedure: success, %',
        ('procedure', 'hospitals', *map(reader_name, who)),
        (
            (procedure, count, *(share_words(found[each][number]) for each in who))
            for procedure, found in summary['procedures'].items()
            for number, count in enumerate(counts)
        ),
    )


def measures_tables(summary: Json) -> Iterator[Table]:
    """Make the tables of what each measure rewards, over all and by procedure."""
    found, names = summary['found'], [score.heading for score in SHOWN.values()]
    rows = [
        (who, *(interval_words(row[name], '.2f') for name in SHOWN))
        for who, row in found[OVER_ALL].items()
    ]
    count = f'{len(summary["seeds"])} seeds of {summary["patients"]} patients of each procedure'
    yield make_table(f'{count}: mean [95 % interval]', ('who', *names), rows)
    rows = [
        (procedure, who, *(interval_words(interval([row[name]['mean']]), '.3f') for name in SHOWN))
        for procedure, by_name in found.items()
        if procedure != OVER_ALL
        for who, row in by_name.items()
    ]
    yield make_table('By procedure: mean', ('procedure', 'who', *names), rows)


def utility_tables(summary: Json) -> Iterator[Table]:
    """Make the table of success against epsilon."""
    rows = []
    for start, found in summary['results'].items():
        rows.append((start, 'the start itself', '', share_words(summary['start'][start]), ''))
        for name, each in found.items():
            words = (name, f'{summary["sigma_m"][name]:.2f}')
            if name == 'inf':
                words = ('not private', '')
            rows.append((start, *words, share_words(each['success']), share_words(each['kept'])))
    yield make_table(
        f'Over {len(summary["seeds"])} seeds: mean, 95 % interval; epsilon of a '
        f'{summary["unit"]} at delta {summary["delta"]:g}, {summary["steps"]} steps',
        ('start', 'epsilon', 'sigma_m', 'success, %', 'of not private, %'),
        rows,
    )


def selector_tables(summary: Json) -> Iterator[Table]:
    """Make a table of what everyone earned for each H."""
    for at in summary['levels']:
        yield _earned(at, len(summary['seeds']))


def _earned(at: Json, seeds: int) -> Table:
    """Return what everyone earned at one H."""
    found = at['contenders']
    names = sorted(found, key=lambda name: (name in ROWS, ROWS.index(name) if name in ROWS else 0))
    return make_table(
        f'H = {at["level"]:g}, {seeds} seeds: mean [95 % interval]',
        ('who', 'return J', 'selector ahead by', 'success, %') + ('1 - R_mit, %', 'case risk, %'),
        (
            (
                reader_name(name),
                interval_words(found[name]['return'], '.2f'),
                '' if name == SELECTOR else interval_words(found[name]['lead'], '+.2f'),
                interval_words(found[name]['success'], '.1f', 100.0),
                interval_words(found[name]['risk'], '.2f', 100.0),
                interval_words(found[name]['case_risk'], '.1f', 100.0),
            )
            for name in names
        ),
    )


def selector_sentences(at: Json) -> list[str]:
    """Return the rest of what came out at one H, in sentences."""
    switching = at['switching']
    dwell = switching['dwell_seconds']
    hindsight, oracle = (
        interval_words(at[name], '.3f') for name in ('share_of_hindsight', 'share_of_oracle')
    )
    saved, case = (
        interval_words(at[name], '.1f', 100.0) for name in ('risk_saved', 'case_risk_saved')
    )
    after, others = (
        interval_words(switching[name], '.1f', 100.0)
        for name in ('per_step_after_a_change', 'per_step_else')
    )
    (own, fixed), (follows, rival) = (
        [interval_words(at[key][name], '.2f') for name in (SELECTOR, GLOBAL)]
        for key in ('alpha_adapt', 'informedness')
    )
    found = [
        f'(J - J_hold) / (J_oracle - J_hold): {hindsight} of the best policy in hindsight, '
        f'{oracle} of the oracle that sees tissue and future',
        f'saved against always the global policy: {saved} % of 1 - R_mit, {case} % of the case '
        'risk, which is 1 - risk-adjusted success',
        f'switches at {after} % of the ticks soon after a change of state, at {others} % of '
        f'others; alpha_adapt {own} (global {fixed}), informedness {follows} (global {rival})',
    ]
    if dwell['50'] is not None:
        found.append(
            f'a choice that gave way had stood for {dwell["50"]:.2f} s in the median, '
            f'{dwell["5"]:.2f} to {dwell["95"]:.2f} s from the 5th to the 95th percentile'
        )
    return found
