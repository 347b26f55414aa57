# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A robot runs the ONNX graph of its federation if it can, and refuses one that does not fit."""

from dataclasses import dataclass, replace
import subprocess
import sys

from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.robot.robot_network import public_start, robot_network, save_graph
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.errors import PolicyError, SettingError, TaskError
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.onnx_network import OnnxNetwork, OnnxPolicy
import numpy as np
import pytest
from support import pole
from support.onnx_graphs import dueling_graph
from support.signed_policies import global_policy, robot_directory

PLAN = Plan().changed({'learner': {'hidden': 4}})


@pytest.fixture
def layout(tmp_path):
    return robot_directory(tmp_path / 'federation', PLAN)


@pytest.fixture
def with_graph(layout):
    layout.graph.write_bytes(dueling_graph(PLAN.network))
    return layout


@dataclass
class PlanOf:
    """A plan whose network is another one."""

    network: object
    spec: object = PLAN.spec
    learner = PLAN.learner
    identity = PLAN.identity


def test_a_robot_runs_the_graph_of_its_federation(with_graph):
    network = robot_network(with_graph, PLAN)
    assert isinstance(network, OnnxNetwork)
    start = public_start(with_graph, PLAN, network)
    ours = load_policy(with_graph.pretrained).policy(PLAN)
    states = np.random.default_rng(1).normal(size=(20, network.states)).astype(np.float32)
    np.testing.assert_allclose(start.q_values(states), ours.q_values(states), atol=1e-5)
    assert start.digest == ours.digest


def test_without_a_graph_it_runs_the_network_of_the_learner(layout):
    assert robot_network(layout, PLAN) is PLAN.network


def test_policies_of_a_robot_are_run_by_the_graph(with_graph):
    registry = RobotPolicies(with_graph, 'robot_1').registry
    version = registry.receive(global_policy(with_graph.directory, 1, 1), 0.0)
    assert isinstance(version.policy, OnnxPolicy)


def test_a_graph_that_does_not_fit_the_task_is_refused_with_its_name(layout):
    for shape, words in (
        (NetworkShape(3, 15, (4,)), '3 numbers'),
        (NetworkShape(PLAN.spec.size, 2, (4,)), 'to 2 discrete actions: expected 31'),
    ):
        layout.graph.write_bytes(dueling_graph(shape))
        with pytest.raises(PolicyError, match=rf'network\.onnx: .*{words}'):
            robot_network(layout, PLAN)
    layout.graph.write_bytes(b'damaged')
    with pytest.raises(PolicyError, match=r'network\.onnx: no ONNX model'):
        robot_network(layout, PLAN)
    layout.graph.write_bytes(dueling_graph(NetworkShape(PLAN.spec.size, 15, (5,))))
    with pytest.raises(PolicyError, match='other tensors'):
        public_start(layout, PLAN, robot_network(layout, PLAN))


def test_a_robot_refuses_a_task_that_its_arm_does_not_do(layout):
    plan = Plan({'federation': {'task': f'{pole.__file__}:Pole'}}).checked()
    with pytest.raises(TaskError, match=r'task pole maps 4 numbers .* robots take 31 numbers'):
        robot_network(layout, plan)


def test_without_onnxruntime_the_learner_runs_it_or_the_error_names_both(with_graph, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    assert robot_network(with_graph, PLAN) is PLAN.network

    class Lacking:
        spec = PLAN.spec

        @property
        def network(self):
            raise SettingError('learner.kind', 'torch', 'pip install "fdrl_ros[torch]"')

    with pytest.raises(PolicyError, match=r'fdrl_ros\[onnx\].*fdrl_ros\[torch\]'):
        robot_network(with_graph, Lacking())


def test_a_federation_saves_the_graph_of_its_network_once(layout, caplog):
    class Traced(NetworkShape):
        """A compiled network with a graph."""

        def onnx_graph(self):
            if self.actions == 1:
                raise PolicyError('no operator')
            return dueling_graph(self)

    save_graph(layout, PLAN)
    assert not layout.graph.exists(), 'NumPy runs it everywhere'
    save_graph(layout, PlanOf(Traced(2, 1)))
    assert not layout.graph.exists() and 'no operator' in caplog.text
    save_graph(layout, PlanOf(Traced(2, 3)))
    saved = layout.graph.read_bytes()
    save_graph(layout, PlanOf(Traced(2, 4)))
    assert layout.graph.read_bytes() == saved and OnnxNetwork(saved).actions == 3
    layout.graph.unlink()
    save_graph(layout, replace(PlanOf(Traced(2, 3)), spec=replace(PLAN.spec, actions=('go',))))
    assert not layout.graph.exists(), 'no robot takes it'


ROBOT = """
import sys
for name in ('torch', 'opacus'):
    sys.modules[name] = None
from pathlib import Path
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.selector.candidates.decision_time import decision_time
import numpy as np
robot = RobotPolicies(Layout(Path(sys.argv[1])), 'robot_1')
(version,) = robot.registry.versions
decision_time(version.policy)
np.save(sys.argv[2], version.policy.q_values(np.load(sys.argv[3])))
"""


def test_a_robot_without_pytorch_runs_the_policies_of_a_torch_learner(tmp_path):
    plan = Plan().changed({'learner': {'kind': 'torch', 'hidden': 16}})
    layout = robot_directory(tmp_path / 'federation', plan)
    save_graph(layout, plan)
    robot = RobotPolicies(layout, 'robot_1')
    version = robot.registry.receive(global_policy(layout.directory, 1, 1), 0.0)
    robot.files.save(version)
    states = np.random.default_rng(1).normal(size=(20, plan.spec.size)).astype(np.float32)
    given, found = tmp_path / 'states.npy', tmp_path / 'values.npy'
    np.save(given, states)
    words = [sys.executable, '-c', ROBOT, str(layout.directory), str(found), str(given)]
    subprocess.run(words, check=True, timeout=60)
    expected = plan.network.policy(version.policy.weights).q_values(states)
    np.testing.assert_allclose(np.load(found), expected, atol=1e-5)


def test_the_graph_goes_to_other_hosts(with_graph, tmp_path):
    export(with_graph, ['hospital_1'], tmp_path / 'host')
    assert (tmp_path / 'host' / 'network.onnx').read_bytes() == with_graph.graph.read_bytes()


def test_a_policy_that_the_graph_refuses_is_named_and_others_stay(with_graph):
    robot = RobotPolicies(with_graph, 'robot_1')
    good = global_policy(with_graph.directory, 1, 1)
    robot.files.save(robot.registry.receive(good, 0.0))
    path = robot.files.folder / 'global_0000000000000000.policy'
    path.write_bytes(b'{"came": 1.0}\nbroken')
    again = RobotPolicies(with_graph, 'robot_1')
    assert [each.round for each in again.registry.versions] == [1]
    assert len(again.problems) == 1 and path.name in again.problems[0]
