# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What MLflow is told, by a made-up client; and one clear line where it cannot be."""

import importlib.machinery
from pathlib import Path
import sys
from types import ModuleType, SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.metric_logs import log_to_mlflow
from fdrl_ros.experiments.round_recorder import RoundNote
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

    def set_terminated(self, run_id: str) -> None:
        self.calls.append(('end', run_id))


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
