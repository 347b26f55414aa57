# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation on Ray: the very same policies, whatever the cores, kills and interruptions."""

from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
import os
from pathlib import Path
import shutil
import signal
import socket
import sys

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_ledger
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import FdrlError, PluginError, SettingError, TrainingStopped
from fdrl_ros.experiments.hospital_group import JOB, Shard
from fdrl_ros.experiments.ray_federation import _anywhere, ATTEMPTS, RayEngine
from fdrl_ros.experiments.round_recorder import read_rounds
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.training import prepare_run, train_federation
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.policy import digest_of
from fdrl_ros.runtime.progress import Caller
import pytest
from support.small_run import SMALL_PLAN

pytestmark = pytest.mark.usefixtures('quick_scrypt')
PLAN = SMALL_PLAN.changed(
    {
        'federation': {'hospitals': 5},
        'rounds': {'rounds': 2},
        'learner': {'epochs': 3},
        'home': {
            **{'epochs': 1, 'choice_noise': 1.0, 'candidates': 'personal'},
            **{'frozen': '', 'offsets': ''},
        },
    }
)


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """Return Ray, which is to write nothing into the home directory."""
    if find_spec('ray') is None:
        pytest.skip('Ray is not installed: pip install "fdrl_ros[ray]"')
    RayEngine().check()
    import ray as found

    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    yield found
    assert not found.is_initialized()
    assert not (tmp_path / 'home').exists()


@pytest.fixture(scope='module')
def begun(tmp_path_factory):
    """Return a run that was prepared alone: copies of it have the same keys."""
    directory = tmp_path_factory.mktemp('begun') / 'run'
    prepare_run(directory, PLAN)
    return directory


def copied(begun, directory):
    return Path(shutil.copytree(begun, directory / 'run'))


def outcome(directory):
    """Return what came out: policies, what was charged and is stated, who took part."""
    layout, charged = Layout(directory / 'federation'), {}
    for name in PLAN.hospitals:
        with closing(open_ledger(layout.party(name), name, PLAN)) as ledger:
            charged[name] = [(each.round, each.block) for each in ledger.chain.entries]
    policies = {
        str(path.relative_to(directory)): digest_of(load_policy(path).weights)
        for pattern in ('policies/*.npz', 'federation/*/home.npz')
        for path in sorted(directory.glob(pattern))
    }
    rounds = [
        (each.round, each.contributors, each.epsilon, each.update_bytes)
        for each in read_rounds(directory / 'rounds.json')
    ]
    return policies, charged, rounds


@contextmanager
def noted_messages():
    """Give a list to which the kind, sender and attempt of each message come that is posted."""
    posted, post = [], LocalFederation.post

    def noted(driver, message):
        posted.append((type(message).__name__, message.sender, message.id))
        post(driver, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFederation, 'post', noted)
        yield posted


@pytest.fixture(scope='module')
def expected(begun, tmp_path_factory):
    """Return what comes out in one process, the progress that is told, and all messages."""
    directory, seen = copied(begun, tmp_path_factory.mktemp('expected')), []
    with noted_messages() as posted:
        run_training(directory, PLAN, Caller(seen.append))
    found = outcome(directory)
    assert len(found[0]) == 3 + len(PLAN.hospitals)
    return found, seen, posted


def trained(seen):
    """Return progress of training, by hospital."""
    told = [each for each in seen if each.what in ('train', 'home')]
    return {name: [each for each in told if each.who == name] for name in PLAN.hospitals}


def shard_processes():
    """Return the processes of this one's shards."""
    parents = {}
    for path in Path('/proc').glob('[0-9]*'):
        try:
            words = (path / 'cmdline').read_bytes().split(b'\0')[0]
            line = (path / 'stat').read_text().rpartition(')')[2].split()
        except OSError:
            continue
        parents[int(path.name)] = int(line[1]), words
    mine = [pid for pid, (parent, _) in parents.items() if parent == os.getpid()]
    return sorted(
        pid for pid, (parent, words) in parents.items() if parent in mine and b'Shard' in words
    )


@pytest.mark.parametrize('cores', [1, 2])
def test_policies_ledgers_progress_and_order_are_those_of_one_process(
    ray, begun, expected, tmp_path, cores
):
    directory, seen, about = copied(begun, tmp_path), [], {}

    def report(progress):
        seen.append(progress)
        if progress.what == 'train':
            about.update(
                shards=len(shard_processes()),
                cores=ray.cluster_resources()['CPU'],
                hosts=[each['NodeManagerAddress'] for each in ray.nodes()],
                statistics=os.environ['RAY_USAGE_STATS_ENABLED'],
            )

    handler = signal.getsignal(signal.SIGTERM)
    with noted_messages() as posted:
        _, rounds = run_training(directory, PLAN, Caller(report), RayEngine(cores))
    assert about == {
        **{'shards': cores, 'cores': cores},
        **{'hosts': ['127.0.0.1'], 'statistics': '0'},
    }
    assert signal.getsignal(signal.SIGTERM) is handler
    assert outcome(directory) == expected[0]
    assert posted == expected[2]
    assert trained(seen) == trained(expected[1])
    assert {each.what for each in seen} == {each.what for each in expected[1]}
    assert all(each.encrypt_seconds > 0.0 for each in rounds)


def test_a_killed_shard_is_replaced_and_nothing_is_charged_twice(
    ray, begun, expected, tmp_path, caplog
):
    directory, killed = copied(begun, tmp_path), []

    def report(progress):
        in_round = progress.what == 'train' and progress.detail.startswith('round 2')
        if in_round or (progress.what == 'home' and len(killed) == 1):
            stage = progress.what
            if stage not in killed:
                killed.append(stage)
                os.kill(shard_processes()[0], signal.SIGKILL)

    run_training(directory, PLAN, Caller(report), RayEngine(2))
    assert killed == ['train', 'home']
    assert caplog.text.count('ended: ') >= 1
    assert outcome(directory) == expected[0]


def test_an_interrupted_run_goes_on_with_another_engine_and_ends_the_same(
    ray, begun, expected, tmp_path
):
    directory, stop = copied(begun, tmp_path), []

    def report(progress):
        if progress.what == 'train' and progress.detail.startswith('round 2'):
            stop.append(progress)

    asked = Caller(report, lambda: bool(stop))
    with pytest.raises(TrainingStopped):
        run_training(directory, PLAN, asked, RayEngine(2))
    assert not shard_processes()
    policies, charged, rounds = outcome(directory)
    assert len(rounds) == 1 and charged != expected[0][1]
    run_training(directory, PLAN)
    assert outcome(directory) == expected[0]


@pytest.mark.parametrize('ends_in', ['opening', 'jobs'])
def test_a_shard_that_always_ends_ends_the_run_with_the_reason(
    ends_in, ray, begun, tmp_path, monkeypatch
):
    layout = Layout(copied(begun, tmp_path) / 'federation')
    engine = 'fdrl_ros.experiments.ray_federation.Shard'
    monkeypatch.setattr(engine, _Ending if ends_in == 'opening' else _EndingInJobs)
    again = f'the process of hospital_1 to hospital_5 ended {ATTEMPTS + 1} times: killed, or out'
    with pytest.raises(FdrlError, match=again):
        train_federation(layout, PLAN, tmp_path / 'policies', engine=RayEngine(1))
    assert not shard_processes()


class _EndingInJobs(Shard):
    """A shard whose process ends in each job."""

    def play(self, shared, own, now):
        if any(task.what == JOB for task in own):
            os._exit(9)
        return super().play(shared, own, now)


class _Ending:
    """A shard whose process ends before its hospitals are open."""

    def open(self, *terms):
        os._exit(9)

    def look(self, stop=False):
        return []

    def close(self):
        pass


def test_what_a_hospital_refuses_with_reaches_the_caller_as_it_is(ray, begun, tmp_path):
    directory = copied(begun, tmp_path)
    run_training(directory, PLAN.changed({'rounds': {'rounds': 1}}))
    ledger = directory / 'federation' / 'hospital_4' / 'ledger.sqlite'
    ledger.unlink()
    with pytest.raises(FdrlError) as here:
        run_training(directory, PLAN)
    with pytest.raises(FdrlError) as there:
        run_training(directory, PLAN, engine=RayEngine(2))
    assert type(there.value) is type(here.value) and str(there.value) == str(here.value)


# What is refused before anything begins.

fdrl = partial(CliRunner().invoke, main)


def test_without_ray_one_line_tells_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'ray', None)
    found = fdrl(['train', '--engine', 'ray', '--runs', str(tmp_path / 'runs')])
    assert found.exit_code == 1 and found.stderr.count('\n') == 1
    assert 'pip install "fdrl_ros[ray]"' in found.stderr
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize(
    'address', ['127.0.0.1', '127.0.0.1:port', 'ray://', '127.0.0.1:{closed}']
)
def test_an_address_at_which_nobody_answers_is_refused(ray, tmp_path, address):
    with socket.create_server(('127.0.0.1', 0)) as server:
        address = address.format(closed=server.getsockname()[1])
    runs = str(tmp_path / 'runs')
    found = fdrl(['train', '--engine', 'ray', '--address', address, '--runs', runs])
    assert found.exit_code == 1 and found.stderr.count('\n') == 1
    assert f"--address '{address}': expected HOST:PORT of a Ray cluster" in found.stderr
    assert 'invalid literal' not in found.stderr
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('flags', [['--cores', '2'], ['--address', '127.0.0.1:6379']])
def test_cores_and_address_are_of_ray_alone(flags, tmp_path):
    found = fdrl(['train', *flags, '--runs', str(tmp_path / 'runs')])
    assert found.exit_code == 1 and '--engine' in found.stderr and 'ray' in found.stderr
    assert not (tmp_path / 'runs').exists()


def test_what_accepts_connections_and_is_no_ray_is_refused(ray, monkeypatch):
    monkeypatch.setattr('fdrl_ros.experiments.ray_federation._ANSWER', 4)
    with socket.create_server(('0.0.0.0', 0)) as server:
        address = f'127.0.0.1:{server.getsockname()[1]}'
        with pytest.raises(SettingError, match='that answers: no Ray, or one with') as no:
            RayEngine(address=address).check()
    assert no.value.value == address


def test_a_cluster_is_tried_before_anything_begins(ray, monkeypatch):
    with RayEngine(1).started():
        address = ray.get_runtime_context().gcs_address
        assert RayEngine(address=address).check() == 1
        with pytest.raises(SettingError, match='cores = 2: expected 1 to the 1 of the cluster'):
            RayEngine(2, address).check()
        monkeypatch.setattr('fdrl_ros.experiments.ray_federation._ANSWER', 4)
        monkeypatch.setenv('RAY_AUTH_TOKEN', 'of_somebody_else')
        with pytest.raises(SettingError, match='another token: it let nobody in within 4 s'):
            RayEngine(address=address).check()


def test_more_cores_than_this_host_has_are_refused(ray, tmp_path):
    cores = len(os.sched_getaffinity(0))
    flags = ['--engine', 'ray', '--cores', str(cores + 1), '--runs', str(tmp_path / 'runs')]
    found = fdrl(['train', *flags])
    expected = f'fdrl: --cores {cores + 1}: expected 1 to the {cores} of this host'
    assert found.exit_code == 1 and found.stderr.strip() == expected
    assert not (tmp_path / 'runs').exists()


def test_the_command_says_where_hospitals_work(ray, monkeypatch, tmp_path):
    def stop(*unused):
        raise TrainingStopped('stopped')

    monkeypatch.setattr('fdrl_ros.cli.experiments.train.run_training', stop)
    flags = ['--engine', 'ray', '--cores', '1', '--no-evaluate', '--runs', str(tmp_path / 'runs')]
    found = fdrl(['train', *flags])
    assert 'Hospitals work in up to 1 shards of one core each: Ray on this host.' in found.output


def test_a_cluster_that_has_lost_cores_meanwhile_is_refused(ray, monkeypatch):
    monkeypatch.setattr(ray, 'init', lambda **where: None)
    monkeypatch.setattr(ray, 'shutdown', lambda: None)
    monkeypatch.setattr(ray, 'cluster_resources', lambda: {'CPU': 4.0})
    monkeypatch.setattr(RayEngine, 'check', lambda engine: engine.cores)
    with pytest.raises(SettingError, match='cores = 5: expected 1 to the 4 of the cluster'):
        with RayEngine(5).started():
            pass


def test_a_ray_of_the_caller_is_left_alone(ray):
    ended = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, 'is_initialized', lambda: True)
        patch.setattr(ray, 'shutdown', lambda: ended.append(True))
        with pytest.raises(PluginError, match='runs in this process already'):
            with RayEngine(1).started():
                pass
    assert not ended


def test_shards_elsewhere_find_directory_and_passphrase(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('FDRL_PASSPHRASE_FILE', 'secret')
    assert _anywhere(Layout(Path('runs'))) == Layout(tmp_path / 'runs', tmp_path / 'secret')
    named = Layout(Path('runs'), Path('other'))
    assert _anywhere(named).passphrase_file == tmp_path / 'other'
    monkeypatch.delenv('FDRL_PASSPHRASE_FILE')
    assert _anywhere(Layout(Path('runs'))).passphrase_file is None
