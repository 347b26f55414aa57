# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A robot's policies survive a restart; what was damaged or forged meanwhile is put aside."""

from dataclasses import asdict
import json
import math

from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import NetworkShape
from fdrl_ros.selector import HOLD
from fdrl_ros.selector.candidates.policy_files import ASIDE, PolicyFiles, VALUED_FOR
from fdrl_ros.selector.candidates.registry import PolicyRegistry
from fdrl_ros.selector.candidates.supervision import Supervision
import pytest
from support.choices import constant_value
from support.signed_policies import (
    digest_of,
    IDENTITIES,
    model_of,
    NAMES,
    own,
    released,
    report_on,
    ROSTER,
    roster_of,
    SHAPE,
    sign_own,
    weights,
)

NOTHING = Supervision()


@pytest.fixture
def files(tmp_path):
    return PolicyFiles(tmp_path)


def filled(files) -> PolicyRegistry:
    """Return a registry whose two candidates are on the disk with all that was found of them."""
    registry = PolicyRegistry(ROSTER, SHAPE)
    for message in (released(1, 1), released(2, 2), own(3, 'hospital_1')):
        version = registry.receive(message, 12.5)
        files.save(version)
        registry.add_report(version, report_on(version.policy))
        files.save_report(version.report)
        registry.add_model(version, model_of(version.policy))
        files.save_model(version.digest, model_of(version.policy).to_bytes())
    return registry


def reread(files, roster=ROSTER, shape=SHAPE, **settings):
    registry = PolicyRegistry(roster, shape, **settings)
    return registry, files.load(registry)


def described(registry):
    return [(x.name, x.round, x.digest, x.came, registry.ready(x)) for x in registry.versions]


def test_after_a_restart_the_same_candidates_stand_at_once(files):
    before = filled(files)
    after, problems = reread(files)
    assert problems == []
    assert described(after) == described(before)
    assert [each.digest for each in after.candidates(NOTHING)] == [
        each.digest for each in before.candidates(NOTHING)
    ]
    assert after.pending(NOTHING) is None


@pytest.mark.parametrize('place', [0, 20, 200, -1])
def test_damaged_file_is_put_aside_and_nothing_else_is_lost(files, place):
    before = filled(files)
    victim = before.versions[0]
    path = files.path(victim)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    after, problems = reread(files)
    (problem,) = problems
    assert path.name in problem and (files.folder / ASIDE / path.name).exists()
    assert described(after) == described(before)[1:]
    assert [each.round for each in after.standing(NOTHING)] == [1, 1], 'the one before it stands'
    assert reread(files)[1] == [], 'it is said once'


def test_policies_of_another_key_shape_or_kind_are_put_aside(files, tmp_path):
    filled(files)
    strangers = {name: Identity.generate(name) for name in NAMES}
    registry, problems = reread(files, roster_of(strangers))
    assert len(problems) == 3 and registry.versions == ()

    filled(files)
    registry, problems = reread(files, shape=NetworkShape(18, 15, (5,)))
    assert len(problems) == 3 and 'weights' in problems[0]

    before = filled(files)
    good = files.path(before.versions[0])
    (files.folder / 'another_name.policy').write_bytes(good.read_bytes())
    (files.folder / 'empty.policy').write_bytes(b'')
    verdict = b'{"came": 1}\n' + IDENTITIES['hospital_1'].sign(b'no message')
    (files.folder / 'strange.policy').write_bytes(verdict)
    registry, problems = reread(files)
    assert len(problems) == 3
    assert described(registry) == described(before)


def test_model_or_test_that_is_damaged_is_put_aside_and_found_out_anew(files):
    before = filled(files)
    first, second = before.standing(NOTHING)
    files.model(first.digest).write_bytes(b'')
    files.report(second.digest).write_text('{}')
    after, problems = reread(files)
    damaged = [files.model(first.digest).name, files.report(second.digest).name]
    assert all(each in '\n'.join(problems) for each in damaged) and len(problems) == 2
    assert sorted(each.name for each in (files.folder / ASIDE).iterdir()) == sorted(damaged)
    assert reread(files)[1] == [], 'it is said once'
    assert after.pending(NOTHING).digest == second.digest
    assert after.pending(NOTHING, {second.digest}).digest == first.digest
    # The version before the newest is whole, and stands meanwhile.
    assert [each.round for each in after.standing(NOTHING)] == [1]
    other, _ = reread(files, basis='another test')
    assert other.standing(NOTHING) == () and other.pending(NOTHING).report is None


@pytest.mark.parametrize(
    'changes',
    [{'mean_return': math.inf}, {'force_share': math.nan}, {'states': 'many'}, {'finite': None}],
)
def test_a_report_of_numbers_that_no_test_finds_counts_for_none(files, changes):
    report = report_on(filled(files).versions[0].policy)
    files.report(report.policy).write_text(json.dumps(asdict(report) | changes), 'utf-8')
    problems = []
    assert files.load_report(report.policy, problems) is None
    assert [path for path, _ in problems] == [files.report(report.policy)]


def test_forgotten_versions_leave_no_file_but_what_others_need(files):
    registry = filled(files)
    twin = registry.receive(own(1, 'hospital_2'), 0.0)
    files.save(twin)
    oldest = next(each for each in registry.versions if (each.name, each.round) == ('global', 1))
    left = [each for each in registry.versions if each is not oldest]
    files.remove([oldest], left)
    assert not files.path(oldest).exists() and files.model(oldest.digest).exists()
    files.remove([twin], [each for each in left if each is not twin])
    assert not files.model(oldest.digest).exists() and not files.report(oldest.digest).exists()


def test_damaged_value_of_holding_is_put_aside(files):
    filled(files)
    files.save_model(HOLD, constant_value(0.0, policy=HOLD, size=SHAPE.states).to_bytes())
    assert HOLD in reread(files)[0].values.models
    files.model(HOLD).write_bytes(b'damaged')
    registry, (problem,) = reread(files)
    assert HOLD not in registry.values.models and problem.startswith(files.model(HOLD).name)
    assert (files.folder / ASIDE / files.model(HOLD).name).read_bytes() == b'damaged'


def test_the_later_of_two_policies_of_one_round_stands_after_a_restart_too(files):
    channel = Channel(IDENTITIES['hospital_1'], ROSTER, Store())
    drawn = sorted((weights(seed) for seed in (4, 5)), key=digest_of, reverse=True)
    registry = PolicyRegistry(ROSTER, SHAPE, hospital='hospital_1')
    for each in drawn:
        files.save(registry.receive(sign_own(channel, 2, each), 12.5))
    after, problems = reread(files, hospital='hospital_1')
    assert problems == []
    assert described(after) == described(registry)
    assert [each.name for each in after.versions] == ['home', 'home']
    # The same files on a robot of no hospital: they are named by who signed them.
    assert [each.name for each in reread(files)[0].versions] == ['hospital_1'] * 2


def hash_of(known):
    return '_'.join(each.digest.hex()[:6] for each in known)


def test_the_values_in_use_are_in_use_after_a_restart_too(files):
    before = filled(files)
    first, second = (before.versions[number].policy for number in (2, 1))
    for known in ([second], [first]):
        for each in before.versions:
            files.save_model(each.digest, model_of(each.policy).to_bytes(), hash_of(known))
    after = PolicyRegistry(ROSTER, SHAPE, hospital='hospital_1')
    assert files.load(after, NOTHING, hash_of) == []
    assert after.values.known == (after.versions[2].policy,), 'that of the home policy'
    assert [each.digest for each in after.values.known] == [first.digest]
    files.save_known([second])
    after = PolicyRegistry(ROSTER, SHAPE, hospital='hospital_1')
    assert files.load(after, NOTHING, hash_of) == []
    assert [each.digest for each in after.values.known] == [second.digest]
    assert [each.name for each in after.candidates(NOTHING)] == ['global', 'home', HOLD]


@pytest.mark.parametrize('data', [b'', b'{}', b'[1]', b'["00"]'])
def test_without_a_whole_list_the_policies_tell_anew_how_far_the_robot_is_off(files, data):
    filled(files)
    path = files.folder / VALUED_FOR
    path.write_bytes(data)
    registry = PolicyRegistry(ROSTER, SHAPE, hospital='hospital_1')
    problems, home = files.load(registry, NOTHING, hash_of), registry.versions[2]
    assert home.name == 'home' and registry.values.known == (home.policy,)
    assert [path.name in each for each in problems] == [True] * (data != b'["00"]')
