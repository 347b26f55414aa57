# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Modules as networks: layout, first weights, policies, graphs for robots, refusals."""

from dataclasses import replace
import pickle
import subprocess
import sys

from fdrl_ros.deployment.registry import learner_named
from fdrl_ros.errors import PluginError, PolicyError, SettingError
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.network import TorchNetwork
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.onnx_model import export, OnnxModel
from fdrl_ros.policy.onnx_network import OnnxNetwork
from fdrl_ros.tasks.spec import TaskSpec
import numpy as np
import pytest
import torch

PLAIN = TaskSpec((5,), actions=('a', 'b', 'c'))
IMAGE = TaskSpec((9, 9, 1), 'uint8', actions=('a', 'b', 'c'))
BURST = TaskSpec((4, 3), actions=('a', 'b'))
STACKED = TaskSpec((12,), actions=('a', 'b'))
VECTOR = TaskSpec((5,), low=(-2.0, 0.0), high=(2.0, 5.0))
TORCH = LearnerSettings(kind='torch', hidden=16, device='cpu')


def made(spec=PLAIN, **changes):
    return TorchNetwork.from_settings(spec, replace(TORCH, **changes))


def states_of(spec, count):
    rng = np.random.default_rng(4)
    if spec.dtype == 'uint8':
        return rng.integers(0, 256, (count, spec.size)).astype(np.uint8)
    return rng.normal(size=(count, spec.size)).astype(np.float32)


def test_the_default_is_the_compiled_learner_s_network_and_its_policy():
    network, shape = made(), NetworkShape(5, 3, (16, 16))
    assert network.layout == shape.layout
    weights = shape.draw(np.random.default_rng(0))
    ours, theirs = network.policy(weights), shape.policy(weights)
    states = states_of(PLAIN, 30)
    np.testing.assert_allclose(ours.q_values(states), theirs.q_values(states), atol=1e-5)
    assert [ours(state) for state in states] == [theirs(state) for state in states]
    assert ours.digest == theirs.digest


def test_first_weights_come_of_the_generator_alone():
    torch.rand(3)
    before = torch.get_rng_state()
    first, second, other = (made().draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).mean() > 0.5
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings('error:The given NumPy array is not writable')
@pytest.mark.parametrize(
    ('spec', 'changes'),
    [
        (PLAIN, {}),
        (PLAIN, {'adapter_rank': 2}),
        (PLAIN, {'algorithm': 'implicit_q'}),
        (PLAIN, {'algorithm': 'advantage_weighted'}),
        (PLAIN, {'algorithm': 'discrete_actor_critic'}),
        (IMAGE, {}),
        (IMAGE, {'frozen': 'convolutions'}),
        (BURST, {'network': 'gru'}),
        (STACKED, {'network': 'gru', 'frame_stack': 4}),
        (VECTOR, {}),
        (VECTOR, {'algorithm': 'actor_critic'}),
    ],
)
def test_a_robot_s_graph_acts_as_the_module_does(spec, changes):
    network = made(spec, **changes)
    weights = network.draw(np.random.default_rng(3)) * 3.0
    policy, states = network.policy(weights), states_of(spec, 20)
    states.flags.writeable = False  # as the robot gives them
    robot = OnnxNetwork(network.onnx_graph()).policy(weights)
    np.testing.assert_allclose(
        robot.q_values(states), policy.q_values(states), rtol=1e-4, atol=1e-5
    )
    if spec.continuous:
        actions = np.array([policy(state) for state in states])
        assert (actions >= spec.low).all() and (actions <= spec.high).all()
        np.testing.assert_allclose([robot(state) for state in states], actions, atol=1e-5)
    else:
        assert [robot(state) for state in states] == [policy(state) for state in states]
    exported = OnnxModel(export(policy))
    np.testing.assert_allclose(exported.q_values(states), policy.q_values(states), atol=1e-4)
    copied = pickle.loads(pickle.dumps(policy))
    np.testing.assert_array_equal(copied.q_values(states), policy.q_values(states))
    assert copied.digest == policy.digest


def test_a_stacked_vector_is_a_burst_of_its_frames():
    stacked, burst = made(STACKED, network='gru', frame_stack=4), made(BURST, network='gru')
    weights = burst.draw(np.random.default_rng(0))
    states = states_of(BURST, 3)
    np.testing.assert_array_equal(
        stacked.policy(weights).q_values(states), burst.policy(weights).q_values(states)
    )


def test_pixels_become_numbers_up_to_1_for_the_module():
    network = made(IMAGE, network='plain_mlp')
    weights = network.draw(np.random.default_rng(0))
    states = states_of(IMAGE, 3)
    same = made(replace(IMAGE, dtype='float32'), network='plain_mlp')
    np.testing.assert_allclose(
        network.policy(weights).q_values(states),
        same.policy(weights).q_values((states / 255.0).astype(np.float32)),
        atol=1e-6,
    )


def test_adapters_begin_as_the_module_without_them():
    network = made(adapter_rank=2)
    weights = network.draw(np.random.default_rng(0))
    layout = network.layout
    tensors = layout.split(weights)
    assert not any(tensors[name].any() for name in tensors if name.endswith('up.weight'))
    plain, states = made(), states_of(PLAIN, 5)
    names = [each.name.rpartition('.') for each in plain.layout.tensors]
    base = np.concatenate(
        [tensors[f'{place}.base.{last}'].reshape(-1) for place, _, last in names]
    )
    np.testing.assert_allclose(
        network.policy(weights).q_values(states), plain.policy(base).q_values(states), atol=1e-6
    )
    assert layout.start > layout.n_parameters - layout.start


OWN = """
import torch
from torch import nn

class Ward(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        {build}
    def forward(self, x):
        return {give}
"""


def own(tmp_path, build='self.l = nn.Linear(*shape, outputs)', give='self.l(x)'):
    file = tmp_path / 'ward.py'
    file.write_text(OWN.format(build=build, give=give))
    return f'{file}:Ward'


def test_a_module_of_a_user_s_file_travels_with_the_file_s_digest(tmp_path):
    first = made(network=own(tmp_path))
    again = pickle.loads(pickle.dumps(first))
    assert (again.name, again.layout) == (first.name, first.layout)
    other = made(network=own(tmp_path, give='torch.tanh(self.l(x))'))
    assert other.name != first.name and other.layout == first.layout
    (tmp_path / 'elsewhere').mkdir()
    assert made(network=own(tmp_path / 'elsewhere')).name == first.name


@pytest.mark.parametrize(
    ('changes', 'error', 'said'),
    [
        ({'build': 'self.l = nn.Linear(3, outputs)'}, PluginError, 'shape .5,. and 3 outputs'),
        ({'build': 'self.l = nn.Linear(*shape, 7)'}, PolicyError, r'give \(2, 7\), expected'),
        ({'build': 'self.l = nn.LazyLinear(3)'}, PolicyError, 'has no size before its first use'),
        ({'build': 'self.l = nn.Identity()', 'give': 'x'}, PolicyError, 'no weights to train'),
        (
            {'build': 'self.l = nn.Linear(*shape, outputs).double()'},
            PolicyError,
            'float64: expected torch.float32',
        ),
    ],
)
def test_a_module_that_does_not_fit_is_refused(tmp_path, changes, error, said):
    with pytest.raises(error, match=said):
        made(network=own(tmp_path, **changes))


@pytest.mark.parametrize(
    ('spec', 'changes', 'error', 'said'),
    [
        (VECTOR, {'algorithm': 'double_dqn'}, PolicyError, 'it is for discrete actions'),
        (PLAIN, {'algorithm': 'actor_critic'}, PolicyError, 'it is for continuous actions'),
        (PLAIN, {'network': 'cnn'}, PolicyError, 'takes an image'),
        (PLAIN, {'network': 'gru'}, PolicyError, 'takes bursts'),
        (PLAIN, {'frame_stack': 2}, PolicyError, 'do not hold 2 frames'),
        (PLAIN, {'network': 'collections:OrderedDict'}, PluginError, 'OrderedDict'),
        (PLAIN, {'algorithm': 'collections:OrderedDict'}, PluginError, 'a class of Algorithm'),
        (PLAIN, {'network': 'mpl'}, PluginError, 'did you mean mlp'),
        (PLAIN, {'algorithm': 'doubledqn'}, PluginError, 'did you mean double_dqn'),
        (PLAIN, {'frozen': 'shred'}, PolicyError, 'no tensor or module'),
        (PLAIN, {'frozen': 'shared,value,advantage'}, PolicyError, 'nothing is left to train'),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(spec, changes, error, said):
    with pytest.raises(error, match=said):
        made(spec, **changes)


def test_the_compiled_learner_refuses_settings_of_this_one():
    for name, value in (('algorithm', 'implicit_q'), ('network', 'gru'), ('adapter_rank', 2)):
        with pytest.raises(SettingError, match=f'learner.{name}'):
            learner_named('dqn')(PLAIN, LearnerSettings(**{name: value}))


@pytest.mark.parametrize('missing', ['torch', 'opacus'])
def test_without_the_libraries_the_learner_names_what_installs_them(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PluginError, match=r'pip install "fdrl_ros\[torch\]"'):
        learner_named('torch')(PLAIN, TORCH)


def test_a_plan_without_it_does_not_import_torch():
    done = subprocess.run(
        [
            sys.executable,
            '-c',
            'import sys, fdrl_ros.learner.trainer; from fdrl_ros.deployment.plan import Plan;'
            "Plan().network; assert 'torch' not in sys.modules and 'opacus' not in sys.modules",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
