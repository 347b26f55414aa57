# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/crypto.py`: what it promises to measure, and that both sides compute FedAvg."""

from dataclasses import replace
import importlib
import importlib.util
import json

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import CryptoError
from fdrl_ros.policy import NetworkShape
import numpy as np
import pytest
from support.sample_size import FULL

FLOWER = importlib.util.find_spec('flwr') is not None
needs_flower = pytest.mark.skipif(not FLOWER, reason='requirements/flower.txt is not installed')
LONG = (*(f'members_{count}_' for count in (30, 100, 300, 1000)), 'five_million_', 'virtual_')
RATIOS = 'speedup_over_flower', 'masked_speedup_over_flower', 'upload_over_flower'


@pytest.fixture
def work(module, monkeypatch):
    work = module('crypto_work')
    monkeypatch.setattr(work, 'HOSPITALS', 3)
    return work


@pytest.fixture
def updates(work):
    return work.Updates.draw(work.parameters(), work.HOSPITALS)


@pytest.fixture
def crypto(module, work, monkeypatch):
    crypto = module('crypto')
    for name, value in module('benchmarking').PROCESS.items():
        monkeypatch.setenv(name, value)  # else the process would start anew
    monkeypatch.setattr(module('benchmarking'), 'one_core', lambda: 'not bound to a core')
    monkeypatch.setattr(crypto, 'COLLECTED', 3)
    monkeypatch.setattr(crypto, 'QUICK', (10,))
    few = {'collection': {'patients': 12}, 'learner': {'epochs': 1}, 'privacy': {'batch': 12}}
    tiny = Plan().changed(few)
    monkeypatch.setattr(work, 'plan', lambda: tiny)
    return crypto


@pytest.mark.skipif(not FULL, reason='takes long: make nightly')
def test_quick_mode_writes_every_row_but_those_that_take_long(crypto, monkeypatch, tmp_path):
    file = tmp_path / 'crypto.json'
    arguments = ['crypto.py', '--quick', '--folder', str(tmp_path), '--json', str(file)]
    monkeypatch.setattr('sys.argv', arguments)
    crypto.main()
    written = json.loads(file.read_text('utf-8'))
    names = [row.name for row in (*crypto.BYTES, *crypto.ROWS, *crypto.PARTIES)]
    left_out = LONG if FLOWER else (*LONG, *RATIOS)
    assert list(written) == [name for name in names if not name.startswith(left_out)]
    for each in written.values():
        assert each['value'] > 0 and {'unit', 'peer', 'peer_value'} <= each.keys()
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize('flat', [False, True])
def test_the_peer_s_mean_is_fedavg(module, updates, flat):
    peers = module('crypto_peers')
    mean = peers.Nvflare(updates, flat=flat).run(decryptions=1)
    np.testing.assert_allclose(mean, updates.mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(peers.plain_round(updates), updates.mean, rtol=0, atol=1e-6)


@pytest.mark.parametrize('bounded', [False, True])
def test_our_mean_is_fedavg_within_the_quantiser(work, updates, bounded):
    round = work.Round(updates, bounded=bounded)
    assert np.abs(round.run() - updates.mean).max() <= round.error < 1e-4


def test_a_bounded_round_notices_a_long_update_and_a_false_projection(work, updates):
    round = work.Round(updates, bounded=True)
    slots, nonce = [round.slots(each) for each in range(3)], bytes(32)
    first, *others = (round.project(name, nonce) for name in round.attempt.names)
    sketch, liar = round.sketch(nonce), replace(first, values=others[0].values)

    def check(said):
        sent = [round.encrypt(*each) for each in zip(slots, round.masks, strict=True)]
        round.check_norms(sketch, round.inspect(sent, sketch), [said, *others])

    check(first)
    with pytest.raises(RuntimeError, match='an update was refused'):
        check(liar)
    slots[0][0, :10] += round.scheme.plain_modulus // 3
    with pytest.raises(RuntimeError, match='an update was refused'):
        check(first)


@pytest.mark.parametrize('encrypted', [False, True])
def test_a_whole_masked_round_restores_seeds_and_notices_wrong_seeds_and_sums(
    work, updates, encrypted, monkeypatch
):
    rounds = work.secure_rounds(updates, encrypted=encrypted)
    assert rounds() == 1
    attempt = work.Attempt(3)
    drawn = {name: each.self_seed for name, each in attempt.secrets.items()}
    assert attempt.restored_seeds() == drawn
    wrong = {name: bytes(32) for name in drawn}
    with monkeypatch.context() as patch:
        patch.setattr(work.Attempt, 'restored_seeds', lambda self: wrong)
        with pytest.raises(CryptoError, match='does not fit what it published'):
            rounds()
    shape = work.Round(updates).slots(0).shape
    monkeypatch.setattr(work.Attempt, 'net_mask', lambda *_: np.ones(shape, dtype=np.int64))
    with pytest.raises(CryptoError, match='masks did not cancel'):
        rounds()


def test_without_flower_its_rows_say_why_they_are_not_measured(
    module, crypto, monkeypatch, capsys
):
    benchmarking, flower = module('benchmarking'), module('crypto_flower')
    monkeypatch.setattr(flower, 'has', lambda package: False)
    rows = [row for row in crypto.ROWS if row.peer in ('flower', 'example')]
    found = {
        name: benchmarking.Measurement(lambda: lambda: 1, 's') for name in ('secure', 'masked')
    }
    for name in ('flower', 'example'):
        found[name] = benchmarking.Measurement(lambda: flower.flower_rounds(None), 's')
    benchmarking.measure(found, 1, 0.001)
    table = benchmarking.Table([row.name for row in rows], {})
    for row in rows:
        table.add(row, found)
    assert list(table.written) == ['secure_round_s', 'masked_round_s']
    assert all(each['peer_value'] is None for each in table.written.values())
    assert capsys.readouterr().out.count('not measured: flwr is missing: pip install') == 3
    monkeypatch.undo()
    monkeypatch.setattr(flower, 'has', lambda package: True)
    monkeypatch.setitem(flower.USED, 'flwr_of_another_version', ('Moved',))
    with pytest.raises(
        benchmarking.Skipped, match='flwr cannot be used .*requirements/flower.txt'
    ):
        flower.imported()


@needs_flower
@pytest.mark.parametrize('shares', [None, 3])
def test_flower_s_mean_is_fedavg_and_a_wrong_sum_is_noticed(module, updates, shares):
    flower = module('crypto_flower').Flower(updates, shares=shares)
    np.testing.assert_allclose(flower.run(), updates.mean, rtol=0, atol=2e-5)
    plain = updates.values[0].size * 8  # 64-bit integers
    assert all(plain < sent < 1.1 * plain for sent in flower.sent.values())
    layers = next(iter(flower._layers.values()))
    layers[0][0, 0] += 2e-5
    with pytest.raises(RuntimeError, match='not the sum of the quantised'):
        flower.run()


@needs_flower
def test_flower_s_masks_depend_on_32_bits_of_a_seed_and_28_of_a_pair_s_key(module):
    below = 'flwr.common.secure_aggregation'
    masks = importlib.import_module(f'{below}.secaggplus_utils').pseudo_rand_gen
    keys = importlib.import_module('flwr.supercore.primitives.asymmetric').generate_key_pairs
    agree = importlib.import_module(f'{below}.crypto.symmetric_encryption').generate_shared_key
    word = bytes.fromhex('01234567')
    first, second = (masks(seed, 2**32, [(50,)])[0] for seed in (word, bytes(16) + word * 3))
    assert (first == second).all()
    assert (first == np.random.RandomState(0x67452301).randint(0, 2**32 - 1, 50, np.int64)).all()
    secret, _ = keys()
    for _ in range(20):
        assert max(agree(secret, keys()[1])) < 128


def test_a_large_round_is_timed_only_if_its_sums_are_exact(module, monkeypatch):
    million = module('crypto_million')
    assert million.exact_rounds(20_000, 3)() > 0
    rounds = million.exact_rounds(20_000, 3, bounded=False)
    assert rounds() > 0
    assert million.upload(bounded=False) < 10_000_000 < million.upload()
    encrypt = module('crypto_work').Round.encrypt
    monkeypatch.setattr(
        module('crypto_work').Round,
        'encrypt',
        lambda self, slots, mask: encrypt(self, slots[:, ::-1], mask),
    )
    with pytest.raises(CryptoError, match='padding is not zero'):
        rounds()


def test_a_round_of_the_real_parties_ends_with_fedavg_and_tells_who_did_how_much(module):
    protocol = module('crypto_protocol')
    shape = NetworkShape(4, 3, (5,))
    federation = protocol.Federation(None, shape, 4)
    deltas = [each.delta(1) for each in federation.learners.values()]
    federation.play()
    assert federation.round == 1
    expected = federation.start + np.mean(deltas, axis=0)
    np.testing.assert_allclose(federation.weights, expected, rtol=0, atol=1e-4)
    for each in federation.clocked.values():
        assert each.seconds > 0 and each.sent > 0
    federation.play()
    assert federation.round == 2


@pytest.mark.parametrize('members', [4, 14])
def test_a_hospital_among_many_does_and_sends_what_it_would_in_a_round(module, work, members):
    protocol = module('crypto_protocol')
    member = protocol.Member(100, members)
    member.publish()
    member.share()
    member.mask()
    attempt = work.Attempt(members)
    name, keys = attempt.names[0], attempt.keys()
    secrets, published = attempt.secrets[name], keys.keys[name]
    parcels = work.seal_shares(secrets, keys).values()
    shares = [pair.self_seed for pair in work.deal(secrets, keys).values()]
    sent = [published.mask, published.sealing, published.seed_hash, *parcels, *shares]
    scheme = protocol.choose_scheme(100, members, work.SETTINGS.bits)
    ciphertexts = scheme.ciphertexts * scheme.ciphertext_bytes
    assert protocol.member_upload(100, members) == ciphertexts + sum(map(len, sent))
    assert protocol.key_authority(100, members)() > 0


def test_parties_of_a_large_round_find_fedavg_and_a_wrong_sum_is_noticed(module, tmp_path):
    party = module('crypto_party')
    party.prepare(tmp_path, 20_000, 3)
    for number in range(3):
        party.hospital(tmp_path, number)()
    party.aggregator(tmp_path)()
    party.key_authority(tmp_path)()
    party.check(tmp_path, 20_000, 3)
    mean = np.fromfile(tmp_path / 'mean', np.float32)
    mean[-1] += 1e-3
    mean.tofile(tmp_path / 'mean')
    with pytest.raises(RuntimeError, match='the mean is off'):
        party.check(tmp_path, 20_000, 3)
    data = bytearray((tmp_path / 'sum').read_bytes())
    data[-1] ^= 1
    (tmp_path / 'sum').write_bytes(data)
    with pytest.raises(RuntimeError, match='something else'):
        party.key_authority(tmp_path)()
