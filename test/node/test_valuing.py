# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What cannot be valued now is tried again, and the control loop goes on meanwhile."""

from collections import Counter
from dataclasses import replace
import math
import os
from pathlib import Path
import signal
import subprocess
import threading
import time

from fdrl_ros.deployment.bringup import environment, robot_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot import public_value
from fdrl_ros.deployment.robot.public_value import fitted_with
from fdrl_ros.deployment.robot.safety_test import basis
from fdrl_ros.deployment.runner import command
from fdrl_ros.errors import LastingError, PolicyError
from fdrl_ros.federation.protocol.message import GlobalPolicy
from fdrl_ros.learner.offsets import offsets_of
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Level
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.nodes.robot import candidate_updates, policy_assessment
from fdrl_ros.policy.onnx_network import OnnxPolicy
from fdrl_ros.runtime.subprocess_runner import run_elsewhere
from fdrl_ros.selector import HOLD
from fdrl_ros.selector.candidates.decision_time import DecisionTime
from fdrl_ros.selector.candidates.registry import PolicyRegistry
import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.choices import constant_value
from support.node_process import Process
from support.onnx_graphs import dueling_graph
from support.signed_policies import (
    channel,
    global_policy,
    near_start,
    own_policy,
    report_on,
    sign_own,
)


def passing(policy, plan, *rest):
    """Return the report of a good policy."""
    return report_on(policy, basis=basis(plan))


def good_value(policy, *rest):
    """Return the value model of a good policy, or of holding."""
    if policy is None:
        return constant_value(0.0, policy=HOLD)
    return constant_value(1.0, policy=policy.digest.hex())


@pytest.fixture
def configured(directory, lone_domain, monkeypatch):
    """Make a configured selector whose policies are tested and valued by the test's functions."""
    made = []

    def make(valued=good_value, tested=passing, *parameters):
        monkeypatch.setattr(candidate_updates, 'tested', tested)
        monkeypatch.setattr(candidate_updates, 'valued', valued)
        monkeypatch.setattr(candidate_updates, 'FIRST_PAUSE', 0.05)
        made.append(Process('/robot_1/selector', directory, lone_domain, *parameters))
        made[-1].node.trigger_configure()
        return made[-1]

    yield make
    for each in made:
        each.close()


def spin_until(process, condition):
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline, process.node.policies.problem
        process.spin()


def spin_a_while(process):
    """Let the node look three times for what it could value."""
    looks, policies = [], process.node.policies
    look = policies.registry.pending
    policies.registry.pending = lambda *rest: looks.append(rest) or look(*rest)
    spin_until(process, lambda: len(looks) >= 3)


def complaints(policies, monkeypatch):
    """Return a list that gets what is complained of from now on."""
    told, report_problem = [], policies.report_problem
    monkeypatch.setattr(
        policies, 'report_problem', lambda each: report_problem(told.append(each) or each)
    )
    return told


def test_what_cannot_be_valued_is_tried_again_and_others_have_their_turn(
    configured, directory, monkeypatch
):
    tried = []

    def value(policy, *rest):
        name = names[policy.digest] if policy else HOLD
        tried.append(name)
        if name in failing and tried.count(name) < 3:
            raise OSError(f'no space left for {name}')
        return good_value(policy)

    process = configured(value)
    node = process.node
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    policies, failing = node.policies, {HOLD, 'global'}
    spin_a_while(process)
    assert not tried and node.fault is None, 'holding is not valued before there is a policy'
    problems = complaints(policies, monkeypatch)
    known = [
        policies.registry.receive(each, 0.0)
        for each in (global_policy(directory, 1), own_policy(directory, 'hospital_1', 3))
    ]
    names = {each.policy.digest: each.name for each in known}
    policies.assess_next()
    spin_until(process, lambda: tried.count('global') == 1 and known[0].setback)
    node.reason = 'best'
    assert node.health().level is Level.WARN and node.fault is None
    told = {each.name: each for each in policies.policies_message().policies}
    assert told['global'].status == 'valuing' and 'no space left' in told['global'].reason
    spin_until(process, lambda: all(map(policies.registry.ready, known)))
    assert tried[:4] == [HOLD] * 3 + ['global'] and tried[-1] == 'global'
    assert Counter(tried) == {HOLD: 3, 'global': 3, 'hospital_1': 1}
    pauses = [each.rpartition('; ')[2] for each in problems]
    assert pauses == 2 * ['once more in 0.05 s', 'once more in 0.1 s']
    assert not known[0].setback and not policies.problem
    assert [each.name for each in node.loop.selector.candidates] == ['global', 'hospital_1', HOLD]


def test_what_cannot_ever_be_valued_is_told_once_and_another_version_is_tried(
    configured, directory, monkeypatch
):
    tried = []

    def value(policy, *rest):
        tried.append(policy.digest if policy else HOLD)
        if policy and policy.digest == first.policy.digest:
            raise LastingError('PolicyError: it has 3 layers')
        return good_value(policy)

    process = configured(value)
    node = process.node
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    policies = node.policies
    problems = complaints(policies, monkeypatch)
    first = policies.registry.receive(global_policy(directory, 1), 0.0)
    policies.assess_next()
    spin_until(process, lambda: problems)
    spin_a_while(process)
    assert tried == [HOLD, first.policy.digest] and len(problems) == 1
    assert 'it has 3 layers' in problems[0] and 'not tried again' in problems[0]
    (told,) = policies.policies_message().policies
    assert told.status == 'refused' and 'it has 3 layers' in told.reason
    assert node.fault is None
    second = policies.registry.receive(global_policy(directory, 2, seed=1), 0.0)
    policies.assess_next()
    spin_until(process, lambda: policies.registry.ready(second))
    assert not policies.problem


def home_policy(directory, number, offset):
    """Return a policy of hospital_1 that says how far off its robots are, in scales."""
    plan = Plan.read(Layout(directory).plan)
    offsets = offsets_of(plan.network, plan.learner, plan.spec.names)
    drawn = near_start(directory, 0)
    trained = plan.network.layout.trained(plan.learner.frozen_tensors)
    drawn[trained] += offsets.span(drawn) @ np.full(offsets.size, offset)
    return sign_own(channel(directory, 'hospital_1'), number, drawn, secure=False)


def robot_at_home(configured, directory, value, tested=passing):
    """Return the process of a robot whose candidates are all valued."""
    process = configured(value, tested, 'hospital:=hospital_1')
    assert process.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    policies = process.node.policies
    for message in (
        global_policy(directory, 1),
        own_policy(directory, 'hospital_2', 3),
        home_policy(directory, 1, 0.3),
    ):
        policies.registry.receive(message, 0.0)
    policies.assess_next()
    spin_until(process, lambda: len(estimates(process)) == 4)
    return process


def estimates(process):
    """Return the candidates of which every one is valued, by name."""
    found = {each.name: each.value for each in process.node.loop.selector.candidates}
    return found if all(found.values()) else {}


def test_candidates_act_by_their_values_until_all_are_valued_for_another_robot(
    configured, directory, monkeypatch
):
    tried, seen, known = [], [], set()

    def value(policy, plan, start, at_robot, *rest):
        far = [each.digest for each in at_robot] == [moved.digest]
        tried.append((policy.digest if policy else HOLD, far))
        if far and tried.count(tried[-1]) == 1 and (not policy or policy.digest in known):
            raise LastingError('it has 3 layers')
        return good_value(policy)

    moved, near = (home_policy(directory, number, off) for number, off in ((2, 0.6), (3, 0.65)))
    process = robot_at_home(configured, directory, value)
    policies, registry = process.node.policies, process.node.policies.registry
    before = estimates(process)
    assert list(before) == ['global', 'home', 'hospital_2', HOLD]
    assert {far for _, far in tried} == {False} and len(tried) == 4, 'all are tested before'
    known.update(each.policy.digest for each in registry.versions)

    def time_of(policy):
        # A busy machine: who is a candidate already is not timed anew.
        return DecisionTime(0.4, 0.5) if policy.digest in known else DecisionTime(1e-5, 2e-5)

    monkeypatch.setattr(candidate_updates, 'decision_time', time_of)
    home = registry.receive(moved, 0.0)
    policies.assess_next()
    set_candidates = process.node.loop.selector.set_candidates
    monkeypatch.setattr(
        process.node.loop.selector,
        'set_candidates',
        lambda each: set_candidates(seen.append(each) or each),
    )
    spin_until(process, lambda: registry.status(home, policies.supervision) == 'candidate')
    *earlier, last = seen
    assert all({x.name: x.value for x in each} == before for each in earlier) and earlier
    assert [each.name for each in last] == list(before)
    assert not {id(each.value) for each in last} & {id(each) for each in before.values()}
    # Each that was a candidate failed once, as if for good, and was tried again.
    assert Counter(far for _, far in tried) == {False: 4, True: 7}
    assert not any(each.refusal for each in registry.versions)
    assert not policies.problem

    count = len(tried)
    registry.receive(near, 0.0)
    policies.assess_next()
    spin_until(process, lambda: len(tried) > count)
    spin_a_while(process)
    assert tried[count:] == [(near.digest, True)], 'a small step: the others keep their values'


def test_a_home_policy_that_fails_its_test_changes_no_candidate(configured, directory):
    def tested(policy, plan, *rest):
        return report_on(policy, basis=basis(plan), finite=policy.digest != bad.digest)

    bad = home_policy(directory, 2, 0.6)
    process = robot_at_home(configured, directory, good_value, tested)
    policies, before = process.node.policies, estimates(process)
    version = policies.registry.receive(bad, 0.0)
    policies.assess_next()
    spin_until(process, lambda: version.refusal)
    spin_a_while(process)
    assert estimates(process) == before
    assert policies.registry.pending(policies.supervision) is None
    assert 'refused' in policies.problem


def test_policies_are_checked_beside_the_control_loop_and_only_so_many_wait(
    configured, directory, monkeypatch
):
    process = configured()
    node = process.node
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    policies, threads, go_on = node.policies, [], threading.Event()
    registry = policies.registry
    check = registry.check

    def wait_and_check(message):
        threads.append(threading.current_thread())
        assert go_on.wait(20.0)
        return check(message)

    monkeypatch.setattr(registry, 'check', wait_and_check)
    take = policies._policy_receiver(GlobalPolicy)
    for number in range(1, candidate_updates.CHECKED + 2):
        take(to_ros(global_policy(directory, number), ros.GlobalPolicy()), None)
    assert policies.refused == 1 and not registry.versions
    go_on.set()
    spin_until(process, lambda: len(threads) == candidate_updates.CHECKED)
    newest = candidate_updates.CHECKED
    spin_until(process, lambda: [each.round for each in registry.versions][:1] == [newest])
    assert threading.current_thread() not in threads
    forged = replace(global_policy(directory, 99), digest=bytes(32))
    take(to_ros(forged, ros.GlobalPolicy()), None)
    spin_until(process, lambda: policies.refused == 2)
    assert node.fault is None


def test_a_robot_tests_values_and_runs_policies_in_onnx(configured, directory):
    layout = Layout(directory)
    layout.graph.write_bytes(dueling_graph(Plan.read(layout.plan).network))
    # In processes of their own.
    process = configured(policy_assessment.valued, policy_assessment.tested)
    node = process.node
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    version = node.policies.registry.receive(global_policy(directory, 1), 0.0)
    node.policies.assess_next()
    registry = node.policies.registry
    spin_until(
        process, lambda: registry.ready(version) or version.refusal or node.policies.problem
    )
    assert not version.refusal and not node.policies.problem
    chosen, _ = node.loop.selector.candidates
    assert chosen.name == 'global' and isinstance(chosen.policy, OnnxPolicy)
    assert 0.0 < version.decision.median < 0.01
    assert version.report.finite and version.digest in registry.values.models


@pytest.mark.parametrize('restarted', [False, True])
def test_a_policy_that_is_too_slow_is_refused_and_another_stands(
    configured, directory, monkeypatch, restarted
):
    process = configured()
    node = process.node
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    slow = global_policy(directory, 1)

    def time_of(policy):
        late = policy.digest == slow.digest
        return DecisionTime(0.4, 0.5) if late else DecisionTime(1e-5, 2e-5)

    if not restarted:
        monkeypatch.setattr(candidate_updates, 'decision_time', time_of)
    policies = node.policies
    for message in (slow, own_policy(directory, 'hospital_1', 2)):
        version = policies.registry.receive(message, 0.0)
        policies.files.save(version)
    policies.assess_next()
    registry, versions = policies.registry, policies.registry.versions
    spin_until(process, lambda: all(registry.ready(x) or x.refusal for x in versions))
    if restarted:
        for each in versions:
            policies.files.save_report(each.report)
            settings, model = registry.values.fitted_with, good_value(each.policy)
            policies.files.save_model(each.digest, model.to_bytes(), settings)
        monkeypatch.setattr(candidate_updates, 'decision_time', time_of)
        assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    assert [each.name for each in node.loop.selector.candidates] == ['hospital_1', HOLD]
    refused, good = policies.policies_message().policies
    assert (refused.status, good.status) == ('refused', 'candidate')
    assert 'an action takes 400 ms here' in refused.reason
    assert good.decision_time == 2e-5 and math.isnan(refused.decision_time)
    assert node.fault is None


def cannot_be():
    raise LastingError('RecordsError: 2 cases: expected at least 3')


def of_another_state():
    return constant_value(0.0, policy=HOLD, size=3)


@pytest.mark.parametrize(
    ('found', 'words'),
    [(cannot_be, 'expected at least 3'), (of_another_state, 'takes 3 numbers')],
)
def test_without_a_value_of_holding_nothing_is_valued_and_the_control_loop_runs(
    configured, directory, found, words
):
    tried = []
    process = configured(lambda policy, *rest: tried.append(policy) or found())
    node = process.node
    keep_valued(node.policies, global_policy(directory))
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    spin_until(process, lambda: node.policies.problem)
    spin_a_while(process)
    assert tried == [None] and words in node.policies.problem
    assert node.fault is None and node.state_name == 'active'
    assert [each.name for each in node.loop.selector.candidates] == ['global', HOLD]


def test_lost_value_of_holding_is_found_out_anew_though_every_policy_is_valued(
    configured, directory
):
    tried = []

    def value(policy, *rest):
        tried.append(policy)
        if len(tried) == 1:
            raise OSError('no space left')
        return good_value(policy)

    process = configured(value)
    node = process.node
    keep_valued(node.policies, global_policy(directory)).write_bytes(b'damaged')
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    policies, selector = node.policies, node.loop.selector
    assert [each.name for each in selector.candidates] == ['global', HOLD]
    assert policies.registry.pending(policies.supervision) is None
    assert selector.candidates[-1].value is None
    spin_until(process, lambda: policies.problem)
    spin_until(process, lambda: selector.candidates[-1].value)
    spin_a_while(process)
    assert selector.candidates[-1].value.policy == HOLD
    assert tried == [None, None] and not policies.problem


def keep_valued(policies, message):
    """Have a good policy on the disk, with all that was found of it; return where hold's is."""
    files, plan = policies.files, policies.plan
    registry = PolicyRegistry(policies.roster, policies.plan.network)
    version = registry.receive(message, 0.0)
    files.save(version)
    files.save_report(passing(version.policy, plan))
    settings = fitted_with(plan, policies._start, [version.policy])
    files.save_model(version.digest, good_value(version.policy).to_bytes(), settings)
    return files.model(HOLD, settings)


def fail_for_good(reason):
    raise LastingError(reason)


def test_what_lasts_is_told_by_the_process_that_computes(directory, tmp_path, monkeypatch):
    with pytest.raises(LastingError, match='not now, not later'):
        run_elsewhere(fail_for_good, ('not now, not later',), lambda: False)

    def fit(*rest):
        raise PolicyError('it has 3 layers')

    monkeypatch.setattr(public_value.PublicValuation, 'value_model', fit)
    plan = Plan.load(Layout(directory).plan)
    start = plan.network.policy(near_start(directory, 0))
    with pytest.raises(LastingError, match='PolicyError: it has 3 layers'):
        policy_assessment.find_model(None, plan, start, [])
    monkeypatch.setattr(policy_assessment, 'safety_report', fit)
    monkeypatch.setattr(policy_assessment, 'frozen_set', lambda *rest: None)
    with pytest.raises(LastingError, match='PolicyError: it has 3 layers'):
        policy_assessment.find_report(start, plan, tmp_path)


def test_interrupt_of_the_whole_group_ends_the_valuing_quietly(room, settings, directory):
    publish = room.node.create_publisher
    policy = publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(to_ros(global_policy(directory), ros.GlobalPolicy()))
    spec = robot_graph(settings, 'robot_1')[1]
    node = subprocess.Popen(
        command(spec),
        env={**os.environ, **environment(settings, spec.domain)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        room.wait(lambda: computing(node.pid))
        os.killpg(node.pid, signal.SIGINT)
        said, _ = node.communicate(timeout=20.0)
    finally:
        node.kill()
    assert node.returncode == 0, said
    assert 'Traceback' not in said and 'could not be valued' not in said, said


def computing(pid: int) -> bool:
    """Tell whether a process has one of its own that values a policy."""
    words = [
        Path(f'/proc/{child}/cmdline').read_bytes()
        for task in Path(f'/proc/{pid}/task').iterdir()
        for child in (task / 'children').read_text().split()
    ]
    return any(b'spawn_main' in each for each in words)
