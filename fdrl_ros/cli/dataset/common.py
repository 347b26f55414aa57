# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the commands of `fdrl dataset` share: flags of the world, bars, a clean stop."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from fdrl_ros.cli.group import INTERRUPTED, SAME_COMMAND, stopping
from fdrl_ros.cli.options import SettingsCommand
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Progress, Stopped
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.recording import RecordingStopped
from fdrl_ros.surgery.settings import WorldSettings

FILE = click.Path(dir_okay=False, path_type=Path)


def world_command(command: Callable[..., None]) -> click.Command:
    """Make a command with flags for the settings of the world."""
    return click.command(cls=SettingsCommand, groups={'world': WorldSettings})(command)


def world_from(flags: Mapping[str, object]) -> WorldSettings:
    """Return the settings that the flags ask for."""
    given = {
        name.removeprefix('world__'): value
        for name, value in flags.items()
        if name.startswith('world__') and value is not None
    }
    return WorldSettings.from_mapping(given)


def world_in_words(world: WorldSettings) -> str:
    """Say what differs from the default settings."""
    default = asdict(WorldSettings())
    other = [f'{name} {value}' for name, value in asdict(world).items() if value != default[name]]
    return '; else '.join(filter(None, (', '.join(other), 'as by default')))


def operator_from(path: Path) -> tuple[Policy, str]:
    """
    Read the file of a policy that operates.

    :returns: the policy, and what notes call it.
    :raises FdrlError: if it is none of the surgical world.
    """
    policy = load_policy(path).policy(Plan())
    return policy, f'policy {policy.digest.hex()}'


def report_to(
    bars: ProgressBars, stopped: Stopped, what: str, who: str
) -> Callable[[int, int], None]:
    """Return what draws how far a file or procedure is, and stops where the user asks to."""

    def report(done: int, total: int) -> None:
        bars(Progress(what, who, done, total))
        if stopped() and done < total:
            raise RecordingStopped(f'stopped after {done} of {total} operations of {who}')

    return report


def print_dataset(file: Path, made: Dataset) -> None:
    """Print what a file holds."""
    successes = sum(episode.success for episode in made.episodes)
    click.echo(f'{file}: {len(made)} operations, {successes} successes, digest {made.digest}')


@contextmanager
def interruptible_work() -> Iterator[tuple[ProgressBars, Stopped]]:
    """Show bars and listen to Ctrl-C; what was finished is kept."""
    try:
        with stopping() as stopped, ProgressBars(console()) as bars:
            yield bars, stopped
    except RecordingStopped as reason:
        click.echo(f'fdrl: {reason}; {SAME_COMMAND}', err=True)
        click.get_current_context().exit(INTERRUPTED)
