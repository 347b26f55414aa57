# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The topics, services and actions of the node graph as data: one line each, by DDS domain.

The security policies are made from these lines, the protocol's nodes take their topics from them,
and a test compares them with what live nodes have.

In a name, `{federation}`, `{hospital}` and `{robot}` are namespaces, and `{node}` is a node's full
name. Each stands for the node's own, where it has one, and else for all of that kind. `{member}`
is the last word of `{hospital}`, and `{home}` the namespace of the hospital that a robot is of.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
import re
from typing import Final

from fdrl_ros.deployment.bringup import NODES, NodeSpec
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import Message

OPERATOR = 'operator'
"""Executable and node name of people who command: `fdrl operator`, `fdrl policies`, `ros2`."""

OBSERVER = 'observer'
"""The same of programs that observe: `fdrl run`."""

WATCH = 'watch'
"""The same of the page: `fdrl watch`."""

DESCRIPTION = 'robot_state_publisher'

MONITOR = 'monitor'
"""Executable and node name of what reports the states of a real arm."""

SEGMENTER = 'segmenter'
"""The same of what labels the endoscope's pictures, where one is started."""

RECORDER = 'recorder'
"""The same of what records one robot: `fdrl record`."""

FOXGLOVE = 'foxglove_bridge'
"""The same of what shows all topics to Foxglove: `fdrl watch --foxglove`."""

READERS: Final = (OBSERVER, RECORDER, FOXGLOVE)
"""Programs that only read, and what they like of what they may."""

PEOPLE: Final = (OPERATOR, WATCH, *READERS)
"""Programs of people, which join both domains for what others have there."""

PEDAL = 'pedal'
"""The same of a pedal with which a surgeon takes over."""

SENSORS = 'sensors'
"""The same of what publishes a patient's vital signs, or the surface that a camera sees."""

CLIENT = 'client'
"""The same of a CRTK client that commands an arm, such as a surgeon's console."""

GUESTS: Final = (PEDAL, SENSORS, CLIENT)
"""Programs of others at a robot."""


class Domain(StrEnum):
    """A DDS domain of the graph."""

    FEDERATION = 'federation'
    ROBOTS = 'robots'


class Kind(StrEnum):
    """What an interface is, in the words of ROS."""

    TOPIC = 'topic'
    SERVICE = 'service'
    ACTION = 'action'


@dataclass(frozen=True)
class Interface:
    """
    A topic, service or action.

    :param name: with placeholders.
    :param by: executables that publish, serve or execute it.
    :param to: executables that subscribe to it or call it.
    :param message: kind of message of the protocol that travels on it, if one does.
    :param optional: which setting a node has it with; empty: always.
    """

    kind: Kind
    name: str
    by: tuple[str, ...]
    to: tuple[str, ...]
    message: type[Message] | None = None
    optional: str = ''


def topic(
    name: str, by: str, to: str = '', message: type[Message] | None = None, optional: str = ''
) -> Interface:
    """Make the line of a topic; executables are separated by blanks."""
    return Interface(Kind.TOPIC, name, tuple(by.split()), tuple(to.split()), message, optional)


def service(name: str, by: str, to: str = '', optional: str = '') -> Interface:
    """Make the line of a service; executables are separated by blanks."""
    return Interface(Kind.SERVICE, name, tuple(by.split()), tuple(to.split()), None, optional)


def action(name: str, by: str, to: str = '') -> Interface:
    """Make the line of an action; executables are separated by blanks."""
    return Interface(Kind.ACTION, name, tuple(by.split()), tuple(to.split()))


# fmt: off
_OF_NODES: Final[Mapping[Domain, tuple[Interface, ...]]] = {
    Domain.FEDERATION: (
        topic('{federation}/round', 'aggregator', 'trainer observer watch',
              protocol.RoundStatus),
        topic('{federation}/key', 'key_authority', 'trainer aggregator', protocol.EncryptionKey),
        topic('{federation}/round_key', 'trainer', 'aggregator', protocol.RoundKey),
        topic('{federation}/peer_keys/{member}', 'aggregator', 'trainer', protocol.PeerKeys),
        topic('{federation}/shares', 'trainer', 'aggregator', protocol.Shares),
        topic('{federation}/delivery/{member}', 'aggregator', 'trainer', protocol.Delivery),
        topic('{federation}/complaint', 'trainer', 'aggregator', protocol.Complaint),
        topic('{federation}/blame', 'aggregator', 'trainer observer watch',
              protocol.Blame),
        topic('{federation}/update', 'trainer', 'aggregator observer', protocol.MaskedUpdate),
        topic('{federation}/wanted/{member}', 'aggregator', 'trainer', protocol.Wanted),
        topic('{federation}/wanted/aggregator', 'key_authority', 'aggregator', protocol.Wanted),
        topic('{federation}/relay', 'aggregator', 'key_authority', protocol.Relay),
        topic('{federation}/sketch', 'trainer', 'aggregator', protocol.Sketch),
        topic('{federation}/dispute/{member}', 'aggregator', 'trainer', protocol.Dispute),
        topic('{federation}/opening', 'trainer', 'aggregator', protocol.Opening),
        topic('{federation}/settle', 'trainer', 'trainer aggregator', protocol.Settle),
        topic('{federation}/reveal', 'trainer', 'aggregator', protocol.Reveal),
        topic('{federation}/objection', 'trainer', 'aggregator', protocol.Objection),
        topic('{federation}/decline', 'trainer', 'aggregator', protocol.Decline),
        topic('{federation}/ledger_heads/{member}', 'aggregator key_authority', 'trainer',
              protocol.LedgerHeads),
        topic('{federation}/policy', 'key_authority', 'trainer aggregator observer watch',
              protocol.GlobalPolicy),
        topic('{federation}/policy/weights', 'key_authority', 'trainer aggregator observer watch',
              optional='policies above 256 KiB'),
        topic('{federation}/verdict', 'key_authority', 'aggregator', protocol.Verdict),
        topic('{hospital}/policy', 'trainer', 'observer'),
        topic('{hospital}/policy/weights', 'trainer', 'observer',
              optional='policies above 256 KiB'),
        topic('{hospital}/progress', 'trainer', 'observer watch'),
        topic('{hospital}/privacy', 'trainer', 'observer watch'),
        topic('{hospital}/privacy', '', 'aggregator', optional='metrics_port'),
        service('{federation}/key_authority/decrypt', 'key_authority', 'aggregator'),
        service('{federation}/aggregator/order', 'aggregator', 'operator watch'),
        service('{federation}/key_authority/order', 'key_authority', 'operator watch'),
    ),
    Domain.ROBOTS: (
        topic('{federation}/policy', 'trainer', 'selector'),
        topic('{federation}/policy/weights', 'trainer', 'selector',
              optional='policies above 256 KiB'),
        topic('{hospital}/policy', 'trainer', 'selector'),
        topic('{hospital}/policy/weights', 'trainer', 'selector',
              optional='policies above 256 KiB'),
        topic('{home}/home', 'trainer', 'selector'),
        topic('{home}/home/weights', 'trainer', 'selector', optional='policies above 256 KiB'),
        topic('{robot}/measured_js', 'env', 'client'),
        topic('{robot}/setpoint_js', 'env', 'client'),
        topic('{robot}/measured_cp', 'env', 'monitor client watch'),
        topic('{robot}/local/measured_cp', 'env', 'client'),
        topic('{robot}/setpoint_cp', 'env', 'selector monitor client watch'),
        topic('{robot}/local/setpoint_cp', 'env', 'client'),
        topic('{robot}/measured_cv', 'env', 'client'),
        topic('{robot}/body/measured_cf', 'env', 'client'),
        topic('{robot}/body/measured_cf', '', 'monitor', optional='force = body'),
        topic('{robot}/spatial/measured_cf', 'env', 'client watch'),
        topic('{robot}/spatial/measured_cf', '', 'monitor', optional='force = spatial'),
        topic('{robot}/jaw/measured_js', 'env', 'monitor client'),
        topic('{robot}/jaw/setpoint_js', 'env', 'selector monitor client'),
        topic('{robot}/joint_states', 'env', 'robot_state_publisher watch'),
        topic('{robot}/operating_state', 'env', 'selector client watch'),
        topic('{robot}/operation_state', 'env monitor', 'selector watch'),
        topic('{robot}/patient_state', 'env monitor', 'selector watch'),
        topic('{robot}/state_fields', 'env monitor', 'selector'),
        topic('{robot}/outcome', 'env', 'observer watch'),
        topic('{robot}/markers', 'env'),
        topic('{robot}/endoscope/image_raw', 'env', optional='endoscope'),
        topic('{robot}/endoscope/image_raw', '', 'segmenter'),
        topic('{robot}/endoscope/image_raw', '', 'watch', optional='a viewer'),
        topic('{robot}/endoscope/depth', 'env', optional='endoscope'),
        topic('{robot}/endoscope/labels', 'env', optional='endoscope'),
        topic('{robot}/endoscope/camera_info', 'env', optional='endoscope'),
        topic('{robot}/segmenter/labels', 'segmenter'),
        topic('{robot}/segmenter/overlay', 'segmenter'),
        topic('{robot}/segmenter/overlay', '', 'watch', optional='a viewer'),
        topic('{robot}/visibility', 'segmenter', 'watch'),
        topic('{robot}/visibility', '', 'selector', optional='needs_visibility'),
        topic('/clock', 'env', optional='use_sim_time'),
        topic('{robot}/servo_cp', 'selector client', 'env monitor'),
        topic('{robot}/jaw/servo_jp', 'selector client', 'env'),
        topic('{robot}/state_command', 'selector client watch', 'env selector'),
        topic('{robot}/servo_cv', 'client', 'env'),
        topic('{robot}/servo_jp', 'client', 'env'),
        topic('{robot}/servo_jr', 'client', 'env'),
        topic('{robot}/servo_jv', 'client', 'env'),
        topic('{robot}/move_cp', 'client', 'env'),
        topic('{robot}/move_jp', 'client', 'env'),
        topic('{robot}/move_jr', 'client', 'env'),
        topic('{robot}/jaw/move_jp', 'client', 'env'),
        topic('{robot}/servo_cf', 'client', 'env'),
        topic('{robot}/body/servo_cf', 'client', 'env'),
        topic('{robot}/spatial/servo_cf', 'client', 'env'),
        topic('{robot}/servo_jf', 'client', 'env'),
        topic('{robot}/jaw/servo_jf', 'client', 'env'),
        topic('{robot}/free', 'client', 'env'),
        topic('{robot}/hold', 'client', 'env'),
        topic('{robot}/surface', 'sensors', 'monitor', optional='surface'),
        topic('{robot}/vital_signs/mean_arterial_pressure', 'sensors', 'monitor',
              optional='vitals'),
        topic('{robot}/vital_signs/heart_rate', 'sensors', 'monitor', optional='vitals'),
        topic('{robot}/vital_signs/oxygen_saturation', 'sensors', 'monitor', optional='vitals'),
        topic('{robot}/vital_signs/respiratory_rate', 'sensors', 'monitor', optional='vitals'),
        topic('{robot}/supervise', 'pedal', 'selector'),
        topic('{robot}/action', 'selector', 'env watch'),
        topic('{robot}/risk', 'selector', 'watch'),
        topic('{robot}/adaptation', 'selector'),
        topic('{robot}/policies', 'selector', 'observer watch'),
        topic('{robot}/robot_description', 'robot_state_publisher'),
        topic('{robot}/tf', 'robot_state_publisher'),
        topic('{robot}/tf_static', 'robot_state_publisher'),
        action('{robot}/env/operate', 'env', 'operator'),
        service('{robot}/env/reset', 'env', 'operator watch'),
        service('{robot}/env/procedures', 'env', 'operator'),
        service('{robot}/env/get_simulation_state', 'env', 'operator', 'use_sim_time'),
        service('{robot}/env/set_simulation_state', 'env', 'operator', 'use_sim_time'),
        service('{robot}/env/reset_simulation', 'env', 'operator', 'use_sim_time'),
        service('{robot}/env/step_simulation', 'env', 'operator', 'use_sim_time'),
        service('{robot}/env/get_simulator_features', 'env', 'operator', 'use_sim_time'),
        service('{robot}/forward_kinematics', 'env', 'operator'),
        service('{robot}/inverse_kinematics', 'env', 'operator'),
        service('{robot}/monitor/start', 'monitor', 'operator'),
        service('{robot}/selector/list_policies', 'selector', 'operator'),
        service('{robot}/selector/pin_policy', 'selector', 'operator watch'),
        service('{robot}/selector/supervise', 'selector', 'operator watch'),
    ),
}
# fmt: on


def is_shown(domain: Domain, line: Interface) -> bool:
    """
    Return whether people are shown a topic: of a federation what observers see, of robots all.

    What parties have among themselves is sealed or signed for each other, and home policies are
    for the robots of their hospital alone. Updates and long weights are megabytes of no sense.
    """
    if domain is Domain.ROBOTS:
        shown = line.name.startswith(('{robot}', '/clock'))
    else:
        long = line.message is protocol.MaskedUpdate or line.name.endswith('/weights')
        shown = OBSERVER in line.to and not long
    return shown and line.kind is Kind.TOPIC


def _with_readers(domain: Domain, lines: Iterable[Interface]) -> Iterator[Interface]:
    """Add those who read every topic that people are shown, and record those of robots."""
    readers = (FOXGLOVE, RECORDER) if domain is Domain.ROBOTS else (FOXGLOVE,)
    done = set()
    for line in lines:
        if is_shown(domain, line) and line.name not in done:
            done.add(line.name)
            line = replace(line, to=(*line.to, *readers))
        yield line


INTERFACES: Final[Mapping[Domain, tuple[Interface, ...]]] = {
    domain: tuple(_with_readers(domain, lines)) for domain, lines in _OF_NODES.items()
}

_OURS = ' '.join(NODES)
_OTHERS = ' '.join((DESCRIPTION, *GUESTS))
_NODES = f'{_OURS} {_OTHERS}'
_ALL = f'{_NODES} {" ".join(PEOPLE)}'
_STEADY = ('describe_parameters', 'get_parameter_types', 'get_parameters', 'list_parameters')
_CHANGING = ('set_parameters', 'set_parameters_atomically')
_LIFECYCLE = (
    *('change_state', 'get_state', 'get_available_states', 'get_available_transitions'),
    'get_transition_graph',
)

EVERYWHERE: Final = (topic('/parameter_events', _ALL, _OTHERS),)
"""What every node has in each of its domains, the trainer's second node too."""

AT_HOME: Final = (
    topic('/rosout', _NODES),
    topic('/clock', '', _NODES, optional='use_sim_time'),
    topic('/diagnostics', _OURS, ' '.join((WATCH, *READERS))),
    topic('{node}/transition_event', _OURS),
    *(service(f'{{node}}/{each}', _NODES, OPERATOR) for each in (*_STEADY, *_CHANGING)),
    service('{node}/get_type_description', _NODES, OPERATOR),
    *(service(f'{{node}}/{each}', _OURS, OPERATOR) for each in _LIFECYCLE),
)
"""What every node has besides in the domain that it runs in."""


class Verb(StrEnum):
    """What a node does with an interface; the words of SROS2's policies."""

    PUBLISH = 'publish'
    SUBSCRIBE = 'subscribe'
    REPLY = 'reply'
    REQUEST = 'request'
    EXECUTE = 'execute'
    CALL = 'call'


_VERBS = {
    Kind.TOPIC: (Verb.PUBLISH, Verb.SUBSCRIBE),
    Kind.SERVICE: (Verb.REPLY, Verb.REQUEST),
    Kind.ACTION: (Verb.EXECUTE, Verb.CALL),
}


@dataclass(frozen=True, order=True)
class Use:
    """
    One thing that a node does.

    :param name: full name of the topic, service or action.
    :param optional: which setting it does that with; empty: always.
    """

    verb: Verb
    name: str
    optional: str = ''


@dataclass(frozen=True)
class Endpoints:
    """
    What a node has in a DDS domain.

    :param publish: names of DDS topics, such as `rt/robot_1/servo_cp`.
    :param subscribe: likewise.
    """

    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()

    @classmethod
    def of(cls, uses: Iterable[Use]) -> 'Endpoints':
        """Return the DDS topics behind what a node does."""
        publish: set[str] = set()
        subscribe: set[str] = set()
        for use in uses:
            match use.verb:
                case Verb.PUBLISH:
                    publish.add(topic_name(use.name))
                case Verb.SUBSCRIBE:
                    subscribe.add(topic_name(use.name))
                case Verb.REPLY | Verb.REQUEST:
                    _add_service(use.name, use.verb is Verb.REPLY, publish, subscribe)
                case Verb.EXECUTE | Verb.CALL:
                    serves = use.verb is Verb.EXECUTE
                    for part in ('send_goal', 'cancel_goal', 'get_result'):
                        _add_service(f'{use.name}/_action/{part}', serves, publish, subscribe)
                    told = {topic_name(f'{use.name}/_action/{e}') for e in ('feedback', 'status')}
                    (publish if serves else subscribe).update(told)
        return cls(frozenset(publish), frozenset(subscribe))

    def in_patterns(self, nodes: Iterable[str]) -> 'Endpoints':
        """Return the same with one pattern for all services of each of some nodes."""
        below = tuple(f'{kind}{node}/' for node in nodes for kind in ('rq', 'rr'))

        def shortened(names: frozenset[str]) -> frozenset[str]:
            whole = {each for each in below if any(name.startswith(each) for name in names)}
            rest = {name for name in names if not name.startswith(below)}
            return frozenset(rest | {f'{each}*' for each in whole})

        return Endpoints(shortened(self.publish), shortened(self.subscribe))

    def within(self, others: 'Endpoints') -> bool:
        """Return whether all of these are among others."""
        return self.publish <= others.publish and self.subscribe <= others.subscribe


@dataclass(frozen=True)
class Places:
    """
    The namespaces of a graph.

    :param federation: of the servers.
    :param hospitals: of the trainers, by the hospital's name.
    :param robots: of the robots.
    :param nodes: full names of our nodes, by the domain that they run in.
    :param remapped: full names that launch replaces, and by what.
    """

    federation: str
    hospitals: Mapping[str, str]
    robots: tuple[str, ...]
    nodes: Mapping[Domain, tuple[str, ...]]
    remapped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, specs: Iterable[NodeSpec], remapped: Mapping[str, str] | None = None) -> 'Places':
        """Read them out of a whole graph."""
        specs = tuple(specs)
        servers = [each.namespace for each in specs if NODES.get(each.executable) == 'server']
        trainers = [each.namespace for each in specs if each.executable == 'trainer']
        robots = [each.namespace for each in specs if NODES.get(each.executable) == 'robot']
        nodes = {
            domain: tuple(
                each.full_name
                for each in specs
                if each.executable in NODES and home_domain(each) is domain
            )
            for domain in Domain
        }
        return cls(
            servers[0] if servers else '',
            {each.rpartition('/')[2]: each for each in trainers},
            tuple(dict.fromkeys(robots)),
            nodes,
            remapped or {},
        )


def node_name(spec: NodeSpec) -> str:
    """Return the full name of a node; those of all operators have the same."""
    return f'/{OPERATOR}' if spec.executable == OPERATOR else spec.full_name


def home_domain(spec: NodeSpec) -> Domain:
    """Return the domain that a node runs in; the trainer publishes in the robots' one besides."""
    robot = spec.executable in (DESCRIPTION, *GUESTS) or NODES.get(spec.executable) == 'robot'
    return Domain.ROBOTS if robot else Domain.FEDERATION


def domains_of(spec: NodeSpec) -> tuple[Domain, ...]:
    """Return the domains in which a node has an interface of its own."""
    return tuple(
        domain
        for domain, lines in INTERFACES.items()
        if any(spec.executable in (*each.by, *each.to) for each in lines)
    )


def uses_of(spec: NodeSpec, places: Places, domain: Domain) -> tuple[Use, ...]:
    """Return all that a node may do in a domain, sorted; nothing if it does not join it."""
    if domain not in domains_of(spec):
        return ()
    lines = [*INTERFACES[domain], *EVERYWHERE]
    if spec.executable in PEOPLE or home_domain(spec) is domain:
        lines += AT_HOME
    found: dict[tuple[Verb, str], Use] = {}
    for line in lines:
        offer, use = _VERBS[line.kind]
        for verb, executables, others in (
            (offer, line.by, ()),
            (use, line.to, places.nodes[domain]),
        ):
            if spec.executable in executables:
                for told in _names(line.name, spec, places, others):
                    name = places.remapped.get(told, told)
                    found.setdefault((verb, name), Use(verb, name, line.optional))
    return tuple(sorted(found.values()))


def open_nodes(places: Places, domain: Domain) -> tuple[str, ...]:
    """Return the full names of the nodes of ours whose services operators may all call."""
    closed = tuple(
        each.name.replace('{federation}', places.federation)
        for each in INTERFACES[domain]
        if each.kind is Kind.SERVICE and OPERATOR not in each.to
    )
    return tuple(
        name
        for name in places.nodes[domain]
        if not any(each.startswith(f'{name}/') for each in closed)
    )


def sent_by(executable: str) -> tuple[type[Message], ...]:
    """Return the kinds of messages of the protocol that a node publishes."""
    return tuple(
        dict.fromkeys(
            line.message
            for line in INTERFACES[Domain.FEDERATION]
            if line.message is not None and executable in line.by
        )
    )


def protocol_topics() -> Mapping[type[Message], tuple[str, bool]]:
    """
    Return the topics of the protocol.

    :returns: for each kind of message its topic below the federation's namespace, and whether
        every addressee has a topic of its own below that.
    """
    found = {}
    for line in INTERFACES[Domain.FEDERATION]:
        if line.message is not None:
            _, name, *addressee = line.name.split('/')
            found[line.message] = name, bool(addressee)
    return found


def topic_name(name: str) -> str:
    """Return the DDS topic of a ROS topic."""
    return f'rt{name}'


def service_topics(name: str) -> tuple[str, str]:
    """Return the DDS topics of a service: of its requests, and of its replies."""
    return f'rq{name}Request', f'rr{name}Reply'


def in_words(verb: str, dds: str) -> str:
    """
    Say what publishing or subscribing to a DDS topic is in ROS, such as `call /robot_1/env/reset`.

    :param verb: publish or subscribe.
    """
    if found := re.fullmatch(r'rq(.*)Request|rr(.*)Reply', dds):
        serves = (verb == 'publish') == dds.startswith('rr')
        return f'{"serve" if serves else "call"} {found[1] or found[2]}'
    return f'{"publish" if verb == "publish" else "subscribe to"} {dds.removeprefix("rt")}'


def _add_service(name: str, serves: bool, publish: set[str], subscribe: set[str]) -> None:
    request, reply = service_topics(name)
    publish.add(reply if serves else request)
    subscribe.add(request if serves else reply)


def _names(
    template: str, spec: NodeSpec, places: Places, others: tuple[str, ...]
) -> Iterator[str]:
    """
    Fill in the placeholders of a name for a node.

    :param others: nodes that `{node}` stands for; none for the node itself.
    """
    own, member = spec.namespace, spec.namespace.rpartition('/')[2]
    hospital = spec.executable == 'trainer'
    robot = own in places.robots
    home = places.hospitals.get(str(spec.parameters.get('hospital', '')))
    values: dict[str, tuple[str, ...]] = {
        'hospital': (own,) if hospital else tuple(places.hospitals.values()),
        'member': (member,) if hospital else tuple(places.hospitals),
        'home': (own,) if hospital else (() if home is None else (home,)),
        'robot': (own,) if robot else places.robots,
        'node': others or (node_name(spec),),
    }
    text = template.replace('{federation}', places.federation)
    if (placeholder := re.search(r'\{(\w+)\}', text)) is None:
        yield text
        return
    for value in values[placeholder[1]]:
        yield text.replace(placeholder[0], value)
