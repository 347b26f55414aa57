# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Commands that run a study over seeds.

They are `fdrl audit`, `experiment`, `heterogeneity`, `measures` and `utility`.
"""

import click
from fdrl_ros.audit.privacy_audit import AuditSettings, BOUNDS
from fdrl_ros.cli.experiments.mastery import MASTERY, run_fixed
from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.cli.options import SettingOption
from fdrl_ros.errors import AuditFault, SettingError
from fdrl_ros.experiments.intervals import interval, interval_words, share_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.studies import draw_audit, draw_heterogeneity, draw_utility
from fdrl_ros.experiments.reports.assessment import evaluator_of
from fdrl_ros.experiments.reports.run_table import seeds_table
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.audit import run_audit
from fdrl_ros.experiments.studies.experiment import run_seeds
from fdrl_ros.experiments.studies.heterogeneity import CURVES, run_heterogeneity, table_of, verdict
from fdrl_ros.experiments.studies.measures import OVER_ALL, run_measures, SHOWN
from fdrl_ros.experiments.studies.utility import run_utility
from rich.table import Table


@study_command('runs/audit', 5)
def audit(study: PlanStudy, **flags: object) -> None:
    """
    Hold epsilon against what is released, by canaries.

    One hospital trains with them. Bounds of epsilon from below, and tests of noise, coins and
    clipping: a bound above the claim or a failed test is a FAULT and ends with exit code 3.
    Interrupted, it goes on when called again.
    """
    own = {name.removeprefix('audit__'): each for name, each in flags.items() if each is not None}
    settings = AuditSettings.from_mapping(own)
    summary = study.measure(run_audit, study.run.path, study.plan, settings, study.seeds)
    study.out.print(_audit_table(summary))
    study.show(*_together(summary))
    study.save('audit', summary, draw_audit)
    if summary['faults']:
        study.show(*(f'FAULT: {each}' for each in summary['faults']))
        raise AuditFault(
            f'FAULT: {summary["faults"][0]}; {len(summary["faults"])} in all. The audit of '
            f'flawless code finds one with a chance of {settings.failure:g} a seed at most'
        )


audit.params += [SettingOption('audit', setting) for setting in AuditSettings.describe()]


def _audit_table(summary: Json) -> Table:
    """Return what was claimed and what was shown of it, a row a seed."""
    parts, failure = summary['parts'], summary['settings']['audit']['failure']
    one, charge = parts[0], parts[0]['charge']
    rows = []
    for part in parts:
        numbers = [part[name] for name in ('claimed', *BOUNDS, 'attainable', 'shift', 'sigma')]
        words = (*(f'{each:.3f}' for each in numbers), f'{part["least_p"]:.2g}')
        found = str(len(part['faults'])) if part['faults'] else 'none'
        rows.append((part['seed'], *words, found, part['seconds']))
    return make_table(
        f'Epsilon at delta = {one["delta"]:g}: {one["canaries"]} canaries among '
        f'{one["patients"]} patients, {charge["steps"]} steps, sigma_m = '
        f'{charge["noise_multiplier"]:g}, q = {charge["sampling_probability"]:.3g}. Lower bounds '
        f'and tests of a seed are all right with {100.0 * (1.0 - failure):g} %',
        ('seed', 'claimed', 'if Gaussian', 'whatever it is', 'by errors', 'on a flawless one')
        + ('left of a canary, C', 'noise, C', 'least p', 'faults', 'seconds'),
        rows,
    )


def _together(summary: Json) -> list[str]:
    """Return what all seeds prove, a line for each confidence."""
    claimed = min(each['claimed'] for each in summary['parts'])
    lines = []
    for confidence, bounds in summary['together'].items():
        shares = (
            f'{bounds[name]:.3f} ({bounds[name] / claimed:.2f} of it) {what}'
            for name, what in BOUNDS.items()
        )
        sure = f'{100.0 * float(confidence):g} %'
        lines.append(f'All seeds, of {claimed:.3f} claimed, {sure} each: {"; ".join(shares)}.')
    return lines


@study_command('runs/experiment', 5)
def experiment(study: PlanStudy, quick: bool) -> None:
    """
    Repeat training with several seeds and compare.

    Each is evaluated too. Differences are paired: the same seed and the same unseen patients.
    Interrupted, it goes on when called again. With --plan mastery it is the study of what policies
    master, at home and away: seeds and settings are then those that were fixed beforehand.
    """
    if study.plan_file == MASTERY:
        run_fixed(study, quick)
        return
    if quick:
        raise SettingError('quick', quick, f'--plan {MASTERY} beside it')
    combined = study.measure(run_seeds, study.run.path, study.plan, study.seeds)
    study.out.print(seeds_table(combined, evaluator_of(study.plan).scores))
    study.show(f'saved in {study.directory / "experiment.json"}')


experiment.params.append(
    click.Option(['--quick'], is_flag=True, help=f'With --plan {MASTERY}: few of all, 3 minutes.')
)


@study_command('runs/heterogeneity', 10, of_surgery=True)
def heterogeneity(study: PlanStudy) -> None:
    """
    Measure how far hospitals are apart, at H = 0 to 1.

    It tells what a policy loses at another hospital. Each hospital learns from its own records
    without privacy; --collection-patients and --pretraining-steps say from how many and for how
    long. --heterogeneity does not count. Interrupted, it goes on when called again.
    """
    summary = study.measure(run_heterogeneity, study.run.path, study.plan, study.seeds)
    rows = []
    for index, level in enumerate(summary['levels']):
        found = (
            interval_words(summary['curves'][name]['at'][index], curve.form, curve.factor)
            for name, curve in CURVES.items()
        )
        rows.append((f'{level:g}', *found))
    title = f'Over {len(study.seeds)} seeds: mean [95 % interval]'
    study.out.print(make_table(title, ('H', *(curve.heading for curve in CURVES.values())), rows))
    study.show(*(f'{name}: {curve.what}' for name, curve in CURVES.items()))
    study.show(*(verdict(summary, name) for name in ('distance', 'mix', 'loss')))
    study.save('heterogeneity', summary, draw_heterogeneity, table_of(summary))


@study_command('runs/measures', 5, of_surgery=True)
def measures(study: PlanStudy) -> None:
    """
    Show what each measure of risk and adaptation rewards.

    The expert operates, and policies that are worth nothing: who stays still, who rams the organ,
    who moves at random, who moves to and fro. Nothing is trained. Interrupted, it goes on when
    called again.
    """
    summary = study.measure(run_measures, study.run.path, study.plan, study.seeds)
    found, names = summary['found'], [score.heading for score in SHOWN.values()]
    rows = [
        (who, *(interval_words(row[name], '.2f') for name in SHOWN))
        for who, row in found[OVER_ALL].items()
    ]
    count = f'{len(study.seeds)} seeds of {summary["patients"]} patients of each procedure'
    study.out.print(make_table(f'{count}: mean [95 % interval]', ('who', *names), rows))
    rows = [
        (procedure, who, *(interval_words(interval([row[name]['mean']]), '.3f') for name in SHOWN))
        for procedure, by_name in found.items()
        if procedure != OVER_ALL
        for who, row in by_name.items()
    ]
    study.out.print(make_table('By procedure: mean', ('procedure', 'who', *names), rows))
    study.save('measures', summary)


@study_command('runs/utility', 5, of_surgery=True)
def utility(study: PlanStudy) -> None:
    """
    Measure what privacy costs: success against epsilon.

    The success is that of one hospital's own policy. Noise is chosen so that all steps together
    cost each epsilon; --privacy-noise-multiplier and --privacy-budget do not count. Interrupted,
    it goes on when called again.
    """
    summary = study.measure(run_utility, study.run.path, study.plan, study.seeds)
    rows = []
    for start, found in summary['results'].items():
        rows.append((start, 'the start itself', '', share_words(summary['start'][start]), ''))
        for name, each in found.items():
            words = (name, f'{summary["sigma_m"][name]:.2f}')
            if name == 'inf':
                words = ('not private', '')
            rows.append((start, *words, share_words(each['success']), share_words(each['kept'])))
    table = make_table(
        f'Over {len(study.seeds)} seeds: mean, 95 % interval; epsilon of a {summary["unit"]} '
        f'at delta {summary["delta"]:g}, {summary["steps"]} steps',
        ('start', 'epsilon', 'sigma_m', 'success, %', 'of not private, %'),
        rows,
    )
    study.out.print(table)
    study.save('utility', summary, draw_utility)
