# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a round costs one hospital among thousands: the real party, and what it would receive.

Its peers' keys, shares and signatures are real. The other hospitals are names in the roster, with
made-up keys below the root that all agree on; nobody drops out. Every message is read from the
bytes that would come, and its signature checked. Training is a known step, which is not counted.
"""

from collections.abc import Callable
import gc
import os
import time
from typing import Any

from crypto_work import SEED
from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.share_sealing import (
    deal,
    KeyList,
    MemberKeys,
    own_keys,
    PARCEL_BYTES,
    seal_pair,
    tree_of_keys,
)
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import (
    settle_digest,
    setup_digest,
    tree_of_updates,
)
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import Message, message_from_bytes, Phase
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import open_key
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.policy import digest_of, encode_weights, NetworkShape
import numpy as np

MINE, AGGREGATOR, AUTHORITY = 'hospital_1', 'aggregator', 'key_authority'
ATTEMPT = (1, 0)
"""Round and attempt."""


class Alone(VirtualFederation):
    """A federation of which only one hospital and the key authority are there."""

    def join(self, name: str) -> None:
        """Put together those two."""
        if name in (MINE, AUTHORITY):
            self.parties[name] = self.make(name)


class OneHospital:
    """
    One hospital in a round.

    :param shape: of the network.
    :param hospitals: how many there are.
    :param neighbours: with how many of them each masks.
    """

    def __init__(self, shape: NetworkShape, hospitals: int, neighbours: int) -> None:
        start = shape.draw(np.random.default_rng(SEED))
        learners = {
            f'hospital_{each + 1}': PlainLearner(
                lambda weights, _: weights + np.float32(0.01), n_units=500
            )
            for each in range(hospitals)
        }
        self._federation = Alone(learners, start, shape.layout, neighbours=neighbours)
        self._roster = self._federation.roster
        party = self._federation.parties[MINE]
        assert isinstance(party, Hospital)
        self._party, self._start = party, start
        self._names = tuple(sorted(learners))
        self._channels: dict[str, Channel] = {}
        self.seconds, self.sent, self.received = 0.0, 0, 0
        self.said: list[Message] = []
        """What the hospital sent, in order."""

    def play(self) -> None:
        """
        Play a round, from the status that opens it to the policy.

        The ring of the roster is known before, as from the second round on, and the collection of
        garbage does not look at the others of this benchmark.

        :raises RuntimeError: if the hospital did not do its part.
        """
        released = [*self._federation.parties[AUTHORITY].start(0.0).messages]
        for each in released:
            if getattr(each, 'to', MINE) == MINE:
                self._give(each)
        [key] = [each for each in released if isinstance(each, protocol.EncryptionKey)]
        [policy] = [each for each in released if isinstance(each, protocol.GlobalPolicy)]
        self._terms = open_key(key).digest(policy.digest, self._roster)
        self._policy = policy.digest
        self._give(self._say(AGGREGATOR, protocol.LedgerHeads, to=MINE, head=b'', path=b''))
        _ = self._roster.neighbourhoods.witnesses
        gc.collect()
        gc.freeze()
        self.seconds, self.sent, self.received = 0.0, 0, 0  # that was before the round
        self._status(Phase.OPEN, members=self._names)
        own = self._last(protocol.RoundKey)
        lists = self._exchange_keys(own)
        self._exchange_shares(lists)
        self._status(Phase.TRAIN, members=self._names)
        chunks = self._last(protocol.MaskedUpdate).chunks
        there = sum(isinstance(each, protocol.MaskedUpdate) for each in self.said)
        if there < chunks:
            self._give(
                self._say(AGGREGATOR, protocol.Wanted, to=MINE, first=there, count=chunks - there)
            )
        self._status(Phase.SKETCH, members=self._names, nonce=os.urandom(32))
        self._last(protocol.Sketch)
        setup = setup_digest(lists[MINE], self._names)
        settled = settle_digest(setup, self._names)
        self._status(Phase.SETTLE, members=self._names, survivors=self._names)
        graph = self._roster.neighbourhoods
        others = sorted(graph.witnesses - {MINE})
        self._settle(others[: graph.agreeing], settled)
        self._status(Phase.REVEAL, members=self._names, survivors=self._names)
        self._settle(others[graph.agreeing :], settled)
        self._last(protocol.Reveal)
        self._release()

    def _settle(self, names: list[str], settled: bytes) -> None:
        """Give it what some witnesses sign."""
        for name in names:
            self._give(
                self._say(name, protocol.Settle, settle_digest=settled, update_hash=bytes(32))
            )

    def _give(self, message: Message) -> None:
        """Let the hospital read a message and do what follows from it."""
        data = message.to_bytes()
        self.received += len(data)
        effects = self._timed(lambda: self._party.handle(message_from_bytes(data), 0.0))
        self._follow(effects)

    def _follow(self, effects: Effects) -> None:
        for each in effects.messages:
            self.said.append(each)
            self.sent += len(self._timed(each.to_bytes))
        for job in effects.jobs:
            done: list[Any] = []

            def work(job: Any = job, done: list[Any] = done) -> None:
                done.append(job.run(lambda told: None, lambda: False))

            if job.name == 'train':
                work()
            else:
                self._timed(work)
            self._follow(
                self._timed(lambda job=job, done=done: self._party.finish(job, done[0], 0.0))
            )

    def _timed(self, work: Callable[[], Any]) -> Any:
        begun = time.process_time()
        try:
            return work()
        finally:
            self.seconds += time.process_time() - begun

    def _last(self, kind: type[Any]) -> Any:
        """Return the last message of a kind that the hospital sent."""
        for each in reversed(self.said):
            if isinstance(each, kind):
                return each
        raise RuntimeError(f'the hospital sent no {kind.__name__}')

    def _say(self, name: str, kind: type[Message], **fields: Any) -> Message:
        """Sign a message of somebody else."""
        if name not in self._channels:
            store = self._federation.stores.get(name) or Store()
            self._channels[name] = self._federation.channel(name, store)
        return self._channels[name].sign(kind, *ATTEMPT, **fields)

    def _status(self, phase: Phase, nonce: bytes = b'', **lists: tuple[str, ...]) -> None:
        """Give the hospital a status of the round."""
        keyed = () if phase is Phase.OPEN else self._names
        marks = self._roster.neighbourhoods.marks
        told = {'members': (), 'survivors': (), 'keyed': keyed, **lists}
        keys = b'' if phase is Phase.OPEN else self._keys
        self._give(
            self._say(
                AGGREGATOR,
                protocol.RoundStatus,
                **{what: marks(names) for what, names in told.items()},
                nonce=nonce,
                phase=int(phase),
                time_left=60.0,
                policy_digest=self._policy,
                roster_digest=self._roster.digest_bytes,
                terms_digest=self._terms,
                keys_digest=keys,
                reason='',
            )
        )

    def _exchange_keys(self, own: protocol.RoundKey) -> dict[str, KeyList]:
        """Give it the keys of its peers; return what each of these and it knows."""
        graph = self._roster.neighbourhoods
        peers = graph.peers(MINE)
        federation = self._federation.federation
        self._secrets = {
            name: RoundSeeds(None, federation=federation, name=name).of(1).attempt(0)
            for name in peers
        }
        known = {name: own_keys(each, graph) for name, each in self._secrets.items()}
        known[MINE] = own.member_keys
        alike = MemberKeys(*(os.urandom(32 * graph.degree) for _ in range(2)), os.urandom(32))
        _ = alike.root
        self._keys, paths = tree_of_keys({name: known.get(name, alike) for name in self._names})
        messages, pairs, below = [], [], []
        for name in peers:
            keys, place = known[name], graph.place(name, MINE)
            signed = self._say(
                name,
                protocol.RoundKey,
                keys_root=keys.root,
                mask_keys=keys.mask,
                sealing_keys=keys.sealing,
                seed_hash=keys.seed_hash,
                release=False,
            )
            messages.append(signed.bare())
            pairs.append(keys.pair(place))
            below.append(keys.tree[1][place])
        self._give(
            self._say(
                AGGREGATOR,
                protocol.PeerKeys,
                to=MINE,
                keys=tuple(messages),
                pairs=b''.join(pairs),
                paths=b''.join(below),
                own_path=paths[MINE],
            )
        )
        self._status(Phase.SHARE)
        place = (federation, *ATTEMPT, graph, self._names, self._keys, self._terms)
        return {
            name: KeyList(*place, {name: known[name], MINE: known[MINE]})
            for name in (*peers, MINE)
        }

    def _exchange_shares(self, lists: dict[str, KeyList]) -> None:
        """Give it what its peers dealt to it."""
        dealt, parcels, below = [], [], []
        for name, secrets in self._secrets.items():
            keys = lists[name]
            holders = keys.holders(name)
            place = holders.index(MINE)
            sealed = seal_pair(secrets, keys, MINE, deal(secrets, keys)[MINE])
            leaves = [os.urandom(PARCEL_BYTES) for _ in holders]
            leaves[place] = sealed
            root, paths = root_and_paths(leaves)
            signed = self._say(
                name,
                protocol.Shares,
                keys_digest=keys.digest,
                parcels_root=root,
                parcels=b''.join(leaves),
            )
            dealt.append(signed.bare())
            parcels.append(sealed)
            below.append(paths[place])
        self._give(
            self._say(
                AGGREGATOR,
                protocol.Delivery,
                to=MINE,
                shares=tuple(dealt),
                parcels=b''.join(parcels),
                paths=b''.join(below),
            )
        )

    def _release(self) -> None:
        """Give it the policy of the round."""
        weights = self._start + np.float32(0.01)
        hashes = [os.urandom(32)] * len(self._names)
        hashes[self._names.index(MINE)] = self._party.state.sent(ATTEMPT).update_hash
        root, paths = tree_of_updates(self._names, b''.join(hashes))
        for server, path in ((AGGREGATOR, b''), (AUTHORITY, paths[MINE])):
            self._give(self._say(server, protocol.LedgerHeads, to=MINE, head=b'', path=path))
        self._give(
            self._say(
                AUTHORITY,
                protocol.GlobalPolicy,
                weights=encode_weights(weights),
                digest=digest_of(weights),
                contributors=self._names,
                updates_root=root,
                rolled_back=False,
                secure=False,
                reason='',
            )
        )
        assert self._party.policy is not None
        if self._party.policy.digest != digest_of(weights):
            raise RuntimeError('the hospital does not take the policy')
