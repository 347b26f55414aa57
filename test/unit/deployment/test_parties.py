# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parties out of a prepared directory: what is refused before anything is trained or sent."""

from contextlib import closing
from dataclasses import replace
import logging
from pathlib import Path
import pickle
import re
import time

from fdrl_ros.cli.federation.key_listing import noise_keys
from fdrl_ros.crypto.he.ckks import CkksScheme
from fdrl_ros.crypto.he.schemes import choose_scheme, SCHEMES
from fdrl_ros.crypto.keys import key_file
from fdrl_ros.crypto.keys.he_key import load_he
from fdrl_ros.crypto.keys.key_file import label
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    make_federation,
    NewFederation,
    NOISE_FILE,
    PASSPHRASE_VARIABLE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.rotation import change_passphrase, RosterChanges, rotate_he
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.parties.hospital import (
    ledger_spent,
    open_hospital,
    open_ledger,
    open_records,
    open_training,
)
from fdrl_ros.deployment.parties.key_authority import open_key_authority, open_secret_context
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import check_keys, check_plan, prepare, taking_part
from fdrl_ros.errors import (
    KeyFileError,
    LedgerError,
    PassphraseError,
    PrivacyError,
    RecordsError,
    RosterError,
    RosterRollbackError,
    RosterTimeError,
    SettingError,
    StoreError,
)
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.runtime.durable import make_private_directory, write_secret
import numpy as np
import pytest
from support.small_run import TINY_PLAN

pytestmark = pytest.mark.usefixtures('quick_scrypt')
PLAN = Plan().changed({**TINY_PLAN, 'federation': {}})
NAME = 'hospital_1'


@pytest.fixture
def layout(tmp_path):
    return prepare(tmp_path / 'federation', PLAN)


def begin(layout, plan=PLAN):
    return open_training(layout.party(NAME), NAME, plan, open_records(layout, NAME, plan))


def test_ledger_that_is_gone_is_not_begun_again_under_the_old_noise_key(layout):
    begin(layout).ledger.close()
    begin(layout).ledger.close()
    ledger, key = (layout.party(NAME) / each for each in ('ledger.sqlite', 'noise.key'))
    ledger.unlink()
    for opening in (lambda: begin(layout), lambda: ledger_spent(layout, NAME, PLAN).epsilon):
        with pytest.raises(PrivacyError, match='put the ledger back'):
            opening()
        assert not ledger.exists()
    key.unlink()
    begin(layout).ledger.close()
    assert key.exists() and ledger.exists()


def test_key_cut_off_from_its_ledger_before_it_was_made_is_made_later(layout):
    begin(layout).ledger.close()
    (layout.party(NAME) / 'noise.key').unlink()
    begin(layout).ledger.close()


def trained(layout, *rounds):
    """Train rounds as a federation does: each is erased before the next one begins."""
    trainer = begin(layout)
    with closing(trainer.ledger):
        for round in rounds:
            trainer.forget(round - 1)
            trainer.train(
                np.zeros(PLAN.network.layout.n_parameters, np.float32),
                round,
                report=lambda told: None,
                stopped=lambda: False,
            )


def test_older_noise_key_beside_a_newer_ledger_is_refused(layout):
    key = layout.party(NAME) / NOISE_FILE
    trained(layout, 1)
    older = key.read_bytes()
    trained(layout, 2)
    newer = key.read_bytes()
    for content, refused in ((older, True), (newer, False)):
        key.write_bytes(content)
        trainer = begin(layout)
        spent = trainer.ledger.chain.head
        with closing(trainer.ledger), closing(Store(layout.state(NAME))) as store:
            if refused:
                with pytest.raises(KeyFileError, match='older than the ledger'):
                    open_hospital(layout, NAME, PLAN, trainer, store)
            else:
                assert open_hospital(layout, NAME, PLAN, trainer, store)
            assert trainer.ledger.chain.head == spent and key.read_bytes() == content


def test_noise_key_of_another_hospital_is_refused(layout):
    other = 'hospital_2'
    records = open_records(layout, other, PLAN)
    open_training(layout.party(other), other, PLAN, records).ledger.close()
    begin(layout).ledger.close()
    theirs = (layout.party(other) / NOISE_FILE).read_bytes()
    (layout.party(NAME) / NOISE_FILE).write_bytes(theirs)
    with pytest.raises(KeyFileError, match='another ledger'):
        begin(layout)
    begun = open_ledger(layout.party(NAME), NAME, PLAN)  # nothing holds it
    assert begun.chain.head.entries == 0
    begun.close()


def test_noise_key_is_sealed_with_the_passphrase_of_the_others(layout, tmp_path):
    file = tmp_path / 'passphrase'
    write_secret(file, b'correct horse\n')
    told = replace(layout, passphrase_file=file)
    records = open_records(layout, NAME, PLAN)

    def opened(passphrase):
        where = layout.party(NAME)
        return open_training(where, NAME, PLAN, records, passphrase=passphrase).ledger.close()

    opened(None)
    key = layout.party(NAME) / NOISE_FILE
    clear = key.read_bytes()[-96:-32]
    with pytest.raises(PassphraseError, match='not encrypted'):
        opened(told.passphrase)
    names = change_passphrase(layout.keys, None, told.passphrase, beside=noise_keys(layout.keys))
    assert f'../{NAME}/{NOISE_FILE}' in names
    assert label(key.read_bytes(), key).sealed and clear not in key.read_bytes()
    opened(told.passphrase)
    with pytest.raises(PassphraseError, match='is encrypted'):
        opened(None)


def test_ledger_that_is_older_than_the_journal_tells_is_refused_without_a_state(layout):
    open_records(layout, NAME, PLAN)
    with closing(Store(layout.state(NAME))) as store:
        journal = open_channel(layout, NAME, store).journal
        journal.append('policy', policy=bytes(32), included=False)
        journal.append('sent', round=1, attempt=1, update=bytes(32), ledger=Head(20, bytes(32)))
    layout.state(NAME).unlink()
    trainer = begin(layout)
    with (
        closing(Store(layout.state(NAME))) as store,
        pytest.raises(LedgerError, match='its journal'),
    ):
        open_hospital(layout, NAME, PLAN, trainer, store)
    trainer.ledger.close()


@pytest.mark.parametrize(('kept', 'simulated'), [(7, 8), (7, 90), (8, 8)])
def test_hospital_must_have_the_patients_that_it_declares(layout, kept, simulated):
    plan = PLAN.changed({'collection': {'patients': simulated}})
    records = open_records(layout, NAME, PLAN)
    end = int(records.starts[kept])
    arrays = ('states', 'actions', 'rewards', 'next_states', 'terminals', 'ends')
    fewer = replace(
        records,
        **{each: getattr(records, each)[:end] for each in arrays},
        starts=records.starts[: kept + 1],
        patients=records.patients[:kept],
    )
    trainer = open_training(layout.party(NAME), NAME, PLAN, fewer)
    store = Store(layout.state(NAME))
    try:
        if kept == 8:
            assert open_hospital(layout, NAME, PLAN, trainer, store)
            return
        with pytest.raises(RecordsError, match='roster declares') as refused:
            open_hospital(layout, NAME, plan, trainer, store)
        assert str(kept) not in str(refused.value), 'how many there are is private'
        told = f'not of the 8 patients .* simulates {simulated}, collection.patients'
        assert bool(re.search(told, str(refused.value))) == (simulated != 8)
    finally:
        trainer.ledger.close()
        store.close()


@pytest.mark.parametrize(
    'changes, reason',
    [
        ({'delta': 0.2}, 'delta'),
        ({'batch': 9}, 'batch'),
        ({'noise_multiplier': 0.0}, 'noise'),
        ({'budget': 0.01}, 'pays for 0: take a greater privacy.noise_multiplier'),
    ],
)
def test_a_plan_that_no_hospital_could_train_by_is_refused_before_anything_is_made(
    tmp_path, changes, reason
):
    plan = PLAN.changed({'collection': {'patients': 8}, 'privacy': changes})
    with pytest.raises(PrivacyError, match=reason):
        prepare(tmp_path / 'federation', plan)
    assert not (tmp_path / 'federation').exists()


@pytest.mark.parametrize(
    'home, reason',
    [
        ({'epochs': 1000}, 'with the home policy .*: take fewer rounds.rounds or home.epochs'),
        ({'epochs': 1, 'choice_noise': 0.01}, 'with the home policy'),
        ({'epochs': 1, 'choice_noise': 0.0}, 'set home.choice_noise'),
        ({'epochs': 1, 'candidates': 'alone', 'alone_epochs': 10**5}, 'with the home policy'),
    ],
)
def test_a_home_policy_that_the_budget_does_not_pay_for_is_refused_before_anything_is_made(
    tmp_path, home, reason
):
    check_plan(PLAN, None)
    with pytest.raises(PrivacyError, match=reason):
        prepare(tmp_path / 'federation', PLAN.changed({'home': home}))
    assert not (tmp_path / 'federation').exists()


def test_tensors_that_are_not_there_cannot_stay_at_home():
    with pytest.raises(SettingError, match='frozen'):
        PLAN.changed({'home': {'epochs': 1, 'frozen': 'nonsense'}})


def test_a_prepared_directory_takes_other_settings_of_what_comes_after_training_alone(tmp_path):
    layout = prepare(tmp_path / 'federation', PLAN)
    after = PLAN.changed({'shield': {'stiffest': 26000.0}, 'selector': {'margin': 0.3}})
    assert prepare(tmp_path / 'federation', after).roster() == layout.roster()
    assert Plan.load(layout.plan) == after
    with pytest.raises(StoreError, match=r'learner\.hidden'):
        prepare(tmp_path / 'federation', PLAN.changed({'learner': {'hidden': 9}}))


# Keys and rosters.

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3', 'hospital_4')


def passphrase_file(path, words=b'correct horse\n'):
    write_secret(path, words)
    return path


@pytest.fixture
def bare(tmp_path):
    """Return a federation of four with keys alone."""
    layout = Layout(tmp_path / 'bare')
    make_federation(layout.keys, NewFederation(dict.fromkeys(HOSPITALS, 8), threshold=3))
    for name in (*HOSPITALS, 'aggregator', 'key_authority', 'robot_1'):
        make_private_directory(layout.party(name))
    return layout


def test_revoked_party_does_not_start_and_the_older_roster_does_not_help_it(bare):
    old = (bare.keys / ROSTER_FILE).read_bytes()
    key = (bare.keys / NAME / KEY_FILE).read_bytes()
    RosterChanges(bare.keys).revoke(NAME)
    for name in ('hospital_2', 'robot_1'):
        assert bare.trusted_roster(name).serial == 2
    with pytest.raises(RosterError, match='roster 2 revoked it'):
        open_channel(bare, NAME, Store())
    # Whoever brings the old files back is noticed by everybody who has seen the new roster.
    (bare.keys / ROSTER_FILE).write_bytes(old)
    make_private_directory(bare.keys / NAME)
    write_secret(bare.keys / NAME / KEY_FILE, key)
    for name in ('hospital_2', 'robot_1', NAME):
        with pytest.raises(RosterRollbackError, match='older than roster 2'):
            bare.trusted_roster(name)
    with pytest.raises(RosterRollbackError):
        open_channel(bare, 'hospital_2', Store())
    assert bare.roster().serial == 1, 'who only looks on may look at it'


def test_old_key_under_the_new_roster_is_refused(bare):
    path = bare.keys / NAME / KEY_FILE
    old = path.read_bytes()
    RosterChanges(bare.keys).rotate(NAME)
    open_channel(bare, NAME, Store())
    path.write_bytes(old)
    with pytest.raises(KeyFileError, match='roster 2 holds another key of hospital_1'):
        open_channel(bare, NAME, Store())


def test_roster_out_of_its_time_stops_everybody_before_anything_else(bare):
    now = int(time.time())
    for validity in ((now - 10_000, now - 5_000), (now + 5_000, now + 10_000)):
        RosterChanges(bare.keys).renew(validity)
        for refused in (
            lambda: check_keys(bare),
            lambda: open_channel(bare, NAME, Store()),
            lambda: bare.trusted_roster('robot_1'),
        ):
            with pytest.raises(RosterTimeError, match='UTC: check the clock'):
                refused()
    RosterChanges(bare.keys).renew((now - 10, now + 10))
    check_keys(bare)
    open_channel(bare, NAME, Store())


def test_parties_start_with_encrypted_keys_and_pay_for_scrypt_once(bare, tmp_path, monkeypatch):
    file = passphrase_file(tmp_path / 'passphrase')
    change_passphrase(bare.keys, None, replace(bare, passphrase_file=file).passphrase)
    told = replace(bare, passphrase_file=file)
    costs, scrypt = [], key_file.Scrypt
    monkeypatch.setattr(
        key_file, 'Scrypt', lambda **values: costs.append(values['n']) or scrypt(**values)
    )
    check_keys(told)
    for name in (*HOSPITALS, 'aggregator', 'key_authority'):
        open_channel(told, name, Store())
    secret = open_secret_context(told, choose_scheme(100, 4, 16))
    assert label(told.he_key.read_bytes(), 'x').sealed and costs == [2**key_file.COST]
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(file))
    again = open_secret_context(Layout(bare.directory), choose_scheme(100, 4, 16))
    assert again.public.digest == secret.public.digest


@pytest.mark.parametrize('words', [None, b'battery staple'])
def test_wrong_or_missing_passphrase_stops_everybody_before_anything_else(bare, tmp_path, words):
    right = replace(bare, passphrase_file=passphrase_file(tmp_path / 'right'))
    change_passphrase(bare.keys, None, right.passphrase)
    file = words and passphrase_file(tmp_path / 'wrong', words)
    told = replace(bare, passphrase_file=file)
    for refused in (
        lambda: check_keys(told),
        lambda: open_channel(told, NAME, Store()),
        lambda: prepare(bare.directory, PLAN),
    ):
        with pytest.raises(PassphraseError, match='passphrase') as caught:
            refused()
        assert 'staple' not in str(caught.value)
    assert not bare.plan.exists()


def test_key_for_decryption_is_checked_with_the_others(bare, tmp_path):
    told = replace(bare, passphrase_file=passphrase_file(tmp_path / 'passphrase'))
    open_secret_context(bare, choose_scheme(100, 4, 16))
    clear = bare.he_key.read_bytes()
    change_passphrase(bare.keys, None, told.passphrase)
    check_keys(told)
    bare.he_key.write_bytes(clear)
    for refused in (
        lambda: check_keys(told),
        lambda: open_secret_context(told, choose_scheme(100, 4, 16)),
    ):
        with pytest.raises(PassphraseError, match='he_secret.key is not encrypted'):
            refused()
    bare.he_key.write_bytes(clear[:-1])
    with pytest.raises(KeyFileError, match='damaged'):
        check_keys(told)


def test_layout_takes_no_passphrase_to_another_process(bare, tmp_path):
    told = replace(bare, passphrase_file=passphrase_file(tmp_path / 'passphrase'))
    told.passphrase.key(b'salt', 14)
    data = pickle.dumps(told)
    assert b'horse' not in data and pickle.loads(data) == told
    assert 'horse' not in repr(told)
    assert pickle.loads(data).passphrase.source == str(tmp_path / 'passphrase')


def test_prepared_federation_has_encrypted_keys_if_a_passphrase_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(passphrase_file(tmp_path / 'passphrase')))
    layout = prepare(tmp_path / 'federation', PLAN)
    assert prepare(tmp_path / 'federation', PLAN).roster() == layout.roster()
    store = Store(layout.state('key_authority'))
    open_key_authority(layout, PLAN, store, validate=lambda weights: Validation(True, 'ok'))
    store.close()
    for path in (*layout.keys.glob(f'*/{KEY_FILE}'), layout.he_key):
        assert label(path.read_bytes(), path).sealed and path.stat().st_mode & 0o077 == 0
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    with pytest.raises(PassphraseError, match='FDRL_PASSPHRASE_FILE'):
        prepare(tmp_path / 'federation', PLAN)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(tmp_path / 'missing'))
    with pytest.raises(KeyFileError, match='missing cannot be read'):
        prepare(tmp_path / 'another', PLAN)
    assert not (tmp_path / 'another').exists()


def test_key_for_decryption_is_kept_while_it_fits_and_never_used_when_not(bare, caplog):
    caplog.set_level(logging.INFO)
    first = open_secret_context(bare, choose_scheme(100, 4, 16)).public.digest
    assert open_secret_context(bare, choose_scheme(100, 4, 16)).public.digest == first
    assert [each.levelname for each in caplog.records] == ['INFO']
    for scheme in (choose_scheme(100, 5, 16), choose_scheme(100, 3, 16), choose_scheme(90, 3, 16)):
        secret = open_secret_context(bare, scheme, after_round=6)
        assert secret.scheme == scheme
        assert load_he(bare.he_key)[0].public.digest == secret.public.digest
        assert load_he(bare.he_key)[1] == 6
        assert caplog.records[-1].levelname == 'WARNING'
        assert 'the old one is of BFV' in caplog.records[-1].getMessage()
    assert first != secret.public.digest
    assert rotate_he(bare.keys) == open_secret_context(bare, scheme).public.digest


def test_key_of_ckks_is_replaced_when_its_rounds_are_used_up(bare, caplog):
    scheme = CkksScheme.choose(100, 4, 16, decryptions=20)
    first = open_secret_context(bare, scheme, after_round=3).public.digest
    assert open_secret_context(bare, scheme, after_round=22).public.digest == first
    assert open_secret_context(bare, scheme, after_round=23).public.digest != first
    assert 'has served 20 rounds' in caplog.text


@pytest.mark.parametrize('kind', SCHEMES)
def test_key_authority_logs_what_its_scheme_says_of_dishonest_hospitals(tmp_path, caplog, kind):
    plan = PLAN.changed({'encryption': {'scheme': kind}})
    layout = prepare(tmp_path / 'federation', plan)
    store = Store(layout.state('key_authority'))
    open_key_authority(layout, plan, store, validate=lambda weights: Validation(True, 'ok'))
    store.close()
    told = [each.getMessage() for each in caplog.records if 'ciphertexts' in each.getMessage()]
    warning = SCHEMES[kind].dishonest_warning
    assert told == ([f'{kind.upper()}: {warning}'] if warning else [])


def test_hospitals_that_take_part_are_those_of_the_roster_that_run_here(bare):
    plan = PLAN.changed({'federation': {'hospitals': 4}})
    assert taking_part(bare, plan) == HOSPITALS
    RosterChanges(bare.keys).revoke('hospital_2')
    RosterChanges(bare.keys).admit('hospital_5', 8)
    assert taking_part(bare, plan) == ('hospital_1', 'hospital_3', 'hospital_4')
    make_private_directory(bare.party('hospital_5'))
    Path(bare.records('hospital_5')).touch()
    assert taking_part(bare, plan) == ('hospital_1', 'hospital_3', 'hospital_4', 'hospital_5')


def test_a_quorum_that_cannot_be_reached_is_refused_before_anything_is_made(tmp_path):
    many = PLAN.changed({'rounds': {'quorum': len(PLAN.hospitals) + 1}})
    with pytest.raises(SettingError, match='quorum'):
        prepare(tmp_path / 'federation', many)
    assert not (tmp_path / 'federation').exists()
