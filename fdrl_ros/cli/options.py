# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Flags made out of settings: name, type, description, unit, range and default come from there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.live.running import where_running
from fdrl_ros.deployment.plan import Plan, SURGERY
from fdrl_ros.deployment.prepare import read_records
from fdrl_ros.errors import ResourceError, SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.resources import resource
from fdrl_ros.settings import named_among, Setting, Settings, Value

PLAIN = ('attack', 'fdrl', 'federation', 'frames', 'rounds', 'sepsis')
"""Groups whose flags go without the group's name in front."""

ESSENTIAL = (
    'task',
    'hospitals',
    'procedures',
    'heterogeneity',
    'rounds',
    'noise_multiplier',
    'budget',
)
"""Settings of the first section of a plan's help: who trains what for how long, at which cost."""

_BETWEEN = '__'  # group and name in the parameters of a command

C = TypeVar('C', bound=Callable[..., object])

json_option = click.option('--json', 'as_json', is_flag=True, help='Print JSON.')


class SettingOption(click.Option):
    """
    A flag that belongs to a group of settings.

    :param default: that its help tells; None: the setting's own.
    """

    def __init__(self, group: str, setting: Setting, default: Value | None = None) -> None:
        self.group = group
        essential = group in ('federation', 'rounds', 'privacy') and setting.name in ESSENTIAL
        self.section = 'Essential settings' if essential else f'Further settings: {group}'
        flag = flag_of(group, setting.name)
        if setting.type is bool:
            flag = f'{flag}/--no-{flag.removeprefix("--")}'
        super().__init__(
            [flag, f'{group}{_BETWEEN}{setting.name}'],
            type=setting.type,
            default=None,
            help=_help(setting, setting.default if default is None else default),
            metavar='|'.join(map(str, setting.choices)) or None,
        )


Group = TypeVar('Group', bound=Settings)


def with_flags(settings: Group, flags: Mapping[str, object]) -> Group:
    """
    Return settings with what a :class:`SettingsCommand` was given in place of theirs.

    :param flags: parameters of the command; None where a flag was not given.
    :raises SettingError: on a value that cannot be.
    """
    given = {name.partition(_BETWEEN)[2]: each for name, each in flags.items() if each is not None}
    return type(settings).from_mapping({**asdict(settings), **given})


class SettingsCommand(click.Command):
    """A command with flags for groups of settings; its help shows them group by group."""

    def __init__(
        self, *arguments: Any, groups: Mapping[str, type[Settings]] | None = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        for group, settings in (groups or {}).items():
            self.params += [SettingOption(group, setting) for setting in settings.describe()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own flags and the essential settings first, then the others."""
        sections: dict[str, list[tuple[str, str]]] = {'Options': [], 'Essential settings': []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, 'section', 'Options')
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class PlanCommand(SettingsCommand):
    """A command with flags for a whole plan; world and defaults are those of its task."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, groups=Plan.groups(), **named)
        self._with_surgery = self.params
        """Those of surgery, but for its defaults: no task is loaded yet."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the world and the defaults of the task that the command line or its plan names."""
        name = task_of(args)
        groups, defaults = Plan.groups(name), Plan({'federation': {'task': name}}).task.defaults
        self.params = [
            each
            for each in self._with_surgery
            if not (isinstance(each, SettingOption) and each.group in groups)
        ] + [
            SettingOption(group, setting, defaults.get(group, {}).get(setting.name))
            for group, settings in groups.items()
            for setting in settings.describe()
        ]
        return super().parse_args(ctx, args)


def task_of(args: Sequence[str]) -> str:
    """Return the task that a command line names: by --task, --plan, or the plan of --directory."""
    named = {}
    for place, word in enumerate(args):
        flag, equals, value = word.partition('=')
        if flag in ('--task', '--plan', '--directory'):
            named[flag] = value if equals else ''.join(args[place + 1 : place + 2])
    if '--task' in named:
        return named['--task']
    if '--plan' in named:
        return Plan.read(find_plan(named['--plan'])).federation.task
    layout = Layout(Path(named.get('--directory', '')) / 'federation')
    if '--directory' in named and layout.plan.exists():
        return Plan.read(layout.plan).federation.task
    return SURGERY


plan_option = click.option(
    '--plan',
    'plan_file',
    metavar='FILE',
    help='YAML file with settings, or the name of one in config/paper; flags override it.',
)

records_option = click.option(
    '--records',
    'own_records',
    multiple=True,
    metavar='HOSPITAL=FILE',
    help='Records that a hospital trains on, instead of simulated ones: hospital_1=FILE, as '
    '`fdrl dataset convert --records` makes it; may be repeated.',
)


def settings_options(kind: type[Settings], flags: Mapping[str, str]) -> Callable[[C], C]:
    """
    Add flags for some settings of a group, with their defaults, to a command without a plan.

    :param flags: flag of each setting, by the setting's name.
    """
    settings = {setting.name: setting for setting in kind.describe()}

    def add(command: C) -> C:
        for name, flag in reversed(list(flags.items())):
            setting = settings[name]
            kind: click.ParamType | type = setting.type
            if setting.choices:
                kind = click.Choice(setting.choices)
            elif setting.type is int:
                kind = click.IntRange(int(setting.minimum or 0))  # a command checks the rest
            command = click.option(
                flag,
                name,
                type=kind,
                default=setting.default,
                show_default=True,
                help=f'{setting.description[0].upper()}{setting.description[1:]}.',
            )(command)
        return command

    return add


def live_options(command: C, *, namespace: bool = True) -> C:
    """
    Add the flags that say where robots run: DDS domain, namespace, hosts.

    :param namespace: whether the command is about nodes of one namespace.
    """
    flags = {'namespace': '--namespace'} if namespace else {}
    where = settings_options(BringupSettings, {**flags, 'hosts': '--hosts'})
    domain = click.option(
        '--domain',
        type=click.IntRange(0),
        envvar='ROS_DOMAIN_ID',
        show_envvar=True,
        default=_robot_domain,
        show_default=f'of runs/latest while it runs, else {BringupSettings().robot_domain}',
        help='DDS domain of the robots.',
    )
    return domain(where(command))


def _robot_domain() -> int:
    """Return the domain of the robots of the latest run while that runs, else the usual one."""
    running = where_running(Layout(Path('runs/latest/federation')))
    return BringupSettings.from_mapping(running).robot_domain


def domain_options(command: C) -> C:
    """Add the flags that say which DDS domain is looked at, whatever the namespaces in it."""
    return live_options(command, namespace=False)


def records_from(values: tuple[str, ...], plan: Plan, layout: Layout | None) -> dict[str, Records]:
    """
    Read the records that the flags name.

    :param layout: of the federation that they are for, if there is one.
    :raises FdrlError: if they cannot be read, or the plan cannot train on them.
    """
    files = {}
    for value in values:
        name, _, path = value.partition('=')
        if not path or name in files:
            raise SettingError(
                'records', value, 'HOSPITAL=FILE, such as hospital_1=FILE, each once'
            )
        files[name] = Path(path)
    return read_records(plan, files, layout)


def flag_of(group: str, name: str) -> str:
    """Return the flag of a setting, such as --privacy-budget."""
    words = name if group in PLAIN else f'{group}_{name}'
    return '--' + words.replace('_', '-')


def plan_from(
    values: Mapping[str, object], plan_file: str | None = None, layout: Layout | None = None
) -> Plan:
    """
    Make the plan that the flags ask for.

    :param values: parameters of the command; None where a flag was not given.
    :param plan_file: file or name of the plan to begin with.
    :param layout: directory whose plan is gone on with, if it has one.
    :raises SettingError: on a value that cannot be.
    """
    plan = Plan()
    if plan_file is not None:
        plan = Plan.read(find_plan(plan_file))
    elif layout is not None and layout.plan.exists():
        plan = Plan.read(layout.plan)
    changes: dict[str, dict[str, object]] = {}
    for parameter, value in values.items():
        group, between, name = parameter.partition(_BETWEEN)
        if between and value is not None:
            changes.setdefault(group, {})[name] = value
    return plan.changed(changes)


def find_plan(name: str) -> Path:
    """
    Find a plan by its path, or by its name among those of the package.

    :raises SettingError: if there is none.
    """
    if Path(name).is_file():
        return Path(name)
    try:
        return resource(f'config/paper/{name}.yaml')
    except ResourceError as error:
        known = sorted(path.stem for path in resource('config/paper').glob('*.yaml'))
        expected = f'a YAML file, or {named_among(name, "plans", known)}'
        raise SettingError('plan', name, expected) from error


def _help(setting: Setting, default: Value) -> str:
    """Say what a setting is, with unit, range and default."""
    low, high = setting.minimum, setting.maximum
    span = ''
    if low is not None and high is not None:
        span = f'{low:g} to {high:g}'
    elif low is not None or high is not None:
        span = f'at least {low:g}' if low is not None else f'at most {high:g}'
    words = [setting.unit, span, f'default {default}']
    return f'{setting.description} [{"; ".join(filter(None, words))}]'
