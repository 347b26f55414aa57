# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tasks and learners by name: of the package, of other packages, of files; and what fails."""

from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.deployment.marking import mark
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy, save_policy
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.deployment.registry import registered, task_named, TASKS_GROUP
from fdrl_ros.errors import PluginError, PolicyError, RecordsError, SettingError, TaskError
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
import numpy as np
import pytest
from support import pole

FILE = Path(pole.__file__)
POLE = f'{FILE}:Pole'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package that registers a task, one that cannot be loaded, and one of our names."""
    (tmp_path / 'their_world.py').write_text(FILE.read_text().replace("'pole'", "'theirs'"))
    info = tmp_path / 'their_world-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: their_world\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(
        '[fdrl_ros.tasks]\ntheirs = their_world:Pole\nbroken = no_such_module:Task\n'
        'surgery = their_world:Pole\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    task_named.cache_clear()


@pytest.mark.usefixtures('package')
def test_a_package_registers_tasks_and_takes_no_name_of_ours():
    assert {'surgery', 'theirs', 'broken'} <= registered(TASKS_GROUP).keys()
    assert task_named('theirs').name == 'theirs'
    assert task_named('theirs').source and not task_named('surgery').source
    assert type(task_named('surgery')).__name__ == 'SurgeryTask'
    with pytest.raises(PluginError, match='no_such_module'):
        task_named('broken')
    said = CliRunner().invoke(main, ['tasks', '--json'])
    assert said.exit_code == 0 and 'cannot be used' in said.output and '"theirs"' in said.output


@pytest.mark.parametrize(
    ('name', 'error', 'words'),
    [
        ('surgry', SettingError, 'did you mean surgery'),
        ('no/such/file.py:Task', PluginError, 'No such file'),
        (f'{FILE}:Pol', PluginError, 'Pole'),
        ('fdrl_ros.tasks:GymTask', TaskError, 'has no name'),
        ('fdrl_ros.tasks:Task', TaskError, 'abstract'),
        ('pathlib:Path', TaskError, 'expected a class below'),
    ],
)
def test_what_is_no_task_is_refused_by_name(name, error, words):
    with pytest.raises(error, match=words):
        task_named(name)


def test_a_plan_has_the_defaults_of_its_task_below_its_own_settings(tmp_path):
    plan = Plan({'federation': {'task': POLE}, 'learner': {'hidden': 16}}).checked()
    assert (plan.learner.discount, plan.learner.hidden, plan.privacy.batch) == (0.95, 16, 6)
    assert plan.network.name == 'dueling network 4-16-16-2'
    assert plan.federation.procedures == ''
    (tmp_path / 'plan.yaml').write_text(plan.to_yaml())
    assert Plan.read(tmp_path / 'plan.yaml') == Plan.load(tmp_path / 'plan.yaml') == plan
    with pytest.raises(SettingError, match='procedures'):
        plan.changed({'federation': {'procedures': 'reach'}})
    with pytest.raises(SettingError, match='horizon'):
        plan.changed({'world': {'horizon': 5}})


STACKED = """
import gymnasium
from fdrl_ros.tasks import GymTask
class Stacked(GymTask):
    name, env_id, success_return = 'stacked', 'CartPole-v1', 60.0
    def make_env(self, world):
        made = gymnasium.wrappers.FrameStackObservation(super().make_env(world), 3)
        return gymnasium.wrappers.FlattenObservation(made)
class Careless(GymTask):
    name, env_id, success_return = 'careless', 'CartPole-v1', 60.0
    defaults = {'privacy': {'noise_multiplier': 0.0, 'budget': float('inf')}}
"""


def test_a_task_s_stacked_steps_are_charged_where_a_step_is_the_unit(tmp_path):
    file = tmp_path / 'stacked.py'
    file.write_text(STACKED)
    plan = Plan({'federation': {'task': f'{file}:Stacked'}}).checked()
    with pytest.raises(SettingError, match=r'learner.frame_stack = 1: expected at least 3'):
        plan.changed({'privacy': {'unit': 'transition'}})
    plan.changed({'privacy': {'unit': 'transition'}, 'learner': {'frame_stack': 3}})


def test_a_task_sets_no_budget(tmp_path):
    file = tmp_path / 'stacked.py'
    file.write_text(STACKED)
    with pytest.raises(TaskError, match=r'sets privacy.budget, which hospitals promise'):
        Plan({'federation': {'task': f'{file}:Careless'}}).checked()


def test_a_path_becomes_whole_so_that_nodes_elsewhere_find_the_file(monkeypatch):
    monkeypatch.chdir(FILE.parent)
    assert Plan({'federation': {'task': 'pole.py:Pole'}}).checked().federation.task == POLE


@pytest.fixture
def plan():
    return Plan({'federation': {'task': POLE}}).checked()


def test_records_say_their_task_and_others_are_refused(plan, tmp_path):
    few = HospitalSimulator(plan.task, plan.world, plan.collection)
    records = few.collect(plan.population(0))
    records.save(tmp_path / 'pole.npz')
    found = plan.load_records(tmp_path / 'pole.npz')
    assert found.digest() == records.digest() and found.task == plan.identity
    # CartPole padded to the columns of surgery is not taken for surgery.
    wide = {
        name: np.pad(array, ((0, 0), (0, 22))) if name.endswith('states') else array
        for name, array in records.arrays().items()
    }
    Records.from_arrays(wide, plan.identity).save(tmp_path / 'wide.npz')
    with pytest.raises(TaskError, match=r'wide\.npz is of task pole 1'):
        Plan().load_records(tmp_path / 'wide.npz')
    bytes_ = {
        name: array.astype(np.uint8) if name.endswith('states') else array
        for name, array in records.arrays().items()
    }
    Records.from_arrays(bytes_, plan.identity).save(tmp_path / 'bytes.npz')
    with pytest.raises(RecordsError, match='4 numbers, uint8: expected 4, float32'):
        plan.load_records(tmp_path / 'bytes.npz')
    Records.from_arrays(wide).save(tmp_path / 'nameless.npz')
    with pytest.raises(TaskError, match='does not say which task'):
        Plan().load_records(tmp_path / 'nameless.npz')


def test_a_changed_file_is_another_task(plan, tmp_path):
    copy = tmp_path / 'pole.py'
    copy.write_text(FILE.read_text())
    same = Plan({'federation': {'task': f'{copy}:Pole'}}).checked()
    assert same.identity == plan.identity, 'the place of the file does not count'
    task_named.cache_clear()
    copy.write_text(FILE.read_text().replace('0.3 * lean', '0.4 * lean'))
    assert Plan({'federation': {'task': f'{copy}:Pole'}}).checked().identity != plan.identity


def test_a_policy_file_brings_its_network_and_refuses_another_world(plan, tmp_path):
    wide = plan.changed({'learner': {'hidden': 12}})
    weights = learn_public_start(wide)
    save_policy(tmp_path / 'policy.npz', weights, wide)
    saved = load_policy(tmp_path / 'policy.npz')
    assert saved.task == plan.identity and saved.layout == wide.network.layout
    state = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    assert saved.policy(plan)(state) == wide.network.policy(weights)(state)
    with pytest.raises(TaskError, match=r'policy\.npz is of task pole'):
        saved.policy(Plan())
    arrays = dict(np.load(tmp_path / 'policy.npz'))
    for change in ({'learner': np.array('{"hidden": 13}')}, {'learner': np.array('{"no": 1}')}):
        np.savez(tmp_path / 'wrong.npz', **arrays | change)
        with pytest.raises(PolicyError, match=r'wrong\.npz'):
            load_policy(tmp_path / 'wrong.npz').policy(plan)


def test_files_of_an_older_version_are_marked_once(plan, tmp_path):
    start = learn_public_start(plan)
    old, weights = tmp_path / 'old.npz', start.astype('<f4')
    np.savez(old, weights=weights, states=4, actions=2, hidden=np.array([8, 8]))
    with pytest.raises(PolicyError, match='fdrl migrate'):
        load_policy(old)
    assert mark(old, plan, dry_run=True) and mark(old, plan) and not mark(old, plan)
    np.testing.assert_array_equal(load_policy(old).policy(plan).weights, start)
    np.savez(old, weights=weights, states=5, actions=2, hidden=np.array([8, 8]))
    with pytest.raises(PolicyError, match='sees 5 numbers'):
        mark(old, plan)
    few = HospitalSimulator(plan.task, plan.world, plan.collection).collect(plan.population(0))
    np.savez(tmp_path / 'records.npz', **few.arrays())
    words = ['tasks', 'mark', str(tmp_path / 'records.npz'), '--task', POLE]
    for expected in ('is now of task pole', 'was already of task pole'):
        said = CliRunner().invoke(main, words)
        assert said.exit_code == 0 and expected in said.output
    with pytest.raises(RecordsError, match='states of 4 numbers'):
        mark(tmp_path / 'records.npz', Plan())
    (tmp_path / 'text.npz').write_text('no archive')
    said = CliRunner().invoke(main, ['tasks', 'mark', str(tmp_path / 'text.npz')])
    assert said.exit_code == 1 and 'neither be read as records nor as a policy' in said.stderr


NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer = nn.Linear(*shape, outputs)
    def forward(self, x):
        return {give}
"""


def test_a_policy_is_refused_once_the_file_of_its_network_has_changed(plan, tmp_path):
    file = tmp_path / 'net.py'
    file.write_text(NET.format(give='self.layer(x)'))
    own = plan.changed({'learner': {'kind': 'torch', 'network': f'{file}:Net'}})
    weights = own.network.draw(np.random.default_rng(1))
    save_policy(tmp_path / 'policy.npz', weights, own)
    load_policy(tmp_path / 'policy.npz').policy(plan)
    file.write_text(NET.format(give='self.layer(x).tanh()'))
    with pytest.raises(PolicyError, match='put back the file of the network'):
        load_policy(tmp_path / 'policy.npz').policy(plan)
