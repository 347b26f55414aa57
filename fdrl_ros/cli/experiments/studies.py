# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Commands that run a study over seeds.

They are `fdrl audit`, `experiment`, `heterogeneity`, `hospitals`, `measures` and `utility`.
"""

import click
from fdrl_ros.audit.privacy_audit import AuditSettings
from fdrl_ros.cli.experiments.mastery import MASTERY, run_fixed
from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.cli.options import SettingOption
from fdrl_ros.deployment.prepare import check_plan
from fdrl_ros.errors import AuditFault, SettingError
from fdrl_ros.experiments.plots.studies import (
    draw_audit,
    draw_heterogeneity,
    draw_hospitals,
    draw_utility,
)
from fdrl_ros.experiments.reports.assessment import evaluator_of
from fdrl_ros.experiments.reports.run_table import seeds_table
from fdrl_ros.experiments.reports.study_tables import (
    audit_sentences,
    audit_tables,
    heterogeneity_sentences,
    heterogeneity_tables,
    hospitals_tables,
    measures_tables,
    utility_tables,
)
from fdrl_ros.experiments.studies.audit import run_audit
from fdrl_ros.experiments.studies.experiment import run_seeds
from fdrl_ros.experiments.studies.heterogeneity import run_heterogeneity, table_of
from fdrl_ros.experiments.studies.hospitals import COUNTS, run_hospitals
from fdrl_ros.experiments.studies.measures import run_measures
from fdrl_ros.experiments.studies.utility import run_utility


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
    study.print(audit_tables(summary))
    study.show(*audit_sentences(summary))
    study.save('audit', summary, draw_audit)
    if summary['faults']:
        study.show(*(f'FAULT: {each}' for each in summary['faults']))
        raise AuditFault(
            f'FAULT: {summary["faults"][0]}; {len(summary["faults"])} in all. The audit of '
            f'flawless code finds one with a chance of {settings.failure:g} a seed at most'
        )


audit.params += [SettingOption('audit', setting) for setting in AuditSettings.describe()]


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
    study.report()


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
    study.print(heterogeneity_tables(summary))
    study.show(*heterogeneity_sentences(summary))
    study.save('heterogeneity', summary, draw_heterogeneity, table_of(summary))


@study_command('runs/hospitals', 5, of_surgery=True)
def hospitals(study: PlanStudy, counts: str, clusters: bool) -> None:
    """
    Measure what more hospitals bring: success and epsilon.

    Each number of hospitals is a federation of its own, with the same patients of each hospital.
    What they learn together and alone is tried on unseen patients of ten of them. Sums are taken
    without masks and encryption, which changes no bit of a policy. --hospitals does not count,
    and arms are kinematic. Interrupted, it goes on when called again.
    """
    numbers = counts_from(counts)
    check_plan(study.plan.changed({'federation': {'hospitals': numbers[-1]}}), None)
    study.show(
        f'Federations of {", ".join(map(str, numbers))} hospitals with '
        f'{study.plan.collection.patients} patients each, seeds {study.seeds[0]} to '
        f'{study.seeds[-1]}; in {study.directory}'
    )
    chosen = study.plan, numbers, study.seeds, clusters
    summary = study.measure(run_hospitals, study.run.path, *chosen)
    study.print(hospitals_tables(summary))
    study.save('hospitals', summary, draw_hospitals)


def counts_from(words: str) -> list[int]:
    """
    Read numbers of hospitals.

    :returns: in rising order, each once.
    :raises SettingError: if they are not whole numbers from 3 to 1000 with commas.
    """
    try:
        counts = sorted({int(each) for each in words.split(',')})
    except ValueError:
        counts = []
    if not counts or not 3 <= counts[0] <= counts[-1] <= 1000:
        raise SettingError('counts', words, 'numbers from 3 to 1000, separated by commas')
    return counts


hospitals.params += [
    click.Option(
        ['--counts'],
        default=','.join(map(str, COUNTS)),
        show_default=True,
        help='Numbers of hospitals that are compared.',
    ),
    click.Option(
        ['--clusters'],
        is_flag=True,
        help='The hospitals of each speciality learn by themselves, too.',
    ),
]


@study_command('runs/measures', 5, of_surgery=True)
def measures(study: PlanStudy) -> None:
    """
    Show what each measure of risk and adaptation rewards.

    The expert operates, and policies that are worth nothing: who stays still, who rams the organ,
    who moves at random, who moves to and fro. Nothing is trained. Interrupted, it goes on when
    called again.
    """
    summary = study.measure(run_measures, study.run.path, study.plan, study.seeds)
    study.print(measures_tables(summary))
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
    study.print(utility_tables(summary))
    study.save('utility', summary, draw_utility)
