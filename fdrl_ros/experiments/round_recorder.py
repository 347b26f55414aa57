# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Notes of each round of a federation: the policy, what it cost, how long it took."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
import time

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.errors import MessageError, PolicyError, ReplayError, SettingError, StoreError
from fdrl_ros.experiments.json_file import from_json, write_json
from fdrl_ros.federation.protocol.blame import WORDS
from fdrl_ros.federation.protocol.channel import MessageVerifier, OBSERVED
from fdrl_ros.federation.protocol.message import (
    Blame,
    Fault,
    GlobalPolicy,
    HospitalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    RoundStatus,
)
from fdrl_ros.federation.protocol.party import Effects, Job
from fdrl_ros.policy import decode_weights, digest_of
from fdrl_ros.runtime.stopwatch import peak_memory, Stopwatch


@dataclass(frozen=True)
class RoundNote:
    """
    One round as it ended.

    :param seconds: from the moment that all members were there to the policy.
    :param encrypt_seconds: of all hospitals together: quantise, mask, encrypt.
    :param sum_seconds: the aggregator adding.
    :param decrypt_seconds: the key authority re-adding and decrypting, without its test of the
        policy.
    :param update_bytes: ciphertext bytes that one hospital sent, in all attempts.
    :param epsilon: spent so far, by hospital, by the tight accountant.
    :param blamed: who was left out as it spoiled an attempt, and what it did, in words. The last
        note has those of a later round, too, that never ended.
    :param ended: why the federation ended after this round; empty if it went on.
    :param reason: what the key authority says of its policy, such as buckets that it left out.
    :param peak_memory: the most memory that the process of any party has held so far, MB; None
        where no system states it. In one process that is the process of all parties.
    :param public_success: share of public patients on whom the new policy succeeded in the key
        authority's test; None where it was rolled back, or the key authority did not say.
    """

    round: int
    seconds: float
    encrypt_seconds: float
    sum_seconds: float
    decrypt_seconds: float
    update_bytes: int
    epsilon: dict[str, float]
    contributors: tuple[str, ...]
    rolled_back: bool
    ended: str = ''
    reason: str = ''
    peak_memory: float | None = None
    blamed: dict[str, str] = field(default_factory=dict)
    public_success: float | None = None

    @property
    def he_seconds(self) -> float:
        """Seconds of encrypting, summing and decrypting, all parties added up."""
        return self.encrypt_seconds + self.sum_seconds + self.decrypt_seconds


def read_rounds(path: Path) -> list[RoundNote]:
    """
    Read the notes of earlier rounds; none where there is no file.

    :raises StoreError: if the file is damaged.
    """
    if not path.exists():
        return []
    try:
        rows = from_json(path.read_text('utf-8'))
        return [RoundNote(**{**row, 'contributors': tuple(row['contributors'])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f'{path} cannot be read: {error}') from error


def unfinished(rounds: Sequence[RoundNote], planned: int) -> str:
    """Return why a federation ended before its last round; empty if it did not."""
    if len(rounds) >= planned:
        return ''
    words = f'only {len(rounds)} of {planned} rounds were done'
    why = rounds[-1].ended if rounds else ''
    return f'{words}: {why}' if why else words


def setbacks(rounds: Sequence[RoundNote], planned: int) -> list[str]:
    """Say what did not go as planned: too few rounds, abandoned or rolled back ones, blame."""
    found = [words] if (words := unfinished(rounds, planned)) else []
    for note in rounds:
        found += [f'{name} was left out: it {fault}' for name, fault in note.blamed.items()]
    abandoned = [str(each.round) for each in rounds if not each.contributors]
    if abandoned:
        found.append(
            f'{len(abandoned)} of {len(rounds)} rounds were abandoned, and the policy of before '
            f'stayed (round {", ".join(abandoned)}): fdrl journal show tells why'
        )
    found += [f'round {each.round}: {each.reason}' for each in rounds if 'left out' in each.reason]
    back = [str(each.round) for each in rounds if each.rolled_back and each.contributors]
    if back:
        found.append(
            f'{len(back)} of {len(rounds)} rounds were rolled back (round {", ".join(back)}): the '
            'new policy did worse than the start on public patients, or an operator ordered it; '
            'what hospitals spent on them stays spent'
        )
    return found


NoteTaken = Callable[[RoundNote], object]
"""Takes the note of a round as soon as it has ended."""


@dataclass(frozen=True)
class Meters:
    """
    What the notes of a round are read from.

    :param stopwatch: seconds of the parties' jobs.
    :param epsilon: returns what each hospital has spent.
    :param peak_memory: returns the most memory of a party's process, MB; None if unknown.
    :param told: gets each note.
    """

    stopwatch: Stopwatch
    epsilon: Callable[[], dict[str, float]]
    peak_memory: Callable[[], float | None] = peak_memory
    told: NoteTaken = lambda note: None


class RoundRecorder:
    """
    A party that only listens: keeps every released policy and the notes of its round.

    It believes what is signed by members of the roster alone, and files are named after those.

    :param roster: of the federation.
    :param directory: of the released policies.
    :param rounds: file of the notes.
    """

    takes = OBSERVED

    def __init__(
        self,
        roster: Roster,
        directory: Path,
        rounds: Path,
        plan: Plan,
        meters: Meters,
    ) -> None:
        """
        Go on from the notes of earlier rounds.

        :raises SettingError: if more rounds were done than the plan has.
        :raises StoreError: if the notes are damaged.
        """
        self.notes = read_rounds(rounds)
        done = self.notes[-1].round if self.notes else 0
        if done > plan.rounds.rounds:
            expected = f'at least {done}: so many are done in {rounds.parent}'
            raise SettingError('rounds', plan.rounds.rounds, expected)
        self._verifier = MessageVerifier(roster)
        self._directory = directory
        self._rounds = rounds
        self._plan = plan
        self._meters = meters
        self._sent: dict[str, dict[int, int]] = {}
        self._blamed: dict[str, str] = {}
        self._tested: dict[int, float] = {}
        self._began: tuple[int, float] = (0, time.perf_counter())
        self._ended = ''

    def start(self, now: float) -> Effects:
        """Begin to listen."""
        return Effects()

    def tick(self, now: float) -> Effects:
        """Let time pass."""
        return Effects()

    def finish(self, job: Job, result: object, now: float) -> Effects:
        """Never happens: an observer has no jobs."""
        return Effects()

    def handle(self, message: Message, now: float) -> Effects:
        """
        Keep what was released, and how much was sent for it.

        :raises MessageError: unless the right member signed it, and it fits.
        """
        try:
            self._verifier.accept(message)
        except ReplayError:
            return Effects()  # it was taken before
        match message:
            case MaskedUpdate():
                # All chunks have one size. An observer may miss some, and some come twice.
                attempts = self._sent.setdefault(message.sender, {})
                attempts[message.envelope.attempt] = message.chunks * len(message.ciphertext)
            case Blame():
                self._note_blame(message)
            case HospitalPolicy():
                self._save_policy(message.sender, message)
            case GlobalPolicy():
                self._end_round(message)
            case RoundStatus():
                self.note_end(message.reason if message.phase == Phase.FINISHED else '')
                train = message.phase == Phase.TRAIN
                if train and self._began[0] != message.envelope.round:
                    self._began = (message.envelope.round, time.perf_counter())
        return Effects()

    def _note_blame(self, message: Blame) -> None:
        """Note what the aggregator says that a hospital did; hospitals check the proof."""
        hospitals = {member.name for member in self._verifier.roster.hospitals}
        if message.guilty not in hospitals or message.fault not in set(Fault):
            words = f'blames {message.guilty[:40]!r} for the fault {message.fault}'
            raise MessageError(message.sender, words)
        told = (note for note in self.notes if note.round >= message.envelope.round)
        if not any(
            message.guilty in note.blamed for note in told
        ):  # it comes again after a restart
            self._blamed[message.guilty] = WORDS[Fault(message.fault)]

    def _save_policy(self, name: str, message: GlobalPolicy | HospitalPolicy) -> None:
        try:
            weights = decode_weights(message.weights, self._plan.network.layout.n_parameters)
        except PolicyError as error:
            raise MessageError(message.envelope.sender, str(error)) from error
        if digest_of(weights) != message.digest:
            raise MessageError(message.envelope.sender, 'the digest is not that of the weights')
        save_policy(self._directory / f'{name}.npz', weights, self._plan)

    def _end_round(self, message: GlobalPolicy) -> None:
        round = message.envelope.round
        self._save_policy(f'global_{round}', message)
        spent = self._meters.stopwatch.take()
        seconds = time.perf_counter() - self._began[1]
        sent, self._sent = self._sent, {}
        blamed, self._blamed = self._blamed, {}
        if round == 0 or any(note.round >= round for note in self.notes):
            return
        if self.notes:
            before = self.notes[-1]  # it went on, and who was blamed since is of this round
            told = {name: why for name, why in before.blamed.items() if name not in blamed}
            self.notes[-1] = replace(before, ended='', blamed=told)
        self.notes.append(
            RoundNote(
                round=round,
                seconds=seconds,
                encrypt_seconds=spent.get('encrypt', 0.0),
                sum_seconds=spent.get('sum', 0.0),
                decrypt_seconds=spent.get('decrypt', 0.0) - spent.get('validate', 0.0),
                update_bytes=max((sum(each.values()) for each in sent.values()), default=0),
                epsilon=self._meters.epsilon(),
                contributors=message.contributors,
                rolled_back=message.rolled_back,
                peak_memory=self._meters.peak_memory(),
                ended=self._ended,
                reason=message.reason,
                blamed=blamed,
                public_success=None if message.rolled_back else self._tested.pop(round, None),
            )
        )
        self.save()
        self._meters.told(self.notes[-1])

    def note_success(self, round: int, share: float) -> None:
        """
        Note on which share of public patients the policy of a round succeeded.

        It may be told before the policy is released or after it; what is rolled back has none.
        """
        for number, note in enumerate(self.notes):
            if note.round == round:
                if not note.rolled_back and note.public_success != share:
                    self.notes[number] = replace(note, public_success=share)
                    self.save()
                return
        self._tested = {round: share}

    def note_end(self, reason: str) -> None:
        """Note why the federation ended after the last round; empty if it goes on."""
        self._ended = reason  # the policy of the last round may come after this
        if self.notes and self.notes[-1].ended != reason:
            # A round that somebody spoiled for good has no note of its own.
            blamed = self.notes[-1].blamed | (self._blamed if reason else {})
            self.notes[-1] = replace(self.notes[-1], ended=reason, blamed=blamed)
            self.save()

    def save(self) -> None:
        """Write the notes of all rounds."""
        write_json(self._rounds, [asdict(note) for note in self.notes])
