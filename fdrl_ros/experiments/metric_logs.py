# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Numbers of a run for other tools: TensorBoard where tensorboardX is installed, MLflow on request.

Both get the same scalars: of each round from its note, of the policies from the summary. Losses
are not among them: a hospital's loss is a number of private records that no budget pays for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
import importlib
import importlib.util
import math
from pathlib import Path
import sys
from types import ModuleType
from typing import Any

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, os_errors_as, PluginError, StoreError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.command import without_password
from fdrl_ros.experiments.round_recorder import NoteTaken, RoundNote
from fdrl_ros.privacy.stated import single_precision

FOLDER = 'tensorboard'
"""In a run's directory."""

EXPERIMENT = 'fdrl_ros'
"""Of MLflow, in which every run is one of its runs."""

_EPSILON = 'epsilon/'
_SCORES = ('success', 'a_task', 'r_mit', 'risk_adjusted_success', 'mean_return', 'mean_total')


def scalars_of(note: RoundNote) -> dict[str, float]:
    """Return the numbers of a round by their tags; those that are unknown are left out."""
    found: dict[str, float | None] = {
        'round/seconds': note.seconds,
        'round/encryption_seconds': note.he_seconds or None,
        'round/update_bytes': note.update_bytes,
        'round/survivors': len(note.contributors),
        'round/rolled_back': float(note.rolled_back),
        'round/peak_memory_mb': note.peak_memory,
        'public/success': note.public_success,
        **{f'{_EPSILON}{name}': spent for name, spent in note.epsilon.items()},
    }
    return _finite(found)


def evaluation_scalars(summary: Json) -> dict[str, float]:
    """
    Return the scores of the policies of a run by their tags.

    Those of the baseline alone are left out if a hospital brought records: no published epsilon
    counts them.
    """
    own = not summary.get('disjoint_patients', False)
    return _finite(
        {
            f'evaluation/{score}/{name}': row.get(score)
            for name, row in summary['policies'].items()
            if not (own and name.startswith('alone'))
            for score in _SCORES
        }
    )


def _finite(found: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in found.items()
        if value is not None and math.isfinite(value)
    }


@contextmanager
def tensorboard(run: Path) -> Iterator[NoteTaken]:
    """
    Log each round of a run for TensorBoard while it lasts; nothing without tensorboardX.

    :param run: its directory; the logs lie below :data:`FOLDER`.
    :raises StoreError: if they cannot be written.
    """
    with _writer(run) as write:
        yield lambda note: write(scalars_of(note), note.round)


def log_evaluation(run: Path, summary: Json) -> None:
    """
    Log the scores of the policies of a run for TensorBoard; nothing without tensorboardX.

    :raises StoreError: if they cannot be written.
    """
    with _writer(run) as write:
        write(evaluation_scalars(summary), summary['rounds'])


def _tensorboard_x() -> ModuleType:
    """Import tensorboardX without PyTorch, which takes a second and which scalars do not need."""
    without = 'torch' not in sys.modules and 'tensorboardX' not in sys.modules
    if without:
        sys.modules['torch'] = None  # type: ignore[assignment]  # it cannot be imported then
    try:
        return importlib.import_module('tensorboardX')
    finally:
        if without:
            del sys.modules['torch']


@contextmanager
def _writer(run: Path) -> Iterator[Any]:
    if importlib.util.find_spec('tensorboardX') is None:
        yield lambda scalars, step: None
        return
    module = _tensorboard_x()
    words = f'cannot write TensorBoard logs below {run}'
    with os_errors_as(StoreError, words):
        writer = module.SummaryWriter(str(run / FOLDER))

    def write(scalars: Mapping[str, float], step: int) -> None:
        with os_errors_as(StoreError, words):
            for name, value in scalars.items():
                if name.startswith(_EPSILON):  # a file of TensorBoard holds single precision
                    value = single_precision(value)
                writer.add_scalar(name, value, step)
            writer.flush()

    try:
        yield write
    finally:
        with os_errors_as(StoreError, words):
            writer.close()


def check_mlflow(uri: str) -> None:
    """
    Refuse a run for MLflow before it begins where MLflow cannot be reached or is not installed.

    It makes the experiment if there is none.

    :raises PluginError: if MLflow is not installed.
    :raises FdrlError: if it cannot be reached, or refuses.
    """
    with _mlflow(uri, 'nothing has begun') as client:
        _experiment(client)


@contextmanager
def _mlflow(uri: str, then: str) -> Iterator[Any]:
    """
    Yield a client; an error of whatever kind is one line, which ends with what then holds.

    :raises PluginError: if MLflow is not installed.
    :raises FdrlError: if a call fails.
    """
    shown = without_password(uri)
    if importlib.util.find_spec('mlflow') is None:
        raise PluginError('--mlflow', f'no module mlflow for {shown}: pip install mlflow')
    try:
        yield importlib.import_module('mlflow').MlflowClient(tracking_uri=uri)
    except Exception as error:  # of whatever kind its stores and the network raise
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        said = without_password(said.replace(uri, shown))
        raise FdrlError(f'--mlflow {shown}: {said}; {then}') from error


def _experiment(client: Any) -> Any:
    known = client.get_experiment_by_name(EXPERIMENT)
    return known.experiment_id if known else client.create_experiment(EXPERIMENT)


def log_to_mlflow(
    uri: str, run: Path, plan: Plan, rounds: Sequence[RoundNote], summary: Json
) -> None:
    """
    Log settings, rounds and scores of a finished run to an MLflow tracking server or store.

    :param uri: as MLflow takes it, such as http://127.0.0.1:5000 or sqlite:///mlflow.db.
    :param summary: as `summary.json` holds it; empty if nothing was evaluated.
    :raises PluginError: if MLflow is not installed.
    :raises FdrlError: if it cannot be reached, or refuses; the run's own files are not concerned,
        and MLflow's run is marked as failed.
    """
    settings = {
        f'{group}.{name}': value
        for group, values in plan.to_mapping().items()
        for name, value in values.items()
    }
    with _mlflow(uri, f'everything is saved in {run}') as client:
        tags = {'task': plan.federation.task, 'world_hash': summary.get('world_hash', '')}
        made = client.create_run(_experiment(client), run_name=run.name, tags=tags)
        own = made.info.run_id
        try:
            for name, value in settings.items():
                client.log_param(own, name, str(value)[:500])
            for note in rounds:
                for name, value in scalars_of(note).items():
                    client.log_metric(own, name, value, step=note.round)
            if summary:
                for name, value in evaluation_scalars(summary).items():
                    client.log_metric(own, name, value, step=summary['rounds'])
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                client.set_terminated(own, status='FAILED')
            raise
        client.set_terminated(own)
