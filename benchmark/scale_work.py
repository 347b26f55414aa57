# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One measurement of a large federation in a process of its own: run by scale.py.

    python benchmark/scale_work.py round|flower|hospital HOSPITALS NEIGHBOURS
    python benchmark/scale_work.py ray HOSPITALS CORES
    python benchmark/scale_work.py local|zenoh ROUNDS
    python benchmark/scale_work.py wire BYTES TIMES

It prints what it measured as JSON: wall seconds, processor seconds, and the most memory, MB; of
one hospital the bytes that it sent and received.
"""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, UTC
import json
from pathlib import Path
from queue import Empty, Queue
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarking import peak, quiet
import crypto_flower
from crypto_work import parameters, SEED, threshold, Updates
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_records
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.experiments.ray_federation import RayEngine
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.training import train_federation
from fdrl_ros.federation.journal.journal import FILE, read
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.policy import NetworkShape
import numpy as np

SHAPE = NetworkShape(26, 15, (64, 64))
"""A network of 6,928 weights."""
LAYERS = (26, 64, 64, 16)
"""The same as Flower has it: a value and 15 advantages."""

SMALL = {
    'federation': {'noise': 'seeded', 'procedures': 'palpation, retraction'},
    'learner': {'epochs': 1},
    'home': {'epochs': 0},
    'privacy': {'batch': 4, 'budget': 1e6},
    'collection': {'patients': 8},
    'pretraining': {'patients': 4, 'steps': 20, 'batch': 256},
    'validation': {'patients': 2, 'margin': 1.0},
    'evaluation': {'workers': 1},
    'world': {'mode': 'kinematic', 'horizon': 10},
}
"""A plan whose rounds are nearly all protocol; its network is the default one."""

TIMES = 3
"""How often one hospital's part is played."""

RAY_ROUNDS = 3
"""Rounds on several cores, of which the first is not counted."""

LONGEST = 120.0
"""Longest wait for the rounds over links, second."""

Found = dict[str, float]


def timed(work: Callable[[], object]) -> Found:
    """Do some work once and measure it."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    spent = time.process_time() - processor
    return {'wall': time.perf_counter() - wall, 'cpu': spent, 'mb': peak()}


def round_of(hospitals: int, neighbours: int) -> Found:
    """
    Play the second round of a federation, all parties in this process, one after the other.

    :param neighbours: with how many others each masks; 0: with all.
    :raises RuntimeError: if a message was refused, or the policy is not FedAvg's.
    """
    start = SHAPE.draw(np.random.default_rng(SEED))
    step = np.random.default_rng(SEED).uniform(-0.05, 0.05, start.size).astype(np.float32)
    learners = {
        f'hospital_{each + 1}': PlainLearner(
            lambda weights, _: weights + step, n_units=500, seed=each
        )
        for each in range(hospitals)
    }
    federation = VirtualFederation(learners, start, SHAPE.layout, neighbours=neighbours)
    federation.play()
    found = timed(federation.play)
    if refused := federation.driver.refused:
        raise RuntimeError(f'refused: {refused[0]}')
    if not np.allclose(federation.weights, start + 2 * step, rtol=0, atol=1e-4):
        raise RuntimeError('the policy is not the mean of what was learned')
    return found


def flower(hospitals: int, neighbours: int) -> Found:
    """Play a round of Flower's secure aggregation, with as many others for each hospital."""
    updates = Updates.alike(parameters(LAYERS), hospitals)
    shares = {'shares': neighbours + 1, 'needed': threshold(neighbours + 1)} if neighbours else {}
    with quiet():
        return timed(crypto_flower.Flower(updates, layers=LAYERS, **shares).run)


def hospital(hospitals: int, neighbours: int) -> Found:
    """Play one hospital's part of a round, the fastest of three times."""
    from scale_hospital import OneHospital

    played = [OneHospital(SHAPE, hospitals, neighbours) for _ in range(TIMES)]
    for each in played:
        each.play()
    best = min(played, key=lambda each: each.seconds)
    return {'cpu': best.seconds, 'sent': best.sent, 'received': best.received}


def _prepared(folder: Path, rounds: int) -> tuple[Layout, Plan]:
    """Make a directory of three hospitals with their records."""
    plan = Plan().changed({**SMALL, 'rounds': {'rounds': rounds}})
    layout = prepare(folder / 'federation', plan)
    for name in plan.hospitals:
        open_records(layout, name, plan)
    return layout, plan


def _round_seconds(layout: Layout) -> float:
    """Return the mean time from one policy to the next, without the first round."""
    moments = [
        datetime.fromisoformat(each.time)
        for each in read(layout.party('key_authority') / FILE)
        if each.kind == 'release' and each.round
    ]
    return (moments[-1] - moments[0]).total_seconds() / (len(moments) - 1)


def local(rounds: int) -> Found:
    """Play rounds of three hospitals with their files on the disk, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        layout, plan = _prepared(Path(folder), rounds)
        (policies := Path(folder) / 'policies').mkdir()
        train_federation(layout, plan, policies)
        return {'wall': _round_seconds(layout)}


def ray(hospitals: int, cores: int) -> Found:
    """
    Play rounds of a federation whose hospitals work side by side, with their files on the disk.

    :returns: wall seconds, without the first round.
    """
    settings = {
        **SMALL,
        'federation': {**SMALL['federation'], 'hospitals': hospitals},
        'rounds': {'rounds': RAY_ROUNDS},
    }
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan().changed(settings)
        layout, _ = run_training(Path(folder), plan, engine=RayEngine(cores))
        return {'wall': _round_seconds(layout)}


def zenoh(rounds: int) -> Found:
    """
    Play the same over links: each party in a process of its own, and a router in this one.

    :raises RuntimeError: if they are not done in time.
    """
    from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
    from fdrl_ros.deployment.link.transport import free_port, open_router

    with tempfile.TemporaryDirectory() as folder:
        layout, plan = _prepared(Path(folder), rounds)
        make_links(layout, ['127.0.0.1'], datetime.now(UTC), 1)
        place = f'tls/127.0.0.1:{free_port()}'
        words = [sys.executable, '-P', '-m', 'fdrl_ros.deployment.link', str(layout.directory)]
        names = ('aggregator', 'key_authority', *plan.hospitals)
        with open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), place):
            with (Path(folder) / 'log').open('wb') as log:
                parties = [
                    subprocess.Popen([*words, name, place], stdout=log, stderr=log)
                    for name in names
                ]
            try:
                _wait_for(layout, rounds)
            finally:
                for each in parties:
                    each.send_signal(signal.SIGINT)
                for each in parties:
                    each.wait()
        return {'wall': _round_seconds(layout)}


def wire(size: int, times: int) -> Found:
    """
    Carry so many bytes from a party over a router to another one, again and again.

    Router and parties are sessions of this process, with mutual TLS and access control.

    :raises RuntimeError: if something does not arrive.
    """
    from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
    from fdrl_ros.deployment.link.transport import free_port, open_client, open_router

    arrived: Queue[int] = Queue()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        layout = prepare(folder / 'federation', Plan().changed(SMALL))
        make_links(layout, ['127.0.0.1'], datetime.now(UTC), 1)
        place = f'tls/127.0.0.1:{free_port()}'
        stack.enter_context(open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), place))
        sender, receiver = (
            stack.enter_context(open_client(LinkFiles(layout.keys, name), place))
            for name in ('hospital_1', 'aggregator')
        )
        prefix = f'fdrl/{layout.roster().federation}'
        receiver.listen([f'{prefix}/*/RoundKey'], lambda _, data: arrived.put(len(data)))

        def carried(data: bytes, patience: float) -> bool:
            sender.put(f'{prefix}/hospital_1/RoundKey', data)
            try:
                while arrived.get(timeout=patience) != len(data):
                    pass
            except Empty:
                return False
            return True

        if not any(carried(b'first', 0.1) for _ in range(100)):  # the router learns who listens
            raise RuntimeError('nothing arrives over the link')
        found, payload = [], b'x' * size
        for _ in range(times):
            begun = time.perf_counter()
            if not carried(payload, LONGEST):
                raise RuntimeError(f'{size} bytes did not arrive')
            found.append(time.perf_counter() - begun)
        return {'median': statistics.median(found), 'min': min(found), 'max': max(found)}


def _wait_for(layout: Layout, rounds: int) -> None:
    """Wait until a round's policy is released."""
    path, end = layout.party('key_authority') / FILE, time.monotonic() + LONGEST
    while time.monotonic() < end:
        if path.exists() and any(
            each.kind == 'release' and each.round == rounds for each in read(path)
        ):
            return
        time.sleep(0.2)
    raise RuntimeError(f'{rounds} rounds over links took more than {LONGEST:g} s')


MEASURED: dict[str, Callable[..., Found]] = {
    'round': round_of,
    'flower': flower,
    'hospital': hospital,
    'ray': ray,
    'local': local,
    'zenoh': zenoh,
    'wire': wire,
}


def main() -> None:
    """Measure what the command line names."""
    what, *numbers = sys.argv[1:]
    print(json.dumps(MEASURED[what](*map(int, numbers))))


if __name__ == '__main__':
    main()
