# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies as ONNX models: the same actions in floating point, and measured loss in integers."""

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.cli.robot.export_policy import export_policy
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.errors import PolicyError
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.onnx_model import agreement, EDGES, export, OnnxModel, quantise
from fdrl_ros.surgery.gym.state import scale, SCALES, STATE_BOUND, STATE_SIZE
import numpy as np
import pytest
from support import pole

PLAN = Plan()
SHAPE = NetworkShape(STATE_SIZE, 15, (64, 64))


@pytest.fixture(scope='module')
def policy():
    rng = np.random.default_rng(1)
    weights = SHAPE.draw(rng)
    return SHAPE.policy(weights + 0.05 * rng.normal(size=len(weights)).astype(np.float32))


@pytest.fixture(scope='module')
def states():
    return np.random.default_rng(2).normal(size=(500, STATE_SIZE)).astype(np.float32)


@pytest.fixture
def onnx():
    pytest.importorskip('onnxruntime', reason='the extra fdrl_ros[onnx] is not installed')
    return pytest.importorskip('onnx', reason='the extra fdrl_ros[onnx] is not installed')


def test_another_action_is_counted_at_its_margin_and_costs_its_loss(policy, states):
    first = np.array([[1.0, 0.0], [1.0, 0.999], [0.0, 2.0]])
    second = np.array([[1.0, 0.0], [0.998, 0.999], [3.0, 2.0]])
    found = agreement(first, second)
    assert found.same == pytest.approx(1 / 3)
    assert found.loss == pytest.approx((0.001 + 2.0) / 3)
    assert found.largest_error == 3.0
    assert sum(found.differing) == 2 and found.differing[-1]
    assert len(found.margins) == len(EDGES) - 1
    found = agreement(policy.q_values(states), policy.q_values(states))
    assert (found.states, found.same, found.loss, found.largest_error) == (500, 1.0, 0.0, 0.0)
    assert sum(found.margins) == 500 and not any(found.differing)


@pytest.mark.parametrize(
    'shapes', [((3, 3), (2, 3)), ((3, 3), (3,)), ((0, 3),) * 2, ((3, 1),) * 2]
)
def test_values_that_cannot_be_compared_are_refused(shapes):
    with pytest.raises(PolicyError):
        agreement(*map(np.zeros, shapes))


@pytest.mark.parametrize('hidden', [(), (8,), (64, 64)])
def test_the_model_takes_the_actions_of_the_policy(onnx, states, hidden):
    shape = NetworkShape(STATE_SIZE, 15, hidden)
    policy = shape.policy(shape.draw(np.random.default_rng(3)))
    model = OnnxModel(export(policy))
    found = agreement(policy.q_values(states), model.q_values(states))
    assert not any(found.differing[1:]) and found.largest_error < 1e-5
    assert [model(each) for each in states[:50]] == [policy(each) for each in states[:50]]
    assert model.digest == policy.digest


def test_a_model_with_scales_takes_values_in_units(onnx, policy, states):
    values = states.astype(np.float64) * SCALES
    values[0, :5] = 1e9  # beyond what a policy ever sees
    model = OnnxModel(export(policy, scales=SCALES, bound=STATE_BOUND))
    assert model.entry == 'values'
    found = agreement(policy.q_values(scale(values)), model.q_values(values))
    assert not any(found.differing[1:]) and found.largest_error < 1e-4


@pytest.mark.parametrize('units', [False, True])
def test_a_policy_of_a_graph_is_exported_with_its_weights(onnx, policy, states, units):
    from support.onnx_graphs import onnx_network

    ours = onnx_network(SHAPE).policy(policy.weights)
    made = export(ours, **({'scales': SCALES, 'bound': STATE_BOUND} if units else {}))
    model = OnnxModel(made)
    given = states.astype(np.float64) * SCALES if units else states
    np.testing.assert_allclose(model.q_values(given), policy.q_values(states), atol=1e-4)
    assert [model(each) for each in given[:50]] == [ours(each) for each in states[:50]]
    assert model.digest == policy.digest
    small = quantise(made, given[:250])
    assert len(small) < 0.6 * len(made)
    found = agreement(policy.q_values(states[250:]), OnnxModel(small).q_values(given[250:]))
    assert 0.8 < found.same < 1.0


def test_a_policy_without_a_form_in_onnx_is_refused(onnx):
    class Lookup:
        digest = b''

    with pytest.raises(PolicyError, match='a Lookup has no form'):
        export(Lookup())


def test_integers_are_smaller_and_lose_little(onnx, policy, states, caplog):
    whole = export(policy)
    made = quantise(whole, states[:250])
    assert len(made) < 0.5 * len(whole)
    found = agreement(policy.q_values(states[250:]), OnnxModel(made).q_values(states[250:]))
    assert 0.8 < found.same < 1.0
    assert 0.0 < found.loss < 0.05
    assert OnnxModel(made).digest == policy.digest
    assert not caplog.records


def test_what_is_no_model_of_a_policy_is_refused(onnx, policy, states):
    with pytest.raises(PolicyError, match='no ONNX model'):
        OnnxModel(b'nothing')
    with pytest.raises(PolicyError, match='scales'):
        export(policy, scales=np.zeros(STATE_SIZE))
    with pytest.raises(PolicyError, match='calibrate'):
        quantise(export(policy), states[:0])
    helper, kinds = onnx.helper, onnx.TensorProto
    ends = [helper.make_tensor_value_info(each, kinds.FLOAT, [1]) for each in 'ab']
    graph = helper.make_graph([helper.make_node('Neg', ['a'], ['b'])], 'x', ends[:1], ends[1:])
    other = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid('', 17)])
    with pytest.raises(PolicyError, match='expected one of a policy'):
        OnnxModel(other.SerializeToString())


def test_without_the_libraries_the_error_says_what_to_install(policy, monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'onnx', None)
    with pytest.raises(PolicyError, match=r'fdrl_ros\[onnx\]'):
        export(policy)


def test_the_command_writes_a_model_and_says_how_well_it_agrees(onnx, policy, tmp_path):
    save_policy(tmp_path / 'policy.npz', policy.weights, PLAN)
    target = tmp_path / 'policy.onnx'
    few = ['--evaluation-state-patients', '3', '--value-patients', '4']
    words = [str(tmp_path / 'policy.npz'), str(target), '--int8', '--units', *few]
    done = CliRunner().invoke(export_policy, [*words, '--world-mode', 'kinematic'])
    assert done.exit_code == 0, done.output
    assert OnnxModel(target.read_bytes()).entry == 'values'
    assert 'states get the same action' in done.output and 'margin' in done.output


@pytest.mark.parametrize('words', [[], ['--units'], ['--int8']])
def test_a_policy_of_another_task_is_exported_with_its_own_states(onnx, tmp_path, words):
    task = f'{pole.__file__}:Pole'
    plan = Plan({'federation': {'task': task}}).checked()
    weights = plan.network.draw(np.random.default_rng(1))
    path, target = tmp_path / 'policy.npz', tmp_path / 'policy.onnx'
    save_policy(path, weights, plan)
    few = ['--task', task, '--evaluation-state-patients', '4', *words]
    done = CliRunner().invoke(export_policy, [str(path), str(target), *few])
    assert done.exit_code == 0, (done.output, done.exception)
    assert 'states get the same action' in done.output
    model, state = OnnxModel(target.read_bytes()), np.array([0.1, -0.2, 0.3, 0.4])
    scales = np.array([field.scale for field in plan.spec.fields])
    found = model.q_values((state * scales if '--units' in words else state)[None])[0]
    expected, close = plan.network.policy(weights).q_values(state), 1e-5
    np.testing.assert_allclose(found, expected, atol=0.5 if '--int8' in words else close)


def test_what_is_no_policy_is_refused_in_our_own_words(tmp_path):
    (tmp_path / 'notes.npz').write_text('no policy')
    (tmp_path / 'global.policy').write_text('no policy')
    for name, words in (
        ('notes.npz', 'such as policies/global_6.npz'),
        ('global.policy', 'keeps'),
    ):
        done = CliRunner().invoke(
            main, ['policies', 'export', str(tmp_path / name), str(tmp_path / 'policy.onnx')]
        )
        assert done.exit_code == 1 and words in done.output, done.output
        assert 'pickle' not in done.output
    assert not (tmp_path / 'policy.onnx').exists() and not (tmp_path / 'policies').exists()
