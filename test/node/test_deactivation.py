# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A selector that is deactivated while the disk is slow: answers, and no old word after a new."""

import os
import signal
import threading
import time
from types import SimpleNamespace

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import FdrlError, StoreBusyError, StoreError
from fdrl_ros.nodes.common.deferred_answer import _Service
from fdrl_ros.nodes.common.managed_node import run_node
from fdrl_ros.nodes.robot import candidate_updates
from fdrl_ros.nodes.robot import supervision_queue as word_module
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.selector.candidates.supervision import (
    load_supervision,
    Supervision,
    SUPERVISION_FILE,
)
from fdrl_ros.srv import Supervise
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from support.hand_back import hand_back
from support.node_process import Process
from support.operating_room import Room


class Disk:
    """A disk that writes a surgeon's word when it is allowed to."""

    def __init__(self, write) -> None:
        self.asked, self.ready = threading.Event(), threading.Event()
        self._write = write

    def save(self, path, supervision) -> None:
        self.asked.set()
        assert self.ready.wait(60.0)
        self._write(path, supervision)


class Theatre:
    """A selector in this process, somebody who gives orders, and a disk."""

    def __init__(self, directory, domain: int, disk: Disk) -> None:
        self.directory, self.disk, self.room = directory, disk, Room(domain)
        self.process = Process('/robot_1/selector', directory, domain)
        self.node = self.process.node
        self.client = self.room.node.create_client(Supervise, 'selector/supervise')

    def order(self, command: str):
        """Give an order; a hand-back may leave before the node has taken the take-over."""
        request = Supervise.Request(command=command)
        return self.client.call_async(
            hand_back(self.directory, ahead=5.0) if command == 'hand_back' else request
        )

    def waiting(self) -> int:
        """Return how many orders wait for the disk, the first of them under way."""
        return len(self.node.policies._queue._requests) if self.disk.asked.is_set() else 0

    def until(self, condition) -> None:
        deadline = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < deadline
            self.process.spin(0.01)
            self.room.executor.spin_once(timeout_sec=0.01)

    def close(self) -> None:
        self.disk.ready.set()
        self.process.close()
        self.room.close()


@pytest.fixture
def theatre(directory, lone_domain, monkeypatch):
    disk = Disk(word_module.save_supervision)
    monkeypatch.setattr(word_module, 'save_supervision', disk.save)
    monkeypatch.setattr(candidate_updates, 'PATIENCE', 0.1)
    made = Theatre(directory, lone_domain, disk)
    yield made
    made.close()


def test_who_waits_is_answered_and_no_old_word_is_written_after_a_new_one(theatre, directory):
    node, file = theatre.node, Layout(directory).party('robot_1') / SUPERVISION_FILE
    node.trigger_configure()
    theatre.until(theatre.client.service_is_ready)
    early = theatre.order('take_over')
    theatre.until(early.done)
    assert not early.result().success and 'not active' in early.result().message

    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    orders = [theatre.order('unlock')]
    theatre.until(lambda: orders[0].done())
    orders += [theatre.order(each) for each in ('take_over', 'hand_back')]
    theatre.until(lambda: theatre.waiting() == 2)
    assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
    theatre.until(lambda: all(each.done() for each in orders))
    unlocked, taken, handed = [each.result() for each in orders]
    assert unlocked.success, 'it changes nothing'
    assert not taken.success and 'a restart may undo it' in taken.message
    assert not handed.success and 'nothing has changed' in handed.message

    assert node.trigger_activate() == TransitionCallbackReturn.FAILURE
    assert isinstance(node.fault, StoreBusyError) and 'still on its way' in str(node.fault)
    with pytest.raises(StoreBusyError):
        node.policies.files.lock()
    theatre.disk.ready.set()

    def again() -> bool:
        return node.trigger_activate() == TransitionCallbackReturn.SUCCESS

    theatre.until(again)
    assert node.policies.supervision == load_supervision(file) == Supervision(surgeon=True)
    last = theatre.order('hand_back')
    theatre.until(last.done)
    assert last.result().success and load_supervision(file) == Supervision()


def test_who_waits_when_the_node_has_a_fault_is_answered(theatre):
    node = theatre.node
    node.trigger_configure()
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    theatre.until(theatre.client.service_is_ready)
    orders = [theatre.order(each) for each in ('take_over', 'hand_back')]
    theatre.until(lambda: theatre.waiting() == 2)
    node.fail(FdrlError('a fault in the control loop'))
    theatre.until(lambda: all(each.done() for each in orders))
    taken, handed = [each.result() for each in orders]
    assert not taken.success and 'a restart may undo it' in taken.message
    assert not handed.success and 'nothing has changed' in handed.message
    theatre.until(lambda: node.state_name == 'unconfigured')
    theatre.until(lambda: not theatre.client.service_is_ready())


def test_a_request_to_a_node_with_a_fault_is_answered_once_and_the_service_ends_after_it():
    sent, posted, destroyed = [], [], []
    made = SimpleNamespace(send_response=lambda *answer: sent.append(answer))
    node = SimpleNamespace(
        fault=None,
        post=posted.append,
        create_service=lambda kind, name, callback: made,
        destroy_service=destroyed.append,
    )

    def fail(request, answered):
        node.fault = FdrlError('a fault in the control loop')

    service = _Service(node, fail)
    service.serve(Supervise, 'supervise')
    made.send_response(service._take(None, Supervise.Response()), 'header')
    ((response, header),) = sent
    assert header == 'header' and not response.success and 'fault' in response.message
    assert not destroyed
    service.close()
    assert destroyed == [made] and len(posted) == 1


def test_who_waits_when_the_deactivation_fails_is_answered(theatre, monkeypatch):
    def fail(path, supervision):
        raise StoreError('no space left')

    node = theatre.node
    node.trigger_configure()
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    theatre.until(theatre.client.service_is_ready)
    order = theatre.order('take_over')
    theatre.until(lambda: theatre.waiting() == 1)
    monkeypatch.setattr(candidate_updates, 'PATIENCE', 20.0)
    monkeypatch.setattr(theatre.disk, '_write', fail)
    theatre.disk.ready.set()
    node.trigger_deactivate()
    assert node.state_name == 'unconfigured' and node.fault is not None
    theatre.until(order.done)
    assert not order.result().success and 'no space left' in order.result().message
    theatre.until(lambda: not theatre.client.service_is_ready())


def test_who_waits_when_the_process_is_told_to_stop_is_answered(
    directory, lone_domain, monkeypatch
):
    disk, answers = Disk(word_module.save_supervision), []
    monkeypatch.setattr(word_module, 'save_supervision', disk.save)
    monkeypatch.setattr(candidate_updates, 'PATIENCE', 0.1)
    monkeypatch.setenv('ROS_DOMAIN_ID', str(lone_domain))
    ended = threading.Event()

    def surgeon() -> None:
        room = Room(lone_domain)
        try:
            client = room.node.create_client(Supervise, 'selector/supervise')
            client.wait_for_service(20.0)
            asked = client.call_async(Supervise.Request(command='take_over'))
            try:
                room.wait(disk.asked.is_set)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
            room.wait(asked.done)
            answers.append(asked.result())
        finally:
            room.close()
            ended.set()

    handlers = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)]
    threading.Thread(target=surgeon, daemon=True).start()
    words = ['--ros-args', '-r', '__ns:=/robot_1', '-p', f'directory:={directory}']
    try:
        assert run_node(SelectorNode, words) == 0
    finally:
        disk.ready.set()
        for number, handler in handlers:
            signal.signal(number, handler)
    assert ended.wait(30.0)
    assert not answers[0].success and 'a restart may undo it' in answers[0].message
