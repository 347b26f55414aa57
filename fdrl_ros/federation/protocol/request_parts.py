# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A request to decrypt in parts: with many hospitals what proves it is too long for one message.

The aggregator sends the first part. The key authority asks for one further part at a time, so
that it never gets more than it can take. If one is lost, it asks again when the aggregator, whose
time for an answer is over, sends the first part again.
"""

from collections.abc import Mapping
from dataclasses import replace
import hashlib
from typing import Any, Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.round_secret import joined
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.channel import check_signed
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import DecryptRequest, Message, MOST_PARTS

PART_BYTES: Final = 2**24
"""Bytes of the signed messages in one part, unless a single one is longer."""

PROOFS: Final = ('keys', 'settles', 'reveals', 'sketches')
"""Fields of a request that hold signed messages of hospitals."""

LISTS: Final = ('members', 'survivors', 'update_hashes', 'sum_hash')
"""Its other fields, which only the first part has."""


def split_request(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Distribute the signed messages of a request over its parts, in their order.

    :param fields: of the whole request.
    :returns: fields of each part; the first also has all that is not in :data:`PROOFS`.
    """
    held: list[list[tuple[str, Message]]] = [[]]
    size = 0
    for name in PROOFS:
        for each in fields[name]:
            size += len(each.to_bytes())
            if size > PART_BYTES and held[-1]:
                held.append([])
                size = len(each.to_bytes())
            held[-1].append((name, each))
    empty = {name: type(value)() for name, value in fields.items()}
    whole = {'parts': len(held), 'request_digest': _digest(fields)}
    return [
        (empty if number else dict(fields))
        | {name: tuple(each for field, each in part if field == name) for name in PROOFS}
        | {'part': number, **whole}
        for number, part in enumerate(held)
    ]


class RequestParts:
    """Puts the parts of a request together; a newer request takes the place of an older one."""

    def __init__(self) -> None:
        """Begin without any."""
        self._parts: list[DecryptRequest] = []

    def take(self, part: DecryptRequest, roster: Roster) -> DecryptRequest | int | None:
        """
        Take a part.

        Nothing is kept that no hospital signed, so that the roster bounds what is kept.

        :returns: the whole request as soon as all parts are here; until then the number of the
            part to ask for, or None if the present one does not count.
        :raises MessageError: if parts are numbered wrongly, or are not those of one request.
        :raises SignatureError: if no hospital signed a message in it.
        """
        if not 0 <= part.part < part.parts <= MOST_PARTS:
            raise MessageError(part.sender, f'part {part.part} of {part.parts} of a request')
        if part.parts == 1:
            self._parts = []
            return part
        here = self._parts
        continues = bool(here) and same_request(part, here[0])
        if part.part and not (continues and part.part == len(here)):
            return None  # of an older request, or it came twice
        proofs = [each for name in PROOFS for each in getattr(part, name)]
        if not proofs or (part.part and any(getattr(part, name) for name in LISTS)):
            self._parts = []
            raise MessageError(part.sender, f'part {part.part} has no proofs, or more than proofs')
        for each in proofs:
            check_signed(roster, each, 'hospital')
        if part.part:
            here.append(part)
        elif not continues:
            here = self._parts = [part]
        held = {name: sum(len(getattr(each, name)) for each in here) for name in PROOFS}
        most = len(roster.hospitals)
        if max(held.values()) <= most and len(here) < part.parts:
            return len(here)
        self._parts = []
        found: dict[str, Any] = {
            name: tuple(message for each in here for message in getattr(each, name))
            for name in PROOFS
        }
        lists = {name: getattr(here[0], name) for name in LISTS}
        if max(held.values()) > most or _digest(found | lists) != part.request_digest:
            raise MessageError(part.sender, 'its parts are not those of one request')
        return replace(here[0], **found)


def same_request(one: DecryptRequest, other: DecryptRequest) -> bool:
    """Tell whether two parts say that they are of one request."""
    said = one.id, one.parts, one.request_digest
    return said == (other.id, other.parts, other.request_digest)


def _digest(fields: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 over a request: its lists, and the signatures of all messages in it."""
    signatures = (each.envelope.signature for name in PROOFS for each in fields[name])
    lists = (encode(fields[name]) for name in LISTS)
    return hashlib.sha256(joined(*lists, *signatures)).digest()
