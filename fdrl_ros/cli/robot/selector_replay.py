# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl selector replay`: what the selector decides on a recorded robot, beside what it did."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import replace as changed
from pathlib import Path

import click
from fdrl_ros.cli.options import json_option, SettingsCommand
from fdrl_ros.cli.output import console, echo_json
from fdrl_ros.deployment.layout import ROBOTS
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, make_table
from fdrl_ros.selector import GateSettings, Selection, SelectorSettings, ShieldSettings
from fdrl_ros.selector.control.observation import Reason
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.selector.control.visibility import VisibilitySettings
from fdrl_ros.selector.replay import (
    compare,
    Comparison,
    decisions,
    other_layout,
    recorded_actions,
    replay,
    ReplaySettings,
)
from fdrl_ros.settings import Settings
from rich.console import Console

_GROUPS: dict[str, type[Settings]] = {
    'selector': SelectorSettings,
    'gate': GateSettings,
    'plausibility': PlausibilitySettings,
    'shield': ShieldSettings,
    'visibility': VisibilitySettings,
}
_SHOWN = 40
"""Lines of each list that are printed; all are in the JSON."""

_OTHER_STATES = (
    'The node and the recording may have heard different states: one that either lost puts the '
    'ticks of both out of phase. Try --follow.'
)


@click.command('replay', cls=SettingsCommand, groups=_GROUPS)
@click.argument('bag', type=click.Path(exists=True, path_type=Path))
@click.option(
    '--policies',
    'directory',
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help='Directory of the federation, or of the run, that the robot had its policies of.',
)
@click.option('--robot', default=ROBOTS[0], show_default=True, help='Whose policies.')
@click.option('--topics', default=None, help='Namespace in BAG, if it is of several robots.')
@click.option(
    '--follow', is_flag=True, help='Decide in the very states in which the recorded selector did.'
)
@click.option(
    '--needs-visibility',
    is_flag=True,
    help='The recorded selector had `needs_visibility`.',
)
@json_option
def replay_bag(
    bag: Path,
    directory: Path,
    robot: str,
    topics: str | None,
    follow: bool,
    needs_visibility: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """
    Decide on BAG, a rosbag2 recording of a robot, what the selector's node decides on it.

    The policies are those that stand for the robot now, with their value models, shield and the
    surgeon's supervision. Where `action` was recorded, both are compared. Settings are those of
    the directory's plan unless flags say otherwise: give what the node was given.
    """
    found = RobotPolicies.of(directory, robot)
    supervision = found.supervision
    rules = ReplaySettings(
        **_settings(found, flags),
        locked=supervision.locked,
        needs_visibility=needs_visibility,
    )
    candidates = found.registry.candidates(supervision)
    actions = recorded_actions(bag, topics)
    decided = decisions(actions) if follow and actions else None
    chosen = replay(bag, candidates, rules, robot=topics, decided=decided)
    compared = compare(actions, chosen) if actions else None
    made = [each for each in chosen if each.risk is not None]
    document = {
        'candidates': [
            {
                'name': each.name,
                'digest': each.digest.hex(),
                'valued': each.value is not None,
            }
            for each in candidates
        ],
        'decisions': len(made),
        'switches': sum(a.policy != b.policy for a, b in zip(made, made[1:], strict=False)),
        'policies': Counter(each.policy for each in made),
        'reasons': Counter(str(each.reason) for each in chosen),
        'vetoes': Counter(each.veto for each in made if each.veto),
        'other_layout': other_layout(bag, topics) if _mismatched(chosen) else '',
    }
    if as_json:
        told = {'comparison': asdict(compared)} if compared else {}
        document |= told | {'selections': [_as_json(each) for each in chosen]}
        echo_json(document)
        return
    out = console()
    out.print(DISCLAIMER, style='italic')
    start = next((each.stamp for each in chosen if each.stamp is not None), 0)
    _print_choices(out, document, chosen, start)
    if compared is None:
        out.print('BAG has no action: nothing to compare with.')
    else:
        _print_comparison(out, compared, start)
        if compared.differ and not follow:
            out.print(_OTHER_STATES, soft_wrap=True)


def _settings(found: RobotPolicies, flags: Mapping[str, object]) -> Json:
    """
    Return all groups: of the plan where it has them, and changed as the flags say.

    :raises SettingError: on a value that cannot be.
    """
    made: Json = {}
    for group, kind in _GROUPS.items():
        given = {
            name.removeprefix(f'{group}__'): value
            for name, value in flags.items()
            if name.startswith(f'{group}__') and value is not None
        }
        try:
            made[group] = changed(getattr(found.plan, group, None) or kind(), **given)
        except SettingError as error:
            raise error.of(group) from None
    return made


def _mismatched(chosen: list[Selection]) -> bool:
    """Tell whether the robot held because of states that are not of this robot."""
    return any(each.reason is Reason.MISMATCH for each in chosen)


def _as_json(selection: Selection) -> Json:
    """Return a selection for JSON."""
    told = selection._asdict() | {'risk': selection.risk and selection.risk.total}
    del told['time']
    return told


def _print_choices(out: Console, document: Json, chosen: list[Selection], start: int) -> None:
    names = ', '.join(
        each['name'] + ('' if each['valued'] else ' (no value model)')
        for each in document['candidates']
    )
    out.print(f'candidates: {names}', soft_wrap=True)
    runs = _runs_of_choices(chosen, start)
    rows = [(f'{begin:.2f}', *others) for begin, *others in runs[:_SHOWN]]
    out.print(make_table('choices over time', ('from, s', 'policy', 'reason', 'states'), rows))
    if len(runs) > _SHOWN:
        out.print(f'{len(runs) - _SHOWN} more: --json has all')
    for title in ('policies', 'reasons', 'vetoes'):
        counts = sorted(document[title].items(), key=lambda each: -each[1])
        words = ', '.join(f'{name} {count}' for name, count in counts) or 'none'
        out.print(f'{title}: {words}', soft_wrap=True)
    if document['other_layout']:
        out.print(f'mismatch: {document["other_layout"]}', soft_wrap=True)
    out.print(f'{document["decisions"]} decisions, {document["switches"]} switches')


def _runs_of_choices(chosen: list[Selection], start: int) -> list[tuple[float, str, str, int]]:
    """Return when, from the start on, another policy or hold began, and how long it was."""
    stamped = [(each, each.stamp) for each in chosen if each.stamp is not None]
    runs: list[tuple[float, str, str, int]] = []
    for each, stamp in stamped:
        # Between policies that act the reason says little: best becomes kept at the next tick.
        if runs and runs[-1][1] == each.policy and (not each.holds or runs[-1][2] == each.reason):
            runs[-1] = (*runs[-1][:3], runs[-1][3] + 1)
        else:
            begin = 1e-9 * (stamp - start)
            runs.append((begin, each.policy, str(each.reason), 1))
    return runs


def _print_comparison(out: Console, compared: Comparison, start: int) -> None:
    count = compared.agree + len(compared.differ)
    out.print(
        f'{compared.agree} of {count} decisions are those recorded; {compared.by_the_clock} '
        'recorded holds are of the steady clock, and not compared',
        soft_wrap=True,
    )
    for each in compared.differ[:_SHOWN]:
        words = [
            '{} action {} ({})'.format(*decision) if decision else 'none'
            for decision in (each.recorded, each.replayed)
        ]
        out.print(
            f'  at {1e-9 * (each.stamp - start):.2f} s: recorded {words[0]}, replayed {words[1]}',
            soft_wrap=True,
        )
    if len(compared.differ) > _SHOWN:
        out.print(f'  and {len(compared.differ) - _SHOWN} more: --json has all')
