# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A lying aggregator and its hospitals, who tell each honest hospital another story.

The honest hospitals are the real ones, handled one message at a time. The liar knows all that the
coalition of :mod:`coalition` knows, and keeps what its victims refused and what they noted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Unpack

from fdrl_ros.crypto.masking.merkle import path_bytes, root_and_paths
from fdrl_ros.crypto.masking.share_sealing import (
    KeyList,
    own_keys,
    PAIR_BYTES,
    PARCEL_BYTES,
    seal_shares,
    tree_of_keys,
)
from fdrl_ros.errors import CryptoError, MessageError
from fdrl_ros.federation.hospital.hospital import TAKING_PART
from fdrl_ros.federation.protocol.attempt import key_list, settle_digest, setup_digest
from fdrl_ros.federation.protocol.message import (
    AttemptId,
    Delivery,
    Envelope,
    LedgerHeads,
    Message,
    PeerKeys,
    Phase,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.protocol.update_codec import open_key
from fdrl_ros.federation.virtual import VirtualOptions
from fdrl_ros.policy import digest_of
from support.coalition import Coalition, FixedSeeds, learned
from support.federation_bench import Bench

NOTICED = ('somebody lies', 'no part in round')


@dataclass(frozen=True)
class Story:
    """
    What an honest hospital is told of an attempt.

    :param keyed: whose keys are in the list.
    :param members: whose shares arrived.
    :param survivors: whose update arrived.
    :param variant: which of the corrupt hospitals' keys it gets.
    """

    keyed: tuple[str, ...]
    members: tuple[str, ...]
    survivors: tuple[str, ...]
    variant: int = 0


class Liar:
    """
    The aggregator and the last hospitals of a federation, against the others.

    :param options: of the federation, such as how many neighbours each hospital has.
    """

    def __init__(
        self, hospitals: int, corrupt: int, seed: int, **options: Unpack[VirtualOptions]
    ) -> None:
        self.bench = Bench(None, hospitals, 9, release=False, **options)
        self.rng = Random(seed)
        self.honest = self.bench.names[: hospitals - corrupt]
        self.corrupt = self.bench.names[hospitals - corrupt :]
        self.seeds = {
            name: [FixedSeeds(name, 10 * seed + variant) for variant in range(2)]
            for name in self.corrupt
        }
        self.coalition = Coalition(self.bench.roster, self.bench.secret, {**self.seeds})
        self.said: list[Message] = []
        self.refused: list[tuple[str, MessageError]] = []
        self.notes: list[tuple[str, str]] = []
        self.lists: dict[bytes, KeyList] = {}
        self.told: dict[tuple[str, AttemptId], KeyList] = {}
        self.forge: Callable[[Delivery], Delivery] = lambda delivery: delivery
        self._heard: set[tuple[str, type[Message], str, int]] = set()
        started = self.bench.key_authority.start(0.0)
        self.key, *heads, self.policy = started.messages
        self.heads = {each.to: each for each in heads}
        self.parties: dict[str, Any] = {}
        self.restart_all()

    def restart(self, name: str) -> None:
        """Let an honest hospital begin again, with what it keeps durably."""
        self.parties[name] = self.bench.make(name)
        self._heard = {each for each in self._heard if each[0] != name}
        for each in (self.key, self.heads[name], self.policy):
            self.tell(name, self.resealed(each))

    def restart_all(self) -> None:
        """Let all honest hospitals begin again."""
        for name in self.honest:
            self.restart(name)

    def resealed(self, message: Message) -> Message:
        """Let the key authority say the same once more, as after each restart."""
        counter = self.bench.stores['key_authority'].next_counter()
        envelope = replace(message.envelope, counter=counter)
        return replace(message, envelope=envelope).signed_by(
            self.bench.identities['key_authority']
        )

    def seal(self, kind: type, sender: str, of: AttemptId, **fields: Any) -> Any:
        """Make a message that a corrupt party signs."""
        envelope = Envelope('test', *of, sender, self.bench.stores[sender].next_counter())
        return kind(envelope=envelope, **fields).signed_by(self.bench.identities[sender])

    def tell(self, name: str, message: Message) -> None:
        """Let an honest hospital hear a message, each once in a life, and do what it wants to."""
        envelope = message.envelope
        heard = name, type(message), envelope.sender, envelope.counter
        if heard in self._heard:
            return
        self._heard.add(heard)
        party = self.parties[name]
        try:
            effects: Effects = party.handle(message, 0.0)
        except MessageError as error:
            self.refused.append((name, error))
            return
        self._carry_out(name, effects)

    def _carry_out(self, name: str, effects: Effects) -> None:
        self.said += effects.messages
        self.notes += [(name, note) for note in effects.notes]
        for job in effects.jobs:
            party = self.parties[name]
            try:
                result = job.run(lambda progress: None, lambda: False)
            except CryptoError as error:
                result = error
            self._carry_out(name, party.finish(job, result, 0.0))

    @property
    def terms(self) -> bytes:
        """Digest of what all hospitals start from."""
        return open_key(self.key).digest(digest_of(self.bench.start), self.bench.roster)

    def forget_what_was_told(self) -> None:
        """Say things again that were said before."""
        self._heard.clear()

    # What it says.

    def status(self, name: str, of: AttemptId, phase: Phase, story: Story) -> None:
        """Tell a hospital where the attempt stands, by its story."""
        lists = {
            'keyed': story.keyed if phase > Phase.OPEN else (),
            'members': story.members if phase > Phase.SHARE else story.keyed,
            'survivors': story.survivors if phase > Phase.TRAIN else (),
        }
        self.tell(name, self.seal(LedgerHeads, 'aggregator', of, to=name, head=b'', path=b''))
        listed = self.told.get((name, of)) if phase > Phase.OPEN else None
        digest = listed.keys_digest if listed else b''
        self.tell(name, self.say_status(of, phase, digest, **lists))

    def say_status(
        self, of: AttemptId, phase: Phase, keys_digest: bytes = b'', **lists: tuple[str, ...]
    ) -> RoundStatus:
        """Make a status of one's own."""
        roster = self.bench.roster
        graph = roster.neighbourhoods
        status: RoundStatus = self.seal(
            RoundStatus,
            'aggregator',
            of,
            phase=int(phase),
            time_left=0.0,
            policy_digest=digest_of(self.bench.start),
            roster_digest=roster.digest_bytes,
            terms_digest=self.terms,
            nonce=b'',
            keys_digest=keys_digest,
            reason='',
            **{what: graph.marks(names) for what, names in lists.items()},
        )
        return status

    def keys_for(self, of: AttemptId, variant: int) -> dict[str, RoundKey]:
        """Return everybody's newest round keys, of the corrupt ones those of a variant."""
        keys = {m.envelope.sender: m for m in self.said if isinstance(m, RoundKey) and at(m, of)}
        keys = {name: key for name, key in keys.items() if name in self.honest}
        for name in self.corrupt:
            secrets = self.seeds[name][variant].of(of[0]).attempt(of[1])
            own = own_keys(secrets, self.bench.roster.neighbourhoods)
            keys[name] = self.seal(
                RoundKey,
                name,
                of,
                keys_root=own.root,
                mask_keys=own.mask,
                sealing_keys=own.sealing,
                seed_hash=own.seed_hash,
                release=True,
            )
            self.said.append(keys[name])
        return keys

    def run_attempt(
        self,
        of: AttemptId,
        stories: dict[str, Story] | Story,
        *,
        until: Phase = Phase.REVEAL,
        restarts: float = 0.0,
    ) -> None:
        """
        Lead each honest hospital through an attempt by its own story, or all by one.

        :param restarts: chance of each hospital, before each phase, that it begins again.
        """
        listed: dict[str, KeyList] = {}
        if isinstance(stories, Story):
            stories = dict.fromkeys(self.honest, stories)
        for phase in (each for each in TAKING_PART if each <= until):
            again = [name for name in self.honest if self.rng.random() < restarts]
            for name in again:
                self.restart(name)
            if phase is Phase.SHARE:
                for name in self.honest:
                    self._tell_keys(name, of, stories[name], listed)
            for name in again:
                if phase > Phase.SHARE:
                    self._tell_keys(name, of, stories[name], listed)
            if phase is Phase.TRAIN:
                for name, keys in listed.items():
                    self.tell(name, self.delivery(name, of, stories[name].members, keys))
            for name in self.rng.sample(self.honest, len(self.honest)):
                self.status(name, of, phase, stories[name])
            if phase >= Phase.SETTLE:
                self._tell_settles(of, stories, listed)

    def _tell_keys(
        self, name: str, of: AttemptId, story: Story, listed: dict[str, KeyList]
    ) -> None:
        keys = self.keys_for(of, story.variant)
        try:
            told = [keys[each] for each in story.keyed]
            listed[name] = key_list(self.bench.roster, told, of, self.terms)
        except (KeyError, CryptoError):
            return
        self.told[name, of] = listed[name]
        self.tell(name, self.peer_keys(name, of, listed[name], keys))
        self.lists[listed[name].digest] = listed[name]
        for variant in range(2):  # it may have heard the other before
            keys |= self.keys_for(of, variant)
            told = [keys[each] for each in story.keyed]
            self.coalition.tell(told, story.members, story.survivors, self.terms)

    def peer_keys(
        self, name: str, of: AttemptId, listed: KeyList, keys: dict[str, RoundKey]
    ) -> PeerKeys:
        """Tell a hospital the keys of a list."""
        peers = [each for each in listed.holders(name) if each != name]
        places = {each: listed.graph.place(each, name) for each in peers}
        told: PeerKeys = self.seal(
            PeerKeys,
            'aggregator',
            of,
            to=name,
            keys=tuple(keys[each].bare() for each in peers),
            pairs=b''.join(listed.keys[each].pair(places[each]) for each in peers),
            paths=b''.join(listed.keys[each].tree[1][places[each]] for each in peers),
            own_path=tree_of_keys(listed.keys)[1].get(name, b''),
        )
        assert len(told.pairs) == PAIR_BYTES * len(peers)
        return told

    def delivery(
        self, name: str, of: AttemptId, members: Iterable[str], keys: KeyList
    ) -> Delivery:
        """Hand a hospital what there is for it, and for what is missing anything."""
        senders = [each for each in keys.graph.holders(name, set(members)) if each != name]
        dealt = []
        shares = {m.envelope.sender: m for m in self.said if isinstance(m, Shares) and at(m, of)}
        for sender in senders:
            nothing = bytes(PARCEL_BYTES), bytes(path_bytes(len(keys.holders(sender))))
            made_up = Shares(Envelope('test', *of, sender, 1), keys.digest, bytes(32), b'')
            found = (made_up, *nothing)
            if sender in self.corrupt:
                for secrets in self.coalition.own(sender, of):
                    own = own_keys(secrets, keys.graph)
                    if keys.keys.get(sender) == own and name in keys.holders(sender):
                        found = self._dealt(sender, of, seal_shares(secrets, keys), keys, name)
            elif sender in shares and shares[sender].keys_digest in self.lists:
                holders = self.lists[shares[sender].keys_digest].holders(sender)
                if name in holders:
                    whole, place = shares[sender], holders.index(name)
                    parcel = whole.parcels[PARCEL_BYTES * place :][:PARCEL_BYTES]
                    found = (whole.bare(), parcel, whole.tree[1][place])
            dealt.append(found)
        delivery: Delivery = self.seal(
            Delivery,
            'aggregator',
            of,
            to=name,
            shares=tuple(each for each, _, _ in dealt),
            parcels=b''.join(parcel for _, parcel, _ in dealt),
            paths=b''.join(path for _, _, path in dealt),
        )
        return self.forge(delivery).signed_by(self.bench.identities['aggregator'])

    def _dealt(
        self, sender: str, of: AttemptId, parcels: dict[str, bytes], keys: KeyList, holder: str
    ) -> tuple[Shares, bytes, bytes]:
        """Return what a corrupt hospital deals to one holder."""
        root, paths = root_and_paths([*parcels.values()])
        signed = self.seal(
            Shares, sender, of, keys_digest=keys.digest, parcels_root=root, parcels=b''
        )
        place = keys.holders(sender).index(holder)
        return signed, parcels[holder], paths[place]

    def _tell_settles(
        self, of: AttemptId, stories: dict[str, Story], listed: dict[str, KeyList]
    ) -> None:
        """Let all hear what the others signed, and sign everybody's story oneself."""
        honest = [each for each in self.said if isinstance(each, Settle) and at(each, of)]
        for name in self.honest:
            for each in honest:
                if each.envelope.sender != name:
                    self.tell(name, each)
            if name in listed:
                setup = setup_digest(listed[name], stories[name].members)
                digest = settle_digest(setup, stories[name].survivors)
                for each in sorted({*self.corrupt} & self.bench.roster.neighbourhoods.witnesses):
                    lie = {'settle_digest': digest, 'update_hash': bytes(32)}
                    self.tell(name, self.seal(Settle, each, of, **lie))

    # What it has at the end.

    def caught(self) -> list[tuple[str, str]]:
        """Return who noticed a lie, by refusing it or by a note for people."""
        refused = [(name, str(error)) for name, error in self.refused]
        return refused + [(name, note) for name, note in self.notes if note.startswith(NOTICED)]

    def facts(self) -> list[dict[str, int]]:
        """Return all that the coalition can compute of honest updates."""
        self.coalition.heard.clear()
        self.coalition.hear(self.said)
        self.coalition.gather()
        modulus = self.bench.scheme.plain_modulus
        return [about for rows in self.coalition.rows() for about, _ in learned(rows, modulus)]


def gains_nothing(liar: Liar) -> bool:
    """
    Tell whether a liar can compute at most one sum: over the honest hospitals of one set.

    The set is one that honest hospitals revealed for.
    """
    facts = [{name for name, weight in about.items() if weight} for about in liar.facts()]
    revealed = [
        set(liar.coalition.settled[each.settle_digest][1]) & set(liar.honest)
        for each in liar.said
        if isinstance(each, Reveal)
    ]
    weights = {weight for about in liar.facts() for weight in about.values()}
    return len(facts) <= 1 and all(each in revealed for each in facts) and weights <= {0, 1}


def at(message: Message, of: AttemptId) -> bool:
    """Tell whether a message belongs to an attempt."""
    return (message.envelope.round, message.envelope.attempt) == of


def draw_story(rng: Random, names: list[str], quorum: int) -> Story:
    """Draw a story that a hospital will listen to: sets of enough hospitals, each in the last."""

    def some(among: Sequence[str], chance_of_all: float) -> tuple[str, ...]:
        if rng.random() < chance_of_all:
            return tuple(among)
        few = rng.sample(among, rng.randint(quorum, len(among)))
        return tuple(name for name in among if name in few)

    keyed = some(names, 0.7)
    members = some(keyed, 0.6)
    return Story(keyed, members, some(members, 0.3), rng.choice([0, 0, 0, 1]))


def lie_at_random(liar: Liar, attempts: int, *, confuse: bool = True) -> list[bool]:
    """
    Lead the hospitals through attempts at a round by random stories, and confuse them besides.

    :returns: for each attempt in which not all were told the same, whether somebody noticed.
    """
    rng, quorum = liar.rng, liar.bench.roster.quorum
    noticed = []
    for attempt in range(1, attempts + 1):
        drawn = [draw_story(rng, liar.bench.names, quorum) for _ in range(rng.randint(1, 3))]
        stories = {name: rng.choice(drawn) for name in liar.honest}
        del liar.refused[:], liar.notes[:]
        liar.run_attempt((1, attempt), stories, restarts=rng.choice([0.0, 0.0, 0.15]))
        if len(set(stories.values())) > 1:
            noticed.append(bool(liar.caught()))
        for _ in range(rng.randint(0, 6) if confuse else 0):
            again = {name: rng.choice(drawn) for name in liar.honest}
            of = (1, rng.randint(1, attempt))
            liar.run_attempt(of, again, restarts=rng.choice([0.0, 0.3]))
    return noticed
