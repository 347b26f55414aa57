# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What servers tell Prometheus, read back as Prometheus reads it."""

from dataclasses import fields
import socket
from urllib.request import urlopen

from fdrl_ros.deployment.parties.server_metrics import ServerMetrics
from fdrl_ros.errors import FdrlError
from fdrl_ros.federation.protocol.message import (
    Envelope,
    GlobalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    RoundStatus,
)
import pytest

parser = pytest.importorskip('prometheus_client.parser')


def made(kind: type[Message], round: int, sender: str = 'aggregator', **own: object) -> Message:
    """Return a message with empty fields but for some."""
    envelope = Envelope(
        **{
            each.name: {'round': round, 'attempt': 2, 'sender': sender}.get(
                each.name, b'' if each.type == 'bytes' else 0
            )
            for each in fields(Envelope)
        }
    )
    blank = {each.name: None for each in fields(kind)}
    return kind(**{**blank, 'envelope': envelope, **own})


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Read the text format: by name and values of labels."""
    return {
        (each.name, *each.labels.values()): each.value
        for family in parser.text_string_to_metric_families(text)
        for each in family.samples
    }


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return int(found.getsockname()[1])


def test_rounds_phases_and_bytes_are_read_back_over_http(port: int) -> None:
    now = [10.0]
    metrics = ServerMetrics(lambda: now[0])
    own = {'keyed': b'', 'keys_digest': b'', 'time_left': 0.0, 'reason': ''}
    members = b'\x07'
    for phase, survivors, at in ((Phase.TRAIN, b'', 12.0), (Phase.SUM, b'\x03', 15.5)):
        now[0] = at
        status = made(RoundStatus, 3, phase=phase, members=members, survivors=survivors, **own)
        metrics.note(status)
    for _ in range(2):
        metrics.note(made(MaskedUpdate, 3, 'hospital_1', ciphertext=bytes(700)))
    metrics.note(made(GlobalPolicy, 3, 'key_authority', rolled_back=True))
    metrics.note_epsilon('hospital_1', 'patient', 2.5)
    metrics.note_state({'a signature': 4}, {'sum': 0.25}, {'hospital_3': 'silent'})
    close = metrics.serve(port, '127.0.0.1')
    try:
        with urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5) as answer:
            found = samples(answer.read().decode())
        with pytest.raises(FdrlError, match=f'metrics_port {port} at 127.0.0.1 cannot be used'):
            ServerMetrics().serve(port, '127.0.0.1')
    finally:
        close()
    expected = {
        ('fdrl_round',): 3,
        ('fdrl_attempt',): 2,
        ('fdrl_phase', 'SUM'): 1,
        ('fdrl_phase', 'TRAIN'): 0,
        ('fdrl_phase_seconds_total', 'WAITING'): 2.0,
        ('fdrl_phase_seconds_total', 'TRAIN'): 3.5,
        ('fdrl_members',): 3,
        ('fdrl_survivors',): 2,
        ('fdrl_update_bytes_total', 'hospital_1'): 1400,
        ('fdrl_released_total', 'rolled_back'): 1,
        ('fdrl_epsilon', 'hospital_1', 'patient'): 2.5,
        ('fdrl_refused', 'a signature'): 4,
        ('fdrl_job_seconds', 'sum'): 0.25,
        ('fdrl_left_out', 'hospital_3'): 1,
    }
    assert {name: found.get(name) for name in expected} == expected
    metrics.note_state({}, {})  # it takes part again
    library = pytest.importorskip('prometheus_client')
    again = samples(library.generate_latest(metrics.registry).decode())
    assert not any(name[0] == 'fdrl_left_out' for name in again)
    with pytest.raises(OSError, match='refused'):
        urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5)
