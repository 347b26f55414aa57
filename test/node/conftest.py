# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A small federation on disk, its nodes as real processes over real DDS, and an eye on them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
import shutil
import time
from typing import Any

from click.testing import CliRunner
import pytest

pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
pytest.importorskip('fdrl_ros.msg', reason='the messages are not built')

from fdrl_ros.cli import main  # noqa: E402, I100
from fdrl_ros.crypto.keys.keystore import load_passphrase  # noqa: E402
from fdrl_ros.crypto.keys.rotation import change_passphrase  # noqa: E402
from fdrl_ros.deployment.bringup import BringupSettings, federation_graph  # noqa: E402
from fdrl_ros.deployment.events import Event, NodeHealth, ReceivedMessage  # noqa: E402
from fdrl_ros.deployment.layout import Layout  # noqa: E402
from fdrl_ros.deployment.parties.hospital import open_records  # noqa: E402
from fdrl_ros.deployment.plan import Plan  # noqa: E402
from fdrl_ros.deployment.policy_file import load_policy  # noqa: E402
from fdrl_ros.deployment.prepare import prepare  # noqa: E402
from fdrl_ros.deployment.runner import Death, Runner  # noqa: E402
from fdrl_ros.experiments.training import train_federation  # noqa: E402
from fdrl_ros.federation.protocol.message import GlobalPolicy, Phase, RoundStatus  # noqa: E402
from fdrl_ros.nodes.observer import Observer  # noqa: E402
from fdrl_ros.policy import digest_of  # noqa: E402
from fdrl_ros.runtime.durable import write_secret  # noqa: E402
from support.operating_room import Room  # noqa: E402
from support.surgeon import env_alone, Surgeon  # noqa: E402

PLAN = Plan().changed(
    {
        'federation': {'noise': 'seeded', 'procedures': 'palpation, retraction'},
        'home': {'epochs': 0},
        'rounds': {'rounds': 2, 'open_timeout': 10.0, 'train_timeout': 20.0},
        'learner': {'hidden': 8, 'epochs': 20},
        'privacy': {'batch': 10, 'delta': 1e-3, 'budget': 1e6},
        'collection': {'patients': 30},
        'pretraining': {'patients': 10, 'steps': 20},
        'validation': {'patients': 3, 'margin': 1.0},
        'value': {'patients': 12, 'checked': 2, 'redraws': 16},
        'selector': {'hold_handicap': 1000.0},
        'safety': {
            'patients': 16,
            'snapshots': 4,
            'force_share': 1.0,
            'workspace_share': 1.0,
            'one_action_share': 1.0,
            'force_failures': 1.0,
            'return_margin': 1000.0,
        },
        'world': {'mode': 'kinematic'},
    }
)


@dataclass(frozen=True)
class Reference:
    """
    A prepared directory with records, and the policies that the in-process driver makes of it.

    :param digest: of the last one.
    :param first: digest of that of round 1.
    """

    directory: Path
    digest: bytes
    first: bytes


@pytest.fixture(scope='session')
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    directory = tmp_path_factory.mktemp('reference') / 'federation'
    layout = prepare(directory, PLAN)
    for name in PLAN.hospitals:
        open_records(layout, name, PLAN)
    played = tmp_path_factory.mktemp('played') / 'federation'
    shutil.copytree(directory, played)
    last = play(Layout(played))
    first = load_policy(played / 'policies' / 'global_1.npz')
    return Reference(directory, last, digest_of(first.weights))


def play(layout: Layout, plan: Plan = PLAN) -> bytes:
    """Run all rounds in process and return the digest of the last policy."""
    policies = layout.directory / 'policies'
    policies.mkdir(exist_ok=True)
    train_federation(layout, plan, policies)
    return digest_of(load_policy(policies / f'global_{plan.rounds.rounds}.npz').weights)


class Live:
    """A federation that runs, and all that was heard of it."""

    def __init__(self, runner: Runner, watch: Observer, settings: BringupSettings) -> None:
        self.runner = runner
        self.watch = watch
        self.settings = settings
        self.layout = Layout(Path(settings.directory))
        self.heard: list[Event] = []
        self.deaths: list[Death] = []

    def begin_without_the_last(self) -> str:
        """Start all but one hospital, which is returned: the round stays open until it comes."""
        *early, late = PLAN.hospitals
        self.runner.start(federation_graph(self.settings, tuple(early)))
        self.wait(lambda: self.phase is Phase.OPEN)
        return late

    def start(self) -> None:
        """Start servers and hospitals."""
        self.runner.start(federation_graph(self.settings, PLAN.hospitals))

    def wait(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Look on until a condition holds; say what the nodes said if it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.heard += self.watch.poll(0.05)
            self.deaths += [each for each in self.runner.poll() if isinstance(each, Death)]
            if time.monotonic() > deadline:
                logs = [each.read_text() for each in self.layout.log.glob('*.log')]
                pytest.fail(f'not within {seconds} s; {self.deaths}\n' + '\n'.join(logs))

    @property
    def phase(self) -> Phase | None:
        """The newest phase that was heard."""
        said = [
            e.message
            for e in self.heard
            if isinstance(e, ReceivedMessage) and isinstance(e.message, RoundStatus)
        ]
        return Phase(said[-1].phase) if said else None

    def policy(self, round: int) -> GlobalPolicy | None:
        """Return the policy of a round, if it was heard."""
        for event in self.heard:
            if isinstance(event, ReceivedMessage) and isinstance(event.message, GlobalPolicy):
                if event.message.envelope.round == round:
                    return event.message
        return None

    def health(self, node: str) -> dict[str, str]:
        """Return what a node said last of itself."""
        felt = [e for e in self.heard if isinstance(e, NodeHealth) and e.node == node]
        return {**felt[-1].values, 'summary': felt[-1].summary} if felt else {}

    def wait_for_health(self, node: str, words: str, seconds: float = 60.0) -> dict[str, str]:
        """Wait until a node's summary contains some words, and return all that it said then."""
        self.wait(lambda: words in self.health(node).get('summary', ''), seconds)
        return self.health(node)

    def order(self, action: str, *what: str) -> tuple[int, str]:
        """Order something as people do: exit code, and what was printed."""
        settings = self.settings
        place = ['--domain', str(settings.federation_domain), '--namespace', settings.namespace]
        words = ['operator', action, *what, '--directory', settings.directory, *place]
        done = CliRunner().invoke(main, words)
        return done.exit_code, done.output.strip()

    def finish(self, last: int = PLAN.rounds.rounds) -> bytes:
        """
        Wait for the end and return the digest of the last policy.

        :param last: its round.
        """
        self.wait(lambda: self.watch.finished and self.policy(last) is not None)
        policy = self.policy(last)
        assert policy is not None
        return policy.digest


@pytest.fixture
def directory(reference: Reference, tmp_path: Path) -> Path:
    """Return a prepared directory of the test's own."""
    return Path(shutil.copytree(reference.directory, tmp_path / 'federation'))


@pytest.fixture
def settings(directory: Path, federation_domain: int, robot_domain: int) -> BringupSettings:
    return BringupSettings(
        directory=str(directory), federation_domain=federation_domain, robot_domain=robot_domain
    )


@pytest.fixture
def encrypted(settings: BringupSettings, tmp_path: Path) -> BringupSettings:
    """Encrypt all keys, and return settings that tell the nodes where the passphrase lies."""
    file, site = tmp_path / 'passphrase', tmp_path / 'site.yaml'
    write_secret(file, b'correct horse\n')
    change_passphrase(Layout(Path(settings.directory)).keys, None, load_passphrase(file))
    site.write_text(f'/**: {{ros__parameters: {{passphrase_file: {file}}}}}')
    return replace(settings, parameters=str(site))


@pytest.fixture
def live(settings: BringupSettings) -> Iterator[Live]:
    """Give a federation whose nodes are started again when they die."""
    with watched(settings) as made:
        yield made


@contextmanager
def watched(settings: BringupSettings) -> Iterator[Live]:
    """Look on at a federation whose nodes are started again when they die."""
    log = Path(settings.directory) / 'log'
    with (
        Observer(
            Layout(Path(settings.directory)).roster(),
            settings.federation_domain,
            ('robot_1',),
            settings.robot_domain,
            namespace=settings.namespace,
            n_parameters=PLAN.network.n_parameters,
        ) as watch,
        Runner(settings, log) as runner,
    ):
        yield Live(runner, watch, settings)


@pytest.fixture
def room(settings: BringupSettings) -> Iterator[Room]:
    """Give one who looks and speaks in the robots' domain."""
    made = Room(settings.robot_domain)
    yield made
    made.close()


@pytest.fixture
def runner(settings: BringupSettings) -> Iterator[Runner]:
    """Give who starts single nodes, each once."""
    once = replace(settings, use_respawn=False)
    with Runner(once, Path(settings.directory) / 'log') as made:
        yield made


@pytest.fixture
def surgeon(runner: Runner, room: Room, settings: BringupSettings) -> Surgeon:
    """Give a CRTK client of an env that has all the time in the world."""
    runner.start([env_alone(settings)])
    return Surgeon(room)


@pytest.fixture
def page(settings: BringupSettings, directory: Path) -> Iterator[tuple[Any, str]]:
    """Return the page of a federation and a robot, and its address."""
    from fdrl_ros.cli.federation.orders import operator_credentials
    from fdrl_ros.nodes.watch import Page
    from fdrl_ros.page.server import Place
    from support.page_client import served

    identity, roster = operator_credentials(Layout(directory).keys, 'operator', None)
    made = Page(
        settings,
        ('robot_1',),
        directory,
        lifetime=60.0,
        place=Place(),
        roster=roster,
        plan=PLAN,
        signer=(identity, roster.federation),
    )
    with made as page, served(page.app) as url:
        yield page, url
