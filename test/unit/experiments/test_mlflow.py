# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What MLflow is told, by a made-up client; and one clear line where it cannot be."""

import importlib.machinery
from pathlib import Path
import sys
from types import ModuleType, SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.cli.experiments.train import end_run
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.metric_logs import check_mlflow, log_to_mlflow, tensorboard
from fdrl_ros.experiments.reports.command import public_words, without_password
from fdrl_ros.experiments.round_recorder import RoundNote
from fdrl_ros.experiments.run_directory import RunDirectory
import pytest

SPENT = {'hospital_1': 1.5, 'hospital_2': 2.0}
NOTES = [
    RoundNote(number, 2.0, 0.1, 0.2, 0.3, 4000, SPENT, tuple(SPENT), number == 2)
    for number in (1, 2)
]
SUMMARY = {'rounds': 2, 'world_hash': 'abc', 'policies': {'global': {'success': 0.75}}}


class Client:
    """Takes the calls of MlflowClient that its documentation has."""

    def __init__(self, tracking_uri: str) -> None:
        if tracking_uri == 'http://nobody':
            raise ConnectionError('nobody answers\nand a long trace')
        self.calls: list[tuple[object, ...]] = []
        Client.made = self

    def get_experiment_by_name(self, name: str) -> None:
        self.calls.append(('get', name))

    def create_experiment(self, name: str) -> str:
        return f'of {name}'

    def create_run(self, experiment_id: str, *, run_name: str, tags: dict[str, str]) -> object:
        self.calls.append(('run', experiment_id, run_name, tags['world_hash']))
        return SimpleNamespace(info=SimpleNamespace(run_id='7'))

    def log_param(self, run_id: str, key: str, value: str) -> None:
        self.calls.append(('param', run_id, key, value))

    def log_metric(self, run_id: str, key: str, value: float, *, step: int) -> None:
        self.calls.append(('metric', run_id, key, value, step))

    def set_terminated(self, run_id: str, status: str = '') -> None:
        self.calls.append(('end', run_id, *([status] if status else [])))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType('mlflow')
    module.__spec__ = importlib.machinery.ModuleSpec('mlflow', None)
    module.MlflowClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'mlflow', module)


def test_settings_rounds_and_scores_are_logged(mlflow: None, tmp_path: Path) -> None:
    log_to_mlflow('sqlite:///x.db', tmp_path / 'a_run', Plan(), NOTES, SUMMARY)
    calls = Client.made.calls
    assert calls[:2] == [('get', 'fdrl_ros'), ('run', 'of fdrl_ros', 'a_run', 'abc')]
    assert ('param', '7', 'privacy.budget', '8.0') in calls
    for metric in (
        ('epsilon/hospital_2', 2.0, 1),
        ('round/rolled_back', 1.0, 2),
        ('round/encryption_seconds', pytest.approx(0.6), 1),
        ('evaluation/success/global', 0.75, 2),
    ):
        assert ('metric', '7', *metric) in calls
    assert calls[-1] == ('end', '7')


def test_a_server_that_is_not_there_is_one_line(mlflow: None, tmp_path: Path) -> None:
    with pytest.raises(FdrlError) as raised:
        log_to_mlflow('http://nobody', tmp_path, Plan(), NOTES, {})
    words = f'--mlflow http://nobody: nobody answers; everything is saved in {tmp_path}'
    assert str(raised.value) == words


def test_without_mlflow_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'mlflow', None)
    words = ['train', '--mlflow', 'http://x', '--directory', str(tmp_path / 'run')]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 1 and 'pip install mlflow' in refused.output
    assert not (tmp_path / 'run').exists()


def test_passwords_of_servers_are_printed_nowhere(mlflow: None, tmp_path: Path) -> None:
    uri = 'http://nobody'
    secret = 'https://anna:PASSWORD@host/x?token=PASSWORD'
    with pytest.raises(FdrlError, match='nothing has begun'):
        check_mlflow(uri)
    assert without_password(secret) == 'https://...@host/x?token=...'
    records = ['--records', 'hospital_1=/clinic/a.h5', '--records=hospital_2=/clinic/b.h5']
    told = public_words(['train', '--mlflow', secret, *records, '--rounds', '2'])
    assert 'PASSWORD' not in str(told) and 'clinic' not in str(told)
    assert told[3:] == [
        '--records',
        'hospital_1=...',
        '--records=hospital_2=...',
        '--rounds',
        '2',
    ]


def test_the_error_without_mlflow_hides_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'mlflow', None)
    with pytest.raises(FdrlError) as raised:
        check_mlflow('https://anna:PASSWORD@host')
    assert 'PASSWORD' not in str(raised.value)


def test_a_run_that_mlflow_refuses_midway_is_marked_as_failed(
    mlflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Client, run_id: str, key: str, value: float, *, step: int) -> None:
        raise ConnectionError('gone')

    monkeypatch.setattr(Client, 'log_metric', refuse)
    with pytest.raises(FdrlError, match='gone'):
        log_to_mlflow('sqlite:///x.db', tmp_path, Plan(), NOTES, {})
    assert Client.made.calls[-1] == ('end', '7', 'FAILED')


def test_the_end_of_rounds_is_told_before_what_mlflow_says(
    mlflow: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FdrlError, match='nobody answers'):
        end_run(RunDirectory(tmp_path), Plan(), NOTES[:1], {}, 'http://nobody')
    assert 'fdrl: only 1 of ' in capsys.readouterr().err


def test_errors_of_the_training_are_not_those_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip('tensorboardX')
    with pytest.raises(ConnectionResetError), tensorboard(tmp_path):
        raise ConnectionResetError('a party')
