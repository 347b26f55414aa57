# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The keystore: what it holds, how it follows the roster, and every fault that is found in it."""

from dataclasses import replace
from datetime import timedelta
import json
import re
import shutil
import time

from fdrl_ros.crypto.dds.certificates import (
    Authority,
    Binding,
    pem,
    read_certificate,
    revoked_serials,
    utc,
)
from fdrl_ros.crypto.dds.smime import signed, verified
from fdrl_ros.crypto.keys.key_file import Passphrase
from fdrl_ros.crypto.keys.keystore import load_passphrase, make_federation, NewFederation
from fdrl_ros.crypto.keys.rotation import change_passphrase, private_keys, RosterChanges
from fdrl_ros.deployment.bringup import BringupSettings, environment, federation_graph, robot_graph
from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.interfaces import (
    Domain,
    Endpoints,
    FOXGLOVE,
    GUESTS,
    node_name,
    Places,
    uses_of,
    Verb,
)
from fdrl_ros.deployment.launch_files import graph as launch_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.runner import command, Runner
from fdrl_ros.deployment.security import enclaves, rules
from fdrl_ros.deployment.security.enclaves import (
    AUTHORITY_CERTIFICATES,
    binding_of,
    ENCLAVE_FILES,
    Keystore,
    KeystoreSettings,
    make_keystore,
    party_of,
    restore_party,
    revoke_party,
    rotate_all,
    update_keystore,
    validity_of,
)
from fdrl_ros.deployment.security.inspection import keystore_faults
from fdrl_ros.deployment.security.variables import check_security
from fdrl_ros.errors import (
    KeyFileError,
    PassphraseError,
    RosterError,
    SecurityError,
    SettingError,
)
from fdrl_ros.runtime.durable import make_private_directory, write_secret
import pytest

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3', 'hospital_4')
ROOM = (
    *('env', 'selector', 'robot_state_publisher', 'monitor', 'segmenter', 'recorder'),
    *GUESTS,
)
SETTINGS = KeystoreSettings(robots='robot_1=hospital_1, robot_2')
PEOPLE = {'/operator', '/observer', '/watch', '/foxglove_bridge'}
PATHS = {
    *('/federation/aggregator', '/federation/key_authority', *PEOPLE),
    *(f'/{each}/trainer' for each in HOSPITALS),
    *(f'/robot_{i}/{each}' for i in (1, 2) for each in ROOM),
}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """Return a directory of keys with a keystore, for tests that copy it."""
    keys = tmp_path_factory.mktemp('made') / 'federation' / 'keys'
    make_private_directory(keys.parent)
    make_federation(keys, NewFederation(dict.fromkeys(HOSPITALS, 30)))
    make_keystore(keys, SETTINGS)
    return keys


@pytest.fixture
def keys(made, tmp_path):
    shutil.copytree(made.parent, tmp_path / 'federation')
    return tmp_path / 'federation' / 'keys'


def serials(keys):
    store = Keystore(keys)
    return {path: store.certificate(path).serial_number for path in store.present}


def revoked(keys):
    store = Keystore(keys)
    identity = pem_of(keys, AUTHORITY_CERTIFICATES[0])
    return revoked_serials(store.public('crl.pem'), identity)


def pem_of(keys, name):
    return read_certificate(Keystore(keys).public(name))


def permissions(keys, path):
    data = (Keystore(keys).enclave(path) / 'permissions.p7s').read_bytes()
    return verified(data, pem_of(keys, AUTHORITY_CERTIFICATES[1]))


def test_every_node_operator_and_observer_gets_what_the_middleware_reads(keys):
    store = Keystore(keys)
    assert set(store.present) == PATHS and not keystore_faults(keys)
    for path in PATHS:
        folder = store.enclave(path)
        assert {each.name for each in folder.iterdir()} == set(ENCLAVE_FILES)
        assert (folder / 'key.pem').stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    graph = launch_graph('federation', {'robots': '2', 'description': 'false'})
    assert {each.full_name for each in graph} < PATHS
    assert {each.name for each in (keys / 'root').iterdir()} == {
        *('identity.key', 'identity_ca.key', 'permissions_ca.key'),
    }


def test_a_certificate_is_bound_to_the_partys_signing_key(keys):
    store = Keystore(keys)
    found = Binding.of(store.certificate('/hospital_2/trainer'))
    specs = {each.full_name: each for each in SETTINGS.graph(store.roster())}
    assert found == binding_of(specs['/hospital_2/trainer'], store.roster())
    assert found.party == 'hospital_2' and found.key.count('-') == 4 and found.serial == 1
    assert Binding.of(store.certificate('/robot_1/env')).key == 'none'
    assert party_of(specs['/robot_1/env']) == 'robot_1'


def test_permissions_hold_each_domain_by_itself_and_deny_the_rest(keys):
    text = permissions(keys, '/hospital_1/trainer')
    assert b'<default>DENY</default>' in text and b'<subject_name>CN=/hospital_1/trainer<' in text
    found = rules.rules_in(text)
    assert (50, 'publish', 'rt/federation/update') in found
    assert (51, 'publish', 'rt/federation/policy') in found
    assert (50, 'publish', 'rt/federation/policy') not in found
    heard = {topic for number, what, topic in found if (number, what) == (51, 'subscribe')}
    assert heard == {'ros_discovery_info'}
    assert {number for number, *_ in rules.rules_in(permissions(keys, '/robot_1/env'))} == {51}


EXPECTED_RULES = """\
publish ros_discovery_info
publish rr/robot_2/robot_state_publisher/describe_parametersReply
publish rr/robot_2/robot_state_publisher/get_parameter_typesReply
publish rr/robot_2/robot_state_publisher/get_parametersReply
publish rr/robot_2/robot_state_publisher/get_type_descriptionReply
publish rr/robot_2/robot_state_publisher/list_parametersReply
publish rr/robot_2/robot_state_publisher/set_parametersReply
publish rr/robot_2/robot_state_publisher/set_parameters_atomicallyReply
publish rt/parameter_events
publish rt/robot_2/robot_description
publish rt/robot_2/tf
publish rt/robot_2/tf_static
publish rt/rosout
subscribe ros_discovery_info
subscribe rq/robot_2/robot_state_publisher/describe_parametersRequest
subscribe rq/robot_2/robot_state_publisher/get_parameter_typesRequest
subscribe rq/robot_2/robot_state_publisher/get_parametersRequest
subscribe rq/robot_2/robot_state_publisher/get_type_descriptionRequest
subscribe rq/robot_2/robot_state_publisher/list_parametersRequest
subscribe rq/robot_2/robot_state_publisher/set_parametersRequest
subscribe rq/robot_2/robot_state_publisher/set_parameters_atomicallyRequest
subscribe rt/clock
subscribe rt/parameter_events
subscribe rt/robot_2/joint_states
"""

EXPECTED_GOVERNANCE = b"""\
<?xml version='1.0' encoding='utf-8'?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:noNamespaceSchemaLocation=\
"http://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_governance.xsd">
  <domain_access_rules>
    <domain_rule>
      <domains>
        <id>50</id>
        <id>51</id>
      </domains>
      <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
      <enable_join_access_control>true</enable_join_access_control>
      <discovery_protection_kind>ENCRYPT</discovery_protection_kind>
      <liveliness_protection_kind>ENCRYPT</liveliness_protection_kind>
      <rtps_protection_kind>ENCRYPT_WITH_ORIGIN_AUTHENTICATION</rtps_protection_kind>
      <topic_access_rules>
        <topic_rule>
          <topic_expression>*</topic_expression>
          <enable_discovery_protection>true</enable_discovery_protection>
          <enable_liveliness_protection>true</enable_liveliness_protection>
          <enable_read_access_control>true</enable_read_access_control>
          <enable_write_access_control>true</enable_write_access_control>
          <metadata_protection_kind>ENCRYPT</metadata_protection_kind>
          <data_protection_kind>NONE</data_protection_kind>
        </topic_rule>
      </topic_access_rules>
    </domain_rule>
  </domain_access_rules>
</dds>
"""


def test_documents_are_as_sros2_and_dds_security_write_them(keys):
    found = rules.rules_in(permissions(keys, '/robot_2/robot_state_publisher'))
    assert {number for number, *_ in found} == {51}
    assert [f'{what} {topic}' for _, what, topic in sorted(found)] == EXPECTED_RULES.splitlines()
    assert rules.governance(SETTINGS.numbers) == EXPECTED_GOVERNANCE
    text = rules.permissions(
        [e for e in SETTINGS.graph(Keystore(keys).roster()) if e.full_name == '/robot_1/env'][0],
        Places.of(SETTINGS.graph(Keystore(keys).roster())),
        SETTINGS.numbers,
        (utc(0), utc(86400)),
    )
    for line in (
        b'<grant name="/robot_1/env">',
        b'<not_before>1970-01-01T00:00:00</not_before>',
        b'<not_after>1970-01-02T00:00:00</not_after>',
    ):
        assert line in text


def test_whoever_is_listened_to_has_an_enclave_that_may_speak(made):
    roster = Keystore(made).roster()
    specs, places = SETTINGS.graph(roster), SETTINGS.places(roster)
    for domain in Domain:
        said, heard = (
            {
                each.name
                for spec in specs
                for each in uses_of(spec, places, domain)
                if each.verb is verb
            }
            for verb in (Verb.PUBLISH, Verb.SUBSCRIBE)
        )
        # Simulated time is the robots' alone.
        assert heard - said <= ({'/clock'} if domain is Domain.FEDERATION else set())
    for path, own in (
        ('/robot_1/pedal', {'supervise'}),
        ('/robot_2/sensors', {'surface', 'vital_signs/heart_rate'}),
        ('/robot_2/client', {'servo_cp', 'servo_jp', 'move_cp', 'jaw/move_jp', 'state_command'}),
    ):
        robot = path.split('/')[1]
        found = {topic for _, what, topic in rules.rules_in(permissions(made, path))}
        assert {f'rt/{robot}/{each}' for each in own} <= found
        assert all(robot in each or each.count('/') < 2 for each in found)


def test_ten_hospitals_and_ten_robots_fit_and_more_than_fits_is_refused(
    keys, tmp_path, monkeypatch
):
    hospitals = [f'hospital_{i}' for i in range(1, 11)]
    make_federation(tmp_path / 'ten', NewFederation(dict.fromkeys(hospitals, 30)))
    homes = ', '.join(each.replace('hospital', 'robot') + f'={each}' for each in hospitals)
    settings = KeystoreSettings(namespace='a_long_name', robots=homes)
    roster = Keystore(tmp_path / 'ten').roster()
    specs, places = settings.graph(roster), settings.places(roster)
    for spec in specs:
        text = rules.permissions(spec, places, settings.numbers, (utc(0), utc(86400)))
        share = 2 / 3 if spec.executable == FOXGLOVE else 1 / 3  # it reads what all robots say
        assert len(text) < enclaves.LONGEST_PERMISSIONS * share
    before = serials(keys)
    monkeypatch.setattr(enclaves, 'LONGEST_PERMISSIONS', 3000)
    faults = '\n'.join(keystore_faults(keys))
    for each in ('/operator', '/robot_1/env'):
        assert re.search(f'{each}: permissions.p7s: .* the middleware carries 3000', faults)
    with pytest.raises(SecurityError, match=r'permissions.p7s: \d+ bytes'):
        update_keystore(keys, rotate='operator')
    assert serials(keys) == before


def test_operators_call_all_services_but_those_that_servers_have_for_each_other(keys):
    called = {
        topic.partition('/')[2]
        for _, what, topic in rules.rules_in(permissions(keys, '/operator'))
        if what == 'publish' and topic.startswith('rq')
    }
    assert {'federation/aggregator/*', 'robot_1/env/*', 'hospital_2/trainer/*'} <= called
    assert 'federation/key_authority/orderRequest' in called
    assert not called & {'federation/key_authority/*', 'federation/key_authority/decryptRequest'}


def test_policies_name_every_enclave_of_their_domain(keys):
    federation, robots = (
        (Keystore(keys).folder / 'policies' / f'{domain}.policy.xml').read_text()
        for domain in Domain
    )
    assert '<policy version="0.2.0">' in federation
    assert federation.count('<enclave path="/robot') == 0 and robots.count('/robot_1/env"') == 1
    for text in (federation, robots):
        assert text.count('<enclave path="/hospital_1/trainer">') == 1
        assert '<topics publish="ALLOW">' in text and '<services reply="ALLOW">' in text


def test_a_real_arm_keeps_its_names(keys):
    rule = '/robot_1/servo_cp:=/PSM1/servo_cp'
    update_keystore(keys, change=lambda settings: replace(settings, remapped=rule))
    for path, what in (('/robot_1/selector', 'publish'), ('/robot_1/env', 'subscribe')):
        found = rules.rules_in(permissions(keys, path))
        assert (51, what, 'rt/PSM1/servo_cp') in found
        assert (51, what, 'rt/robot_1/servo_cp') not in found
    assert (51, 'publish', 'rt/robot_2/servo_cp') in rules.rules_in(
        permissions(keys, '/robot_2/selector')
    )
    assert not keystore_faults(keys)


def test_a_federation_of_a_namespace_has_all_names_in_it(keys):
    update_keystore(keys, change=lambda settings: replace(settings, namespace='north'))
    moved = {f'/north{each}' for each in PATHS - PEOPLE} | PEOPLE
    assert set(Keystore(keys).present) == moved and not keystore_faults(keys)
    found = rules.rules_in(permissions(keys, '/north/robot_1/selector'))
    for topic in ('north/federation/policy', 'north/hospital_1/home', 'north/hospital_2/policy'):
        assert (51, 'subscribe', f'rt/{topic}') in found
    found = rules.rules_in(permissions(keys, '/north/federation/aggregator'))
    assert (50, 'publish', 'rq/north/federation/key_authority/decryptRequest') in found
    found = rules.rules_in(permissions(keys, '/operator'))
    assert (50, 'publish', 'rq/north/federation/aggregator/*') in found
    settings = BringupSettings(directory=str(keys.parent), namespace='/north', security=True)
    settings.check_enclaves(
        (*federation_graph(settings, HOSPITALS), *robot_graph(settings, 'robot_1'))
    )


def test_the_keystore_follows_the_roster(keys):
    before = serials(keys)
    changes = RosterChanges(keys)
    changes.rotate('hospital_1')
    changes.revoke('hospital_2')
    faults = '\n'.join(keystore_faults(keys))
    assert '/hospital_1/trainer: its certificate is bound to the signing key' in faults
    assert '/hospital_2/trainer: no node has this enclave any more' in faults
    assert 'they allow to publish /federation/delivery/hospital_2 in domain 50' in faults
    changes.admit('hospital_5', 40)
    assert '/hospital_5/trainer: it has no enclave' in '\n'.join(keystore_faults(keys))
    fresh = update_keystore(keys)
    assert set(fresh) == {'/hospital_1/trainer', '/hospital_5/trainer'}
    after = serials(keys)
    assert set(after) == PATHS - {'/hospital_2/trainer'} | {'/hospital_5/trainer'}
    assert not (Keystore(keys).enclaves / 'hospital_2').exists()
    assert revoked(keys) == {before['/hospital_1/trainer'], before['/hospital_2/trainer']}
    kept = before.keys() & after.keys() - {'/hospital_1/trainer'}
    assert all(before[path] == after[path] for path in kept)
    assert not keystore_faults(keys) and not update_keystore(keys)


def test_rotating_a_party_revokes_what_it_had_and_leaves_the_others(keys):
    before = serials(keys)
    own = {f'/robot_1/{each}' for each in ROOM}
    assert set(update_keystore(keys, rotate='robot_1')) == own
    after = serials(keys)
    assert {path for path in PATHS if before[path] != after[path]} == own
    assert revoked(keys) == {before[path] for path in own} and not keystore_faults(keys)
    with pytest.raises(RosterError, match='robot_3'):
        update_keystore(keys, rotate='robot_3')


def test_revoked_parties_come_back_with_new_keys_alone(keys):
    before = serials(keys)
    revoke_party(keys, 'hospital_1')
    revoke_party(keys, 'robot_2')
    assert not {'/hospital_1/trainer', '/robot_2/env'} & set(Keystore(keys).present)
    assert {before['/hospital_1/trainer'], before['/robot_2/env']} <= revoked(keys)
    # Its robot gets no home policy meanwhile.
    assert b'hospital_1' not in permissions(keys, '/robot_1/selector')
    assert not keystore_faults(keys)
    with pytest.raises(RosterError, match='hospital_1 is revoked: `fdrl security restore`'):
        update_keystore(keys, rotate='hospital_1')
    assert '/hospital_1/trainer' not in Keystore(keys).present
    assert restore_party(keys, 'hospital_1') == ('/hospital_1/trainer',)
    assert serials(keys)['/hospital_1/trainer'] not in revoked(keys)
    assert not keystore_faults(keys)
    with pytest.raises(RosterError, match='hospital_1'):
        restore_party(keys, 'hospital_1')
    for name in ('hospital_9', 'observer'):
        with pytest.raises(RosterError):
            revoke_party(keys, name)


def test_whoever_is_revoked_or_rotated_loses_renewed_and_lost_certificates_too(keys, monkeypatch):
    first, begin = serials(keys), time.time()
    monkeypatch.setattr(time, 'time', lambda: begin + 340 * 86400)
    update_keystore(keys)
    renewed = serials(keys)
    (Keystore(keys).enclave('/robot_2/env') / 'cert.pem').unlink()
    revoke_party(keys, 'robot_2')
    update_keystore(keys, rotate='robot_1')
    robots = {path for path in PATHS if path.startswith('/robot')}
    assert revoked(keys) == {each[path] for each in (first, renewed) for path in robots}
    assert not (Keystore(keys).enclaves / 'robot_2').exists() and not keystore_faults(keys)
    # What has expired needs no place in the list.
    monkeypatch.setattr(time, 'time', lambda: begin + 400 * 86400)
    update_keystore(keys, rotate='operator')
    assert renewed['/operator'] in revoked(keys) and first['/operator'] not in revoked(keys)


@pytest.mark.parametrize(
    'take',
    [
        lambda keys: update_keystore(
            keys, change=lambda settings: replace(settings, robots='robot_1, robot_2, robot_3')
        ),
        lambda keys: revoke_party(keys, 'operator'),
        lambda keys: (
            (Keystore(keys).enclave('/robot_2/env') / 'permissions.p7s').unlink(),
            update_keystore(keys),
        ),
    ],
    ids=['another home', 'one enclave less', 'who knows what it had'],
)
def test_rights_that_are_taken_away_count_nowhere(keys, take):
    document = (Keystore(keys).enclave('/robot_1/selector') / 'permissions.p7s').read_bytes()
    before = serials(keys)
    more = 'robot_1=hospital_1, robot_2, robot_3'
    update_keystore(keys, change=lambda settings: replace(settings, robots=more))
    # Who has it still may do all of it.
    assert verified(document, pem_of(keys, AUTHORITY_CERTIFICATES[1]))
    take(keys)
    for path in Keystore(keys).present:
        own = (Keystore(keys).enclave(path) / AUTHORITY_CERTIFICATES[1]).read_bytes()
        with pytest.raises(SecurityError, match='not signed by the permissions authority'):
            verified(document, read_certificate(own))
    assert not keystore_faults(keys)
    assert all(before.get(path, serial) == serial for path, serial in serials(keys).items())


def test_rotating_all_ends_the_authorities_too(keys):
    old = pem_of(keys, AUTHORITY_CERTIFICATES[0])
    before = serials(keys)
    assert set(rotate_all(keys)) == PATHS
    assert old != pem_of(keys, AUTHORITY_CERTIFICATES[0])
    assert not set(before.values()) & set(serials(keys).values())
    assert not keystore_faults(keys) and not revoked(keys)


def test_authorities_are_sealed_like_the_root_and_with_it(keys, tmp_path, quick_scrypt):
    names = {'root/identity_ca.key', 'root/permissions_ca.key'}
    assert names < set(private_keys(keys))
    write_secret(tmp_path / 'new', b'correct horse')
    after = load_passphrase(tmp_path / 'new')
    change_passphrase(keys, None, after)
    with pytest.raises(PassphraseError):
        update_keystore(keys)
    with pytest.raises(PassphraseError):
        update_keystore(keys, Passphrase(b'wrong horse'))
    assert update_keystore(keys, after, rotate='operator') == ('/operator',)


def test_live_nodes_are_compared_with_their_policies_both_ways(made):
    roster = Keystore(made).roster()
    specs, places = SETTINGS.graph(roster), SETTINGS.places(roster)
    for domain in Domain:
        live = {
            node_name(spec): Endpoints.of(uses_of(spec, places, domain))
            for spec in specs
            if uses_of(spec, places, domain)
        }
        assert not rules.live_faults(specs, places, domain, live)
        # Optional things may be missing, and people may be away.
        for spec in specs:
            uses = [each for each in uses_of(spec, places, domain) if not each.optional]
            if uses:
                live[node_name(spec)] = Endpoints.of(uses)
        for name in ('/operator', '/observer', '/foxglove_bridge', '/robot_1/monitor'):
            live.pop(name, None)
        live['/launch_ros_42'] = Endpoints(frozenset({'rt/rosout'}))  # no part of what is secured
        assert not rules.live_faults(specs, places, domain, live)
    # A real arm has no simulated env, and a monitor.
    arm = {name: has for name, has in live.items() if name != '/robot_2/env'}
    assert not rules.live_faults(specs, places, Domain.ROBOTS, arm)
    env, stranger = live['/robot_1/env'], Endpoints(frozenset({'rt/robot_1/servo_cp'}))
    less = replace(
        env, subscribe=env.subscribe - {'rq/robot_1/env/resetRequest', 'rt/robot_1/hold'}
    )
    more = replace(less, publish=less.publish | {'rt/robot_2/servo_cp'})
    live |= {'/robot_1/env': more, '/stranger': stranger}
    del live['/robot_2/env'], live['/robot_2/monitor']
    assert rules.live_faults(specs, places, Domain.ROBOTS, live) == [
        '/robot_2/env is not in the robots domain',
        '/robot_1/env may not publish /robot_2/servo_cp in the robots domain, and does',
        '/robot_1/env may serve /robot_1/env/reset in the robots domain, and does not',
        '/robot_1/env may subscribe to /robot_1/hold in the robots domain, and does not',
        '/stranger is in the robots domain and has no enclave',
    ]


def test_what_is_damaged_is_named_and_made_anew_with_all(keys):
    store = Keystore(keys)
    damaged = store.enclave('/robot_1/env') / 'cert.pem'
    damaged.write_bytes(b'')
    with pytest.raises(SecurityError, match=re.escape(f'{damaged}: no certificate')):
        update_keystore(keys)
    damaged.unlink()
    assert keystore_faults(keys) == ['/robot_1/env: it has no enclave: run `fdrl security update`']
    rotate_all(keys)
    assert not keystore_faults(keys)


def test_enclaves_are_made_once_and_where_the_root_is(keys, tmp_path):
    with pytest.raises(SecurityError, match='update'):
        make_keystore(keys, SETTINGS)
    for path in (keys / 'dds-security', keys / 'root'):
        shutil.rmtree(path)
    with pytest.raises(SecurityError, match='init'):
        keystore_faults(keys)
    with pytest.raises(KeyFileError, match='where the root is'):
        make_keystore(keys, SETTINGS)


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        ({'robots': 'robot_1, robot_1'}, 'each once'),
        ({'robots': 'Robot'}, 'names such as'),
        ({'robots': 'robot_1=hospital_9'}, 'hospital_9'),
        ({'robots': 'hospital_1'}, 'another name'),
        ({'remapped': 'servo_cp:=/PSM1/servo_cp'}, 'full names'),
        ({'robot_domain': 50}, "than the federation's"),
        ({'namespace': 'north wing'}, 'a ROS namespace'),
        ({'valid_days': 0}, 'at least 1'),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(made, settings, words):
    roster = Keystore(made).roster()
    with pytest.raises(SettingError, match=words):
        KeystoreSettings(**settings).graph(roster)


def spoilt(name, *change):
    """Return what changes a file of the enclave /robot_1/env."""

    def spoil(keys):
        path = Keystore(keys).enclave('/robot_1/env') / name
        path.write_bytes(path.read_bytes().replace(*change) if change else b'')

    return spoil


def taken_from_another(name):
    def spoil(keys):
        store = Keystore(keys)
        shutil.copy2(store.enclave('/robot_1/selector') / name, store.enclave('/robot_1/env'))

    return spoil


def of_another_authority(keys):
    """Issue the certificate and sign the permissions by a stranger of the same name."""
    stranger = Authority.make('fdrl federation identity', utc(time.time()))
    binding = Binding('federation', 'robot_1', 'none', 1)
    certificate, key = stranger.issue('/robot_1/env', binding, utc(time.time()), 100)
    folder, text = Keystore(keys).enclave('/robot_1/env'), permissions(keys, '/robot_1/env')
    (folder / 'cert.pem').write_bytes(pem(certificate))
    (folder / 'key.pem').write_bytes(key)
    (folder / 'permissions.p7s').write_bytes(signed(text, stranger))


def other_authorities(keys):
    """Put the authorities of a stranger with the same names in place of ours."""
    stranger = keys.parent / 'stranger'
    make_federation(stranger, NewFederation(dict.fromkeys(HOSPITALS, 30)))
    make_keystore(stranger, SETTINGS)
    folder = Keystore(keys).folder
    shutil.rmtree(folder)
    shutil.copytree(Keystore(stranger).folder, folder)


def readable(path):
    return lambda keys: (Keystore(keys).enclaves / path).chmod(0o755)


def edited(**settings):
    def edit(keys):
        path = Keystore(keys).folder / 'keystore.json'
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return edit


@pytest.mark.parametrize(
    ('spoil', 'words'),
    [
        (spoilt('cert.pem'), 'no certificate'),
        (spoilt('key.pem'), 'private key is damaged'),
        (spoilt('permissions.p7s'), 'permissions.p7s: no document'),
        (spoilt('permissions.p7s', b'robot_1/servo_cp', b'robot_2/servo_cp'), 'changed after'),
        (spoilt('governance.p7s', b'ENCRYPT', b'NONE', 1), 'governance.p7s: its text was changed'),
        (spoilt('crl.pem'), 'crl.pem: it is another'),
        (spoilt('identity_ca.cert.pem'), 'identity_ca.cert.pem: it is another'),
        (taken_from_another('cert.pem'), 'its private key is not that of its certificate'),
        (taken_from_another('cert.pem'), 'of another enclave'),
        (taken_from_another('permissions.p7s'), 'they allow to'),
        (of_another_authority, 'not signed by the identity authority'),
        (of_another_authority, 'not signed by the permissions authority'),
        (readable('robot_1/env/key.pem'), 'is open to others; run: chmod go-rwx'),
        (readable('robot_1/env'), 'is open to others: chmod go-rwx'),
        (edited(robots='robot_1'), '/robot_2/env: no node has this enclave'),
        (edited(robots='robot_1=hospital_2, robot_2'), 'they allow to subscribe to'),
        (other_authorities, 'the root of the roster did not sign them'),
        (edited(federation_domain=60), 'governance.p7s: it protects the domains'),
    ],
)
def test_every_fault_is_found_and_told_in_a_line(keys, spoil, words):
    spoil(keys)
    found = keystore_faults(keys)
    assert any(words in each for each in found), found
    assert all('\n' not in each for each in found)


def test_expired_soon_expired_and_revoked_certificates_are_told(keys):
    now, days = utc(time.time()), timedelta(days=1)
    assert not keystore_faults(keys, now + 320 * days)
    for at, words in ((now + 340 * days, 'expires on'), (now + 366 * days, 'has expired')):
        found = keystore_faults(keys, at)
        assert len(found) == len(PATHS) and all(words in each for each in found)
    folder = Keystore(keys).enclave('/robot_1/env')
    kept = {each: each.read_bytes() for each in folder.iterdir() if each.suffix == '.pem'}
    update_keystore(keys, rotate='robot_1')
    for path, data in kept.items():
        path.write_bytes(data)
    found = '\n'.join(keystore_faults(keys))
    assert '/robot_1/env: its certificate is revoked' in found
    assert '/robot_1/env: crl.pem: it is another' in found


def test_what_ends_soon_is_made_anew_and_not_revoked(keys, monkeypatch):
    before = serials(keys)
    later = time.time() + 340 * 86400
    monkeypatch.setattr(time, 'time', lambda: later)
    assert len(keystore_faults(keys)) == len(PATHS)
    assert set(update_keystore(keys)) == PATHS
    assert not keystore_faults(keys) and not revoked(keys)
    assert not set(before.values()) & set(serials(keys).values())


def exported(keys, target, *names):
    """Return the keys that the host of some parties gets."""
    layout = Layout(keys.parent)
    layout.plan.write_text(Plan().to_yaml())
    layout.pretrained.write_bytes(b'public')
    export(layout, names, target)
    return Layout(target).keys


def test_a_host_gets_the_enclaves_of_its_parties_and_no_authority(keys, tmp_path):
    copied = exported(keys, tmp_path / 'two', 'hospital_2', 'robot_1')
    own = {each for each in PATHS if each.startswith(('/hospital_2', '/robot_1'))}
    assert set(Keystore(copied).present) == own and not keystore_faults(copied)
    assert not list(copied.rglob('*_ca.key')) and not (copied / 'root').exists()
    shutil.rmtree(Keystore(copied).enclave('/hospital_2/trainer'))
    assert keystore_faults(copied) == [
        '/hospital_2/trainer: it has no enclave: run `fdrl security update`'
    ]


def test_a_host_gets_no_enclave_that_lies_below_another_and_no_open_folder(keys, tmp_path):
    update_keystore(keys, change=lambda settings: replace(settings, namespace='operator'))
    people = exported(keys, tmp_path / 'people', 'operator', 'observer')
    assert set(Keystore(people).present) == PEOPLE - {'/watch'} and not keystore_faults(people)
    robot = exported(keys, tmp_path / 'robot', 'robot_1')
    own = {f'/operator/robot_1/{each}' for each in ROOM}
    assert set(Keystore(robot).present) == own and not keystore_faults(robot)


def test_nodes_start_with_their_enclave_or_not_at_all(keys, tmp_path, monkeypatch):
    settings = BringupSettings(directory=str(keys.parent), security=True)
    graph = (*federation_graph(settings, HOSPITALS), *robot_graph(settings, 'robot_1'))
    settings.check_enclaves(graph)
    variables = environment(settings, 51)
    assert variables['ROS_SECURITY_STRATEGY'] == 'Enforce'
    assert variables['ROS_SECURITY_KEYSTORE'] == str(keys / 'dds-security')
    assert variables['ROS_SECURITY_ENCLAVE_OVERRIDE'] == ''
    words = command(graph[0])
    assert words[words.index('--enclave') + 1] == graph[0].full_name
    assert 'ROS_SECURITY_ENABLE' not in environment(replace(settings, security=False), 51)
    other = replace(settings, keystore=str(tmp_path))
    with pytest.raises(SettingError, match='/federation/key_authority'):
        Runner(other, tmp_path).start(graph)
    monkeypatch.setenv('RMW_IMPLEMENTATION', 'rmw_zenoh_cpp')
    with pytest.raises(SettingError, match='rmw_zenoh_cpp has no DDS Security'):
        replace(settings, log_level='warn')


@pytest.mark.parametrize(
    ('variables', 'middleware', 'words'),
    [
        ({'ROS_SECURITY_ENABLE': 'True'}, 'rmw_fastrtps_cpp', 'so written'),
        ({'ROS_SECURITY_ENABLE': '1'}, 'rmw_fastrtps_cpp', 'so written'),
        ({'ROS_SECURITY_ENABLE': 'true'}, 'rmw_fastrtps_cpp', 'STRATEGY'),
        (
            {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'enforce'},
            'rmw_fastrtps_cpp',
            'STRATEGY',
        ),
        (
            {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'},
            'rmw_unheard_of',
            'RMW_IMPLEMENTATION',
        ),
    ],
)
def test_variables_that_would_leave_a_node_unsecured_are_refused(variables, middleware, words):
    with pytest.raises(SettingError, match=words):
        check_security(variables, middleware)
    for fine in ({}, {'ROS_SECURITY_ENABLE': 'false', 'ROS_SECURITY_STRATEGY': 'x'}):
        check_security(fine, middleware)
    check_security(
        {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'}, 'rmw_fastrtps_cpp'
    )


def test_validity_is_that_of_the_certificate(keys):
    start, end = validity_of(Keystore(keys).certificate('/observer'))
    assert end - start == timedelta(days=366)
    assert f'<not_after>{end:%Y-%m-%dT%H:%M:%S}'.encode() in permissions(keys, '/observer')
