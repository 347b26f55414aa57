# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl dataset`: what each command writes and says, how it goes on, what it refuses."""

from pathlib import Path
import signal

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.learner.records.records import Records
from fdrl_ros.metrics.task import StateSet, task_accuracy
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode_metrics import episode_metrics
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
import numpy as np
import pytest
from support import pole
from support.metrics_files import read_csv, read_json

FAST = ('--world-mode', 'kinematic')


def fdrl(*words):
    return CliRunner().invoke(main, ['dataset', *(str(each) for each in words)])


@pytest.fixture(scope='module')
def walks(tmp_path_factory):
    """Return a file of six operations of hospital 2, half of the moves random."""
    path = tmp_path_factory.mktemp('walks') / 'walks.npz'
    said = fdrl('record', path, '--count', 6, '--hospital', 2, '--exploration', 0.5, *FAST)
    assert said.exit_code == 0, said.output
    assert '6 operations' in said.output
    return path


def test_what_is_recorded_replays(walks):
    said = fdrl('replay', walks)
    assert (said.exit_code, 'the same, bit by bit' in said.output) == (0, True)
    assert fdrl('replay', walks, '--episode', 3).exit_code == 0
    assert fdrl('replay', walks, '--episode', 6).exit_code == 1
    names = {each.patient.name.split('/')[0] for each in Dataset.load(walks).episodes}
    assert names == {'hospital_2'}


def random_policy(path):
    plan = Plan({'learner': {'hidden': 4}})
    size = plan.network.layout.n_parameters
    weights = np.random.default_rng(1).normal(size=size).astype(np.float32)
    save_policy(path, weights, plan)
    return plan.network.policy(weights)


def test_a_policy_is_recorded_under_its_digest(tmp_path):
    random_policy(tmp_path / 'policy.npz')
    words = ('--policy', tmp_path / 'policy.npz', '--count', 2, *FAST)
    said = fdrl('record', tmp_path / 'file', *words)
    assert said.exit_code == 0, said.output
    assert Dataset.load(tmp_path / 'file').note.startswith('policy ')
    with np.load(tmp_path / 'policy.npz') as file:
        arrays = dict(file)
    other = arrays | {'task': np.array('{"name": "cartpole", "version": 1, "world_hash": "1"}')}
    np.savez(tmp_path / 'other.npz', **other)
    said = fdrl('record', tmp_path / 'other', '--policy', tmp_path / 'other.npz', *FAST)
    assert (said.exit_code, 'is of task cartpole 1' in said.output) == (1, True)


def test_demonstrations_of_every_procedure_lie_in_files_of_their_own(tmp_path):
    for _ in range(2):  # the second time it is all there
        said = fdrl('demonstrate', tmp_path / 'demos', '--count', 2, *FAST)
        assert said.exit_code == 0, said.output
    files = sorted(each.name for each in (tmp_path / 'demos').iterdir())
    assert files == sorted(f'{name}.npz' for name in PROCEDURE_NAMES)
    said = fdrl('demonstrate', tmp_path / 'demos', '--count', 3, '--seed', 1, *FAST)
    assert (said.exit_code, 'something else' in said.output) == (1, True)
    assert 'seed 0;' in said.output and 'seed 1;' in said.output
    said = fdrl('demonstrate', tmp_path / 'other', '--procedures', 'heart', *FAST)
    assert (said.exit_code, 'heart' in said.output) == (1, True)


def test_a_finished_file_grows_and_never_shrinks(tmp_path):
    words = ('demonstrate', tmp_path / 'a', '--procedures', 'reach', *FAST)
    for count in (2, 12):
        said = fdrl(*words, '--count', count)
        assert (said.exit_code, f'{count} successes' in said.output) == (0, True)
    said = fdrl(*words, '--count', 5)
    assert (said.exit_code, 'more than the 5 asked for' in said.output) == (1, True)
    fdrl('demonstrate', tmp_path / 'b', '--procedures', 'reach', '--count', 12, *FAST)
    at_once = (tmp_path / 'b' / 'reach.npz').read_bytes()
    assert (tmp_path / 'a' / 'reach.npz').read_bytes() == at_once


def test_hospitals_are_counted_from_one_and_zero_is_public(walks, tmp_path):
    for number in (1, 3):
        file = tmp_path / f'{number}.npz'
        said = fdrl('record', file, '--hospital', number, '--count', 1, *FAST)
        assert said.exit_code == 0, said.output
        assert Dataset.load(file).episodes[0].patient.name.startswith(f'hospital_{number}/')
        assert f'hospital {number} of 3' in ' '.join(fdrl('show', file).output.split())
    said = fdrl('record', tmp_path / 'f', '--hospital', 4, *FAST)
    assert said.exit_code == 1
    assert said.output.strip() == ('fdrl: --hospital 4: expected 1 to 3, or 0 for public patients')
    said = fdrl('record', walks, '--count', 6, '--hospital', 3, '--exploration', 0.5)
    assert said.exit_code == 1
    for words in ('hospital 2 of 3', 'hospital 3 of 3', 'mode kinematic, not dynamic'):
        assert words in said.output


def test_nobody_operates_before_the_place_of_the_file_is_there(tmp_path, monkeypatch):
    from fdrl_ros.surgery.data import recording

    monkeypatch.setattr(recording, 'run_episode', None)
    said = fdrl('record', tmp_path / 'x' / 'c.npz', '--count', 1, *FAST)
    assert (said.exit_code, 'x is no directory: make it first' in said.output) == (1, True)


def test_an_interrupted_recording_ends_cleanly_and_goes_on(tmp_path, monkeypatch):
    from fdrl_ros.surgery.data import recording

    run, count = recording.run_episode, 0

    def interrupted(*arguments):
        nonlocal count
        count += 1
        if count == 15:
            signal.raise_signal(signal.SIGINT)
        return run(*arguments)

    monkeypatch.setattr(recording, 'run_episode', interrupted)
    words = ('demonstrate', tmp_path, '--procedures', 'reach', '--count', 20, *FAST)
    said = fdrl(*words)
    assert (said.exit_code, 'goes on from here' in said.output) == (130, True)
    assert (tmp_path / 'reach.npz.parts').is_dir()
    said = fdrl(*words)
    assert (said.exit_code, '20 successes' in said.output) == (0, True)
    assert [each.name for each in tmp_path.iterdir()] == ['reach.npz']


def test_metrics_are_shown_and_saved(walks, tmp_path):
    said = fdrl('show', walks, '--save', tmp_path / 'a.csv', '--save', tmp_path / 'a.json')
    assert said.exit_code == 0, said.output
    loaded = Dataset.load(walks)
    for words in (loaded.digest, 'NEWS2', 'not a medical device', 'exploration 0.5'):
        assert words in said.output
    for words in ('mode kinematic; else as by default', 'hospital 2 of 3, H = 0.8, seed 1'):
        assert words in said.output
    assert 'Cohort' not in said.output and 'WorldSettings' not in said.output
    assert 'the worst of each operation' in said.output and 'most, N' in said.output
    assert 'A_task' not in said.output  # of the expert it would be 1, whatever happened
    expected = [episode_metrics(each) for each in loaded.episodes]
    for found in (read_csv(tmp_path / 'a.csv'), read_json(tmp_path / 'a.json')):
        assert list(map(repr, found)) == list(map(repr, expected))  # NaN is not itself
    assert fdrl('show', walks, '--save', tmp_path / 'a.txt').exit_code == 1


def states_for(path, size=STATE_SIZE):
    """Save a frozen set of random states in which the policy's greedy action may be wrong."""
    rng = np.random.default_rng(4)
    costs = rng.uniform(0.0, 0.01, (50, ACTION_COUNT))
    made = StateSet(rng.normal(size=(50, size)), costs, costs.argmin(axis=1), np.arange(50) // 10)
    made.save(path)
    return made


def test_a_task_of_who_operated_is_measured_on_a_frozen_set(walks, tmp_path):
    policy, states = tmp_path / 'policy.npz', tmp_path / 'states.npz'
    operator, frozen = random_policy(policy), states_for(states)
    mine = tmp_path / 'mine.npz'
    assert fdrl('record', mine, '--policy', policy, '--count', 2, *FAST).exit_code == 0
    words = ('--policy', policy, '--states', states)
    said = fdrl('show', mine, *words, '--save', tmp_path / 'a.json')
    assert said.exit_code == 0, said.output
    assert 'A_task' in said.output and frozen.digest in said.output
    expected = task_accuracy(frozen, np.array([operator(each) for each in frozen.states]))
    assert 0.0 < expected.exact < 1.0
    for each in read_json(tmp_path / 'a.json'):
        assert (each.task_exact, each.task_tolerant) == (expected.exact, expected.tolerant)
        assert each.states == frozen.digest
    said = fdrl('show', walks, *words)
    assert (said.exit_code, 'is of expert' in said.output) == (1, True)
    states_for(states, 3)
    said = fdrl('show', mine, *words)
    assert (said.exit_code, 'has 3 state numbers' in said.output) == (1, True)
    assert fdrl('show', mine, '--policy', policy).exit_code == 2
    assert fdrl('show', mine, '--states', states).exit_code == 2


def test_a_dataset_becomes_a_bag_and_a_dataset_again(walks, tmp_path):
    pytest.importorskip('rosbags')
    bag = tmp_path / 'bag'
    said = fdrl('convert', walks, bag, '--storage', 'sqlite3')
    assert (said.exit_code, 'ros2 bag play' in said.output) == (0, True)
    assert fdrl('convert', bag, tmp_path / 'back.npz').exit_code == 0
    assert (tmp_path / 'back.npz').read_bytes() == walks.read_bytes()
    said = fdrl('convert', walks, bag)
    assert (said.exit_code, 'exists already' in said.output) == (1, True)
    said = fdrl('convert', bag, tmp_path / 'other.npz', '--robot', 'robot_9')
    assert (said.exit_code, 'robot_9' in said.output) == (1, True)


def test_a_log_becomes_records(walks, tmp_path):
    pytest.importorskip('rosbags')
    fdrl('convert', walks, tmp_path / 'bag')
    said = fdrl('convert', tmp_path / 'bag', tmp_path / 'records.npz', '--records')
    assert (said.exit_code, 'derived from what was measured' in said.output) == (0, True)
    records = Records.load(tmp_path / 'records.npz', STATE_SIZE)
    assert records.n_patients == 6
    assert len(records.actions) == sum(each.length for each in Dataset.load(walks).episodes)


def test_the_commands_of_the_page_bring_a_log_into_training(walks, tmp_path, monkeypatch):
    pytest.importorskip('rosbags')
    fdrl('convert', walks, tmp_path / 'log')
    page = (Path(__file__).resolve().parents[3] / 'docs' / 'ros.md').read_text('utf-8')
    section = page.split("## A live arm's log as data")[1]
    lines = [each.partition('#')[0].split() for each in section.splitlines()]
    record, convert, train = (each for each in lines if each[:1] in (['ros2'], ['fdrl']))
    assert record == ['fdrl', 'record', 'log']
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, convert[1:]).exit_code == 0
    train[train.index('64')] = '4'  # of six patients, not of the hundreds of a hospital
    tiny = '--rounds 1 --no-evaluate --learner-hidden 8 --learner-epochs 1 --privacy-delta 0.001 '
    tiny += '--collection-patients 6 --pretraining-patients 2 --pretraining-steps 2 '
    tiny += '--validation-patients 1 --world-mode kinematic --world-horizon 5 --privacy-budget 99 '
    tiny += '--evaluation-workers 1'
    said = CliRunner().invoke(main, [*train[1:], *tiny.split()])
    assert said.exit_code == 0, said.output
    found = Records.load(Path('runs/latest/federation/hospital_1/records.npz'), STATE_SIZE)
    assert found.digest() == Records.load(Path('records.npz'), STATE_SIZE).digest()
    assert Path('runs/latest/policies/global_1.npz').exists()


def test_a_missing_file_and_a_foreign_archive_are_told_apart(tmp_path):
    said = fdrl('show', tmp_path / 'none.npz')
    assert said.output.strip() == (
        f'fdrl: cannot read {tmp_path / "none.npz"}: No such file or directory'
    )
    np.savez(tmp_path / 'foreign.npz', a=1)
    said = fdrl('show', tmp_path / 'foreign.npz')
    assert 'is no dataset: it is an archive without' in said.output


def test_what_is_no_dataset_ends_in_one_line(tmp_path):
    (tmp_path / 'file').write_text('no')
    (tmp_path / 'bag').mkdir()
    for words in (
        ('show', tmp_path / 'file'),
        ('replay', tmp_path / 'none'),
        ('convert', tmp_path / 'file', tmp_path / 'out'),
        ('convert', tmp_path / 'bag', tmp_path / 'out'),
        ('convert', tmp_path / 'bag', tmp_path / 'out', '--records'),
    ):
        said = fdrl(*words)
        assert said.exit_code == 1, said.output
        assert len(said.output.strip().splitlines()) == 1, said.output
    assert not (tmp_path / 'out').exists()


def test_a_table_of_visits_becomes_records_of_consenting_patients(tmp_path):
    source, target, known = (tmp_path / each for each in ('visits.csv', 'own.npz', 'known.txt'))
    names = 'position,velocity,angle,angular velocity'
    source.write_text(
        f'patient,time,{names},action,reward,end\np1,0,0,0,0.1,0,left,1,\np1,1,0.24,0,0,0,,,\n'
    )
    task = f'{pole.__file__}:Pole'
    words = ['dataset', 'from-csv', str(source), str(target), '--task', task]
    known.write_text('p2\n')
    refused = CliRunner().invoke(main, [*words, '--known', str(known)])
    assert refused.exit_code == 1 and 'not known' in refused.stderr and not target.exists()
    known.write_text('p2\np1\n')
    done = CliRunner().invoke(main, [*words, '--known', str(known)])
    assert done.exit_code == 0 and '1 transitions of 1 patients, of task pole' in done.output
    found = Plan({'federation': {'task': task}}).checked().load_records(target)
    np.testing.assert_allclose(found.next_states, [[0.1, 0.0, 0.0, 0.0]])
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 1 and 'not written over' in again.stderr
