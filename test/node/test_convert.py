# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Messages survive the way through ROS with every bit and their signature."""

from dataclasses import fields, replace
import typing
from typing import Any

from fdrl_ros import msg as ros
from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import Envelope, Message
from fdrl_ros.nodes.parties import conversion
from fdrl_ros.nodes.parties.conversion import from_ros, to_ros
from fdrl_ros.srv import Decrypt
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from rclpy.serialization import deserialize_message, serialize_message

KINDS = [
    protocol.RoundStatus,
    protocol.EncryptionKey,
    protocol.RoundKey,
    protocol.PeerKeys,
    protocol.Shares,
    protocol.Delivery,
    protocol.Complaint,
    protocol.Blame,
    protocol.MaskedUpdate,
    protocol.Wanted,
    protocol.Relay,
    protocol.Sketch,
    protocol.Dispute,
    protocol.Opening,
    protocol.Settle,
    protocol.Reveal,
    protocol.GlobalPolicy,
    protocol.HospitalPolicy,
    protocol.Verdict,
    protocol.DecryptRequest,
]
WORD = st.text(st.characters(exclude_categories=('Cs',), exclude_characters='\x00'), max_size=12)
SMALL = st.integers(0, 255)
IDENTITY = Identity.generate('hospital_1')


def target_of(kind: type[Message]) -> Any:
    return Decrypt.Request if kind is protocol.DecryptRequest else getattr(ros, kind.__name__)


def values(hint: Any, most: int | None = None) -> st.SearchStrategy[Any]:
    if isinstance(hint, type) and issubclass(hint, Message | Envelope):
        return messages(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(values(typing.get_args(hint)[0]), max_size=min(most or 3, 3)).map(tuple)
    return {
        int: SMALL,
        bool: st.booleans(),
        str: WORD,
        bytes: st.binary(max_size=min(most or 40, 40)),
        float: st.floats(allow_nan=False),
    }[hint]


def messages(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(
        kind,
        **{
            each.name: values(hints[each.name], each.metadata.get('most')) for each in fields(kind)
        },
    )


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_message_comes_back_equal_and_signed(kind, data):
    sent = data.draw(messages(kind)).signed_by(IDENTITY)
    wire = serialize_message(to_ros(sent, target_of(kind)()))
    heard = from_ros(deserialize_message(wire, target_of(kind)), kind)
    assert heard == sent
    assert verify(IDENTITY.public, heard.envelope.signature, heard.canonical())


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: kind.__name__)
def test_ros_has_the_fields_of_the_protocol_and_a_header(kind):
    known = set(target_of(kind).get_fields_and_field_types())
    names = {each.name for each in fields(kind)}
    assert known == names | (set() if kind is protocol.DecryptRequest else {'header'})


def test_number_that_no_signature_covers_is_refused():
    source = ros.RoundKey()
    source.envelope.counter = 2**63
    with pytest.raises(MessageError, match='out of range'):
        from_ros(source, protocol.RoundKey)


def test_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr(conversion, 'LARGEST_MESSAGE', 100)
    shares = protocol.Shares(Envelope('f', 1, 1, 'hospital_1', 1), b'', b'', b'x' * 90)
    assert from_ros(to_ros(shares, ros.Shares()), protocol.Shares) == shares
    with pytest.raises(MessageError, match='more than 100 bytes'):
        from_ros(to_ros(replace(shares, parcels=b'x' * 101), ros.Shares()), protocol.Shares)


def test_more_links_of_a_ledger_than_an_update_may_have_are_refused():
    most = next(f for f in fields(protocol.MaskedUpdate) if f.name == 'ledger_links')
    assert most.metadata['most'] == 16384 * 32
    for size, refused in ((16384 * 32, False), (16384 * 32 + 1, True)):
        update = ros.MaskedUpdate()
        update.ledger_links.frombytes(bytes(size))
        relay = ros.Relay(updates=[update])
        for source, kind in (
            (update, protocol.MaskedUpdate),
            (relay, protocol.Relay),
        ):
            if refused:
                with pytest.raises(MessageError, match=r'524289 of ledger_links: at most'):
                    from_ros(source, kind)
            else:
                from_ros(source, kind)
