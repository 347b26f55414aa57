# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Gradients of PyTorch modules: those of the compiled learner, and blind to company."""

from dataclasses import replace
import itertools

from fdrl_ros.errors import PolicyError, PrivacyError, RecordsError, TrainingStopped
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.gradients import _formed, TorchGradients
from fdrl_ros.learner.torch.learner import torch_network
from fdrl_ros.learner.torch.network import TorchNetwork
from fdrl_ros.learner.torch.per_unit import Mapped, Together
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.tasks.spec import TaskSpec
from hypothesis import given, Phase, settings, strategies
import numpy as np
import pytest
from support.batches import batch_of, part
from support.neighbours import check_each_patient_in_turn
from support.sample_size import sampled
from support.small_hospital import ledger_of, PRIVACY, records_of
import torch

SHAPE = NetworkShape(5, 4, (16, 16))
PLAIN = TaskSpec((5,), actions=('a', 'b', 'c', 'd'))
IMAGE = TaskSpec((2, 9, 9), 'uint8', actions=('a', 'b', 'c'))
BURST = TaskSpec((4, 3), actions=('a', 'b', 'c'))
VECTOR = TaskSpec((5,), low=(-2.0, 0.0), high=(2.0, 5.0))
WITHIN = 1.0 - 2.0**-10  # what clipping leaves room for, of C = 1


def made(spec=None, **changes):
    """Make gradients of a small network."""
    learner = LearnerSettings(kind='torch', hidden=16, transitions_per_patient=3)
    learner = replace(learner, **{'device': 'cpu'} | changes)
    network = TorchNetwork.from_settings(spec or PLAIN, learner)
    return TorchGradients(network, learner)


def draw(gradients, units, transitions, seed=0):
    """Draw two sets of weights, and a batch."""
    rng, spec = np.random.default_rng(seed), gradients.network.spec
    size = units, transitions
    batch = batch_of(rng, NetworkShape(spec.size, spec.n_actions, ()), *size, weighted=True)
    if spec.dtype == 'uint8':
        states, after = rng.integers(0, 256, (2, *size, spec.size)).astype(np.uint8)
        batch = replace(batch, states=states, next_states=after)
    if spec.continuous:
        actions = rng.uniform(spec.low, spec.high, (*size, spec.n_actions)).astype(np.float32)
        batch = replace(batch, actions=actions)
    return *(gradients.network.draw(rng) for _ in range(2)), batch


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'loss': 'squared', 'conservative': 0.7},
        {'algorithm': 'behaviour_cloning'},
        {'algorithm': 'advantage_weighted', 'most_weight': 3.0},
        {'algorithm': 'advantage_weighted', 'loss': 'squared', 'temperature': 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize('transitions', [1, 3])
def test_the_dueling_mlp_has_the_gradients_of_the_compiled_learner(changes, transitions):
    torch_made = made(**changes)
    assert torch_made.network.layout == SHAPE.layout
    compiled = DuelingGradients(SHAPE, torch_made.learner)
    weights, target, batch = draw(torch_made, 40, transitions)
    for clip_norm in (0.3, 1e6):
        np.testing.assert_allclose(
            torch_made.clipped_sum(weights, target, batch, clip_norm),
            compiled.clipped_sum(weights, target, batch, clip_norm),
            rtol=1e-5,
            atol=2e-5,
        )
    for name in ('mean', 'errors'):
        np.testing.assert_allclose(
            getattr(torch_made, name)(weights, target, batch),
            getattr(compiled, name)(weights, target, batch),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize('averaging', [0.0, 0.5])
def test_a_seeded_private_run_ends_where_the_compiled_learner_s_does(tmp_path, averaging):
    """Two rounds of the real trainer: ledger, Poisson sampling, noise, Adam, proximal term."""
    learner = LearnerSettings(
        hidden=16, epochs=3, transitions_per_patient=4, target_period=3, averaging=averaging
    )
    start, ends = SHAPE.draw(np.random.default_rng(1)), []
    for kind in ('dqn', 'torch'):
        home = tmp_path / kind
        home.mkdir()
        network = SHAPE if kind == 'dqn' else torch_network(PLAIN, learner)
        setup = TrainingSetup(
            network, learner, PRIVACY, ledger_of(home, 'h', PRIVACY), NoiseSource.seeded(3)
        )
        data = records_of(np.random.default_rng(0).integers(1, 9, size=30), (5, 4))
        trainer = Trainer(setup, data, home / 'checkpoint')
        weights = start
        for round in (1, 2):
            found = trainer.train(weights, round, report=lambda p: None, stopped=lambda: False)
            weights = found.weights
        ends.append((weights, found.epsilon, found.ledger_entries))
        setup.ledger.close()
    assert np.abs(ends[0][0] - start).max() > 1e-3
    np.testing.assert_allclose(ends[1][0], ends[0][0], atol=1e-5)
    assert ends[0][1:] == ends[1][1:]


@pytest.mark.parametrize('averaging', [0.0, 0.5])
def test_an_interrupted_round_ends_with_the_same_bits_and_is_charged_once(tmp_path, averaging):
    learner = LearnerSettings(
        kind='torch',
        hidden=16,
        epochs=3,
        transitions_per_patient=2,
        device='cpu',
        averaging=averaging,
    )
    data = records_of(np.random.default_rng(0).integers(1, 9, size=30), (5, 4))
    ends = []
    for name, limits in (('whole', [10**6]), ('stopped', [2, 9, 10**6])):
        home = tmp_path / name
        home.mkdir()
        for limit in limits:
            ledger = ledger_of(home, 'h', PRIVACY)
            network = torch_network(PLAIN, learner)  # as a new process makes it
            setup = TrainingSetup(network, learner, PRIVACY, ledger, NoiseSource.seeded(3))
            trainer, seen = Trainer(setup, data, home / 'checkpoint'), itertools.count()
            try:
                found = trainer.train(
                    network.draw(np.random.default_rng(1)),
                    1,
                    report=lambda told: None,
                    stopped=lambda seen=seen, limit=limit: next(seen) >= limit,
                )
            except TrainingStopped:
                continue
            finally:
                ledger.close()
        ends.append(found)
    np.testing.assert_array_equal(ends[0].weights, ends[1].weights)
    assert ends[0].epsilon == ends[1].epsilon and ends[1].ledger_entries == 3


@pytest.mark.parametrize('factor', [1e3, np.nan])
def test_a_learner_that_does_not_clip_is_refused(tmp_path, monkeypatch, factor):
    learner = LearnerSettings(kind='torch', hidden=16, epochs=1, device='cpu')
    network = torch_network(PLAIN, learner)
    ledger = ledger_of(tmp_path, 'h', PRIVACY)
    setup = TrainingSetup(network, learner, PRIVACY, ledger, NoiseSource.seeded(3))
    trainer = Trainer(setup, records_of([3] * 30, (5, 4)), tmp_path / 'checkpoint')
    clipped = trainer.dqn.clipped_sum
    monkeypatch.setattr(trainer.dqn, 'clipped_sum', lambda *given: factor * clipped(*given))
    with pytest.raises(PrivacyError, match='clip each privacy unit'):
        trainer.train(
            network.draw(np.random.default_rng(1)),
            1,
            report=lambda told: None,
            stopped=lambda: False,
        )
    ledger.close()


@pytest.mark.parametrize(
    ('spec', 'algorithm', 'size', 'actions', 'words'),
    [
        (PLAIN, 'double_dqn', (5, 4), np.zeros((6, 4), np.float32), 'continuous actions: those'),
        (VECTOR, 'behaviour_cloning', (5, 2), np.zeros(6, np.int64), 'discrete actions: those'),
    ],
)
def test_actions_of_the_other_kind_are_refused_before_anything_is_spent(
    tmp_path, spec, algorithm, size, actions, words
):
    learner = LearnerSettings(kind='torch', hidden=16, algorithm=algorithm, device='cpu')
    ledger = ledger_of(tmp_path, 'h', PRIVACY)
    setup = TrainingSetup(
        torch_network(spec, learner), learner, PRIVACY, ledger, NoiseSource.seeded(3)
    )
    with pytest.raises(RecordsError, match=words):
        Trainer(setup, records_of([1] * 6, size, actions=actions), tmp_path / 'checkpoint')
    assert ledger.chain.blocks(1) == 0
    ledger.close()


@pytest.mark.parametrize(
    ('spec', 'changes', 'transitions', 'form'),
    [
        (None, {}, 3, Together),
        (None, {}, 1, Together),
        (None, {'adapter_rank': 2}, 3, Together),
        (None, {'frozen': 'shared.0'}, 3, Together),
        (None, {'algorithm': 'implicit_q'}, 3, Together),
        (None, {'algorithm': 'advantage_weighted'}, 3, Together),
        (VECTOR, {'algorithm': 'actor_critic'}, 3, Together),
        (None, {'algorithm': 'discrete_actor_critic'}, 3, Together),
        (VECTOR, {'algorithm': 'behaviour_cloning', 'network': 'plain_mlp'}, 3, Together),
        (BURST, {'network': 'gru'}, 3, Together),
        (IMAGE, {'network': 'cnn'}, 1, Together),
        (IMAGE, {'network': 'cnn'}, 3, Mapped),
    ],
)
def test_without_one_unit_the_sum_moves_by_what_it_added(spec, changes, transitions, form):
    """
    The others add the same bits, so what is left is the rounding of a float64 sum.

    Clipping leaves 2^-10 of C for arithmetic, as it does for the compiled learner.
    """
    gradients = made(spec, **changes)
    gradients.check_private()
    assert isinstance(gradients.way(transitions), form)
    several = 20 if spec is IMAGE else 140  # more than fit in one pass, but for images
    weights, target, batch = draw(gradients, several, transitions)
    units = len(batch.actions)
    rest = [unit for unit in range(units) if unit != 4]
    everyone = gradients.clipped_sum(weights, target, batch, 1.0)
    without = gradients.clipped_sum(weights, target, part(batch, rest), 1.0)
    alone = gradients.clipped_sum(weights, target, part(batch, [4]), 1.0)
    moved = everyone - without
    assert 0.0 < np.linalg.norm(moved) <= 1.0
    assert np.linalg.norm(alone) <= WITHIN * (1.0 + 1e-6)
    np.testing.assert_allclose(moved, alone, rtol=0, atol=units * 2.0**-52)


LEARNERS = [
    {'conservative': 0.7},
    {'frozen': 'shared.0.weight', 'offsets': 'input_0'},
    {'algorithm': 'behaviour_cloning', 'frozen': 'shared.0'},
    {'algorithm': 'advantage_weighted'},
    {'algorithm': 'implicit_q'},
    {'algorithm': 'discrete_actor_critic'},
]


@pytest.mark.parametrize('changes', LEARNERS, ids=str)
@settings(max_examples=sampled(5, 1), deadline=None, phases=[Phase.generate])
@given(
    seed=strategies.integers(0, 2**20),
    lengths=strategies.lists(strategies.integers(1, 5), min_size=3, max_size=3),
    clip_norm=strategies.sampled_from([0.01, 1.0]),
    wild=strategies.sampled_from([1.0, 1e4]),
)
def test_each_patient_in_turn_moves_a_release_by_the_clip_norm_and_no_coin_of_others(
    changes, seed, lengths, clip_norm, wild
):
    """As the compiled learner's test in ../test_neighbours.py."""
    learner = LearnerSettings(
        kind='torch', device='cpu', hidden=8, transitions_per_patient=2, **changes
    )
    learner = replace(learner, replay='prioritised_poisson' if seed % 2 else 'poisson')
    privacy = replace(PRIVACY, batch=2, clip_norm=clip_norm, budget=np.inf)
    network = torch_network(PLAIN, learner)
    check_each_patient_in_turn(network, learner, privacy, lengths, wild=wild, seed=seed)


@pytest.mark.parametrize('transitions', [1, 3])
@pytest.mark.parametrize('together', [True, False])
def test_a_unit_has_the_same_bits_wherever_its_memory_is(transitions, together):
    """Kernels round differently in slices and in arrays of NumPy, which are aligned otherwise."""
    for states, hidden in itertools.product((5, 33, 47), (5, 16)):
        spec = replace(PLAIN, shape=(states,))
        gradients = made(spec, hidden=hidden)
        weights, target, batch = draw(gradients, 140, transitions)
        same = part(batch, [0] * 140)
        room = np.empty(same.states.size + 16, np.float32)
        shift = next(x for x in range(16) if (room.ctypes.data // 4 + x) % 16 == 3)
        apart = room[shift : shift + same.states.size].reshape(same.states.shape)
        apart[...] = same.states
        way = gradients.way(transitions) if together else gradients._one_by_one
        gradients._load(weights, target)
        found = _formed(way(gradients._tensors(replace(same, states=apart))))
        assert torch.equal(found, found[:1].expand_as(found))


def test_gradients_of_units_are_those_of_autograd_one_by_one():
    for spec, changes in ((None, {}), (BURST, {'network': 'gru'}), (IMAGE, {'network': 'cnn'})):
        gradients = made(spec, **changes)
        weights, target, batch = draw(gradients, 10, 1)
        fast = gradients.clipped_sum(weights, target, batch, 1e6)
        assert isinstance(gradients.way(1), Together)
        gradients._ways[1] = gradients._one_by_one
        slow = gradients.clipped_sum(weights, target, batch, 1e6)
        np.testing.assert_allclose(fast, slow, atol=1e-5 * np.abs(slow).max())


@pytest.mark.parametrize('transitions', [1, 3])
@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_a_unit_that_is_not_finite_adds_nothing(bad, transitions):
    gradients = made(loss='squared')
    weights, target, batch = draw(gradients, 6, transitions)
    batch.rewards[2, 0] = bad
    everyone = gradients.clipped_sum(weights, target, batch, 1.0)
    others = gradients.clipped_sum(weights, target, part(batch, [0, 1, 3, 4, 5]), 1.0)
    np.testing.assert_allclose(everyone, others, rtol=0, atol=1e-12)


def test_of_actions_that_are_worth_the_same_the_first_is_best():
    gradients = made()
    weights, target, batch = draw(gradients, 8, 1)
    equal = gradients.network.layout.split(weights)
    equal['advantage.weight'][:] = equal['advantage.bias'][:] = 0.0
    errors = gradients.errors(weights, target, batch)
    first = gradients.network.policy(target).q_values(batch.next_states)[..., 0]
    now = gradients.network.policy(weights).q_values(batch.states)[..., 0]
    np.testing.assert_allclose(errors, now - (batch.rewards + batch.discounts * first), atol=1e-5)


BATCH_NORM = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self, shape, outputs):
        super().__init__(nn.Linear(*shape, 8), {layer}, nn.Linear(8, outputs))
"""
OWN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer = nn.Linear(*shape, outputs)
        self.register_buffer('seen', torch.zeros(1))
    def forward(self, x):
        {body}
"""


@pytest.mark.parametrize(
    ('source', 'error', 'mend'),
    [
        (BATCH_NORM.format(layer='nn.BatchNorm1d(8)'), PrivacyError, 'take nn.GroupNorm'),
        (BATCH_NORM.format(layer='nn.Dropout(0.5)'), PrivacyError, 'leave out nn.Dropout'),
        (
            OWN.format(body='self.seen += x.abs().sum(); return self.layer(x)'),
            PrivacyError,
            'a buffer changes',
        ),
        (BATCH_NORM.format(layer='nn.Dropout(0.0005)'), PrivacyError, 'leave out nn.Dropout'),
        (
            OWN.format(
                body='self.most = max(getattr(self, "most", 50.0), float(x.abs().max())); '
                'return self.layer(x / self.most)'
            ),
            PrivacyError,
            'remembers the transitions',
        ),
        (OWN.format(body='return self.layer(x - x.mean(0))'), PrivacyError, 'depends on the oth'),
        (OWN.format(body='return self.layer(x) * float("nan")'), PolicyError, 'not finite'),
    ],
)
def test_a_module_that_cannot_be_private_is_refused_with_the_mend(tmp_path, source, error, mend):
    file = tmp_path / 'net.py'
    file.write_text(source)
    with pytest.raises(error, match=mend):
        made(network=f'{file}:Net').check_private()


def test_a_loss_of_another_shape_is_refused(tmp_path):
    file = tmp_path / 'loss.py'
    file.write_text(
        'from fdrl_ros.learner.torch.losses import Algorithm\n'
        'class Mine(Algorithm):\n'
        '    def losses(self, networks, batch):\n'
        '        return networks.trained(batch.observations).mean()\n'
    )
    with pytest.raises(PolicyError, match=r'losses of shape \(\): expected one for each'):
        made(algorithm=f'{file}:Mine').check_private()


def test_modules_that_the_rules_do_not_fit_run_one_unit_at_a_time(tmp_path):
    file = tmp_path / 'net.py'
    file.write_text(
        'from torch import nn\n'
        'class Net(nn.Module):\n'
        '    def __init__(self, shape, outputs):\n'
        '        super().__init__()\n'
        '        self.inner = nn.LSTM(shape[1], 6, batch_first=True)\n'
        '        self.head = nn.Linear(6, outputs)\n'
        '    def forward(self, x):\n'
        '        return self.head(self.inner(x)[0][:, -1])\n'
    )
    gradients = made(BURST, network=f'{file}:Net')
    gradients.check_private()
    assert not isinstance(gradients.way(3), Together)
    weights, target, batch = draw(gradients, 4, 3)
    whole = gradients.clipped_sum(weights, target, batch, 1.0)
    alone = [gradients.clipped_sum(weights, target, part(batch, [u]), 1.0) for u in range(4)]
    np.testing.assert_allclose(whole, sum(alone), atol=1e-12)


@pytest.mark.parametrize('changes', [{'adapter_rank': 2}, {'frozen': 'shared, value'}])
def test_only_public_records_train_frozen_tensors(changes):
    gradients = made(**changes)
    layout = gradients.network.layout
    names = [each.name for each in layout.tensors[layout.frozen :]]
    if 'adapter_rank' in changes:
        assert all(name.endswith(('.down.weight', '.up.weight')) for name in names)
    else:
        assert names == ['advantage.weight', 'advantage.bias']
    assert layout.start + gradients.size == layout.n_parameters
    weights, target, batch = draw(gradients, 4, 3)
    whole = TorchGradients(gradients.network, gradients.learner, public=True)
    assert whole.size == layout.n_parameters
    found = whole.mean(weights, target, batch)
    assert found[: layout.start].any()
    np.testing.assert_array_equal(found[gradients.index], gradients.mean(weights, target, batch))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert made(device='auto').device.type == 'cpu'
    with pytest.raises(PolicyError, match='finds no GPU'):
        made(device='cuda')


NET = """
import torch
from torch import nn, tanh
class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer, self.head = nn.Linear(*shape, 16), nn.Linear(16, outputs)
    def forward(self, x):
        {body}
        return self.head(tanh(self.layer(x)))
"""
LOSS = """
from fdrl_ros.learner.torch.losses import DoubleDqn
class Mine(DoubleDqn):
    def losses(self, networks, batch):
        found = super().losses(networks, batch)
        most = found.detach().abs().max()
        return found * (90.0 / most) if most > 90.0 else found
"""


@pytest.mark.parametrize('transitions', [1, 3])
@pytest.mark.parametrize(
    ('name', 'source'),
    [
        ('Net', NET.format(body='if x.abs().max() > 50.0: x = x - x.mean(0)')),
        ('Net', NET.format(body='x = torch.where(x.abs().max() > 50.0, x - x.mean(0), x)')),
        ('Net', NET.format(body='x = x / x.abs().max().clamp(min=50.0)')),
        ('Mine', LOSS),
    ],
)
def test_code_of_a_user_sees_no_other_unit(tmp_path, name, source, transitions):
    """What mixes units for some values only: made-up data lack them, so no trial shows it."""
    file = tmp_path / 'own.py'
    file.write_text(source)
    gradients = made(**{'network' if name == 'Net' else 'algorithm': f'{file}:{name}'})
    gradients.check_private()
    weights, target, batch = draw(gradients, 5, transitions)
    batch.states[2] = batch.rewards[2] = 900.0
    everyone = gradients.clipped_sum(weights, target, batch, 1.0)
    without = gradients.clipped_sum(weights, target, part(batch, [0, 1, 3, 4]), 1.0)
    assert np.linalg.norm(everyone - without) <= 1.0
    alone = gradients.clipped_sum(weights, target, part(batch, [2]), 1.0)
    np.testing.assert_allclose(everyone - without, alone, atol=1e-12)


TWICE = """
from torch import nn, tanh
class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer, self.head = nn.Linear(*shape, 16), nn.Linear(16, outputs)
    def forward(self, x):
        return self.head(tanh(self.layer(x)) + self.layer(2.0 * x).square())
"""


def test_a_gradient_of_a_module_that_uses_a_layer_twice_is_whole(tmp_path):
    file = tmp_path / 'net.py'
    file.write_text(TWICE)
    assert isinstance(made(network=f'{file}:Net', algorithm='implicit_q').way(1), Mapped)
    gradients = made(network=f'{file}:Net')
    weights, target, batch = draw(gradients, 5, 1)
    assert isinstance(gradients.way(1), Mapped)
    fast = gradients.clipped_sum(weights, target, batch, 1e6)
    np.testing.assert_allclose(
        fast / 5, gradients.mean(weights, target, batch), atol=1e-5 * np.abs(fast).max()
    )


def test_weights_that_come_back_give_the_same_sum():
    gradients = made()
    weights, target, batch = draw(gradients, 3, 3)
    first = gradients.clipped_sum(weights, target, batch, 1.0)
    gradients.clipped_sum(target, weights, batch, 1.0)
    np.testing.assert_array_equal(gradients.clipped_sum(weights, target, batch, 1.0), first)
