# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The node graph as data: which nodes run where and with what.

The launch files and the plain runner both start what these functions return; no other list of
nodes exists.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
import os
from pathlib import Path
import random
import shlex
import socket
from typing import Any, Final

from fdrl_ros.deployment.frame_settings import FrameSettings
from fdrl_ros.deployment.namespaces import absolute, check_name, check_namespace, FEDERATION
from fdrl_ros.deployment.parameter_files import may_be_of, sections
from fdrl_ros.deployment.security.variables import ABLE
from fdrl_ros.deployment.settings import hospital_names
from fdrl_ros.errors import SettingError
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.resources import PACKAGE, prefixes, resource
from fdrl_ros.runtime.environment_variables import ONE_THREAD
from fdrl_ros.runtime.orphans import LAUNCHER
from fdrl_ros.settings import setting, Settings, Value

PLAN_FILE = 'plan.yaml'
"""File of the plan, in a prepared federation's directory."""

# CMakeLists.txt reads these lines.
NODES: Final = {
    'aggregator': 'server',
    'env': 'robot',
    'key_authority': 'server',
    'monitor': 'robot',
    'segmenter': 'robot',
    'selector': 'robot',
    'trainer': 'hospital',
}
"""Our nodes, named as their executables, and the file in config/ that lists their parameters."""

PATIENTS_APART: Final = 1000
"""Between the numbers of the first patients of two robots of a federation."""

PICTURE: Final = 320, 240
"""Width and height of the simulated endoscope's pictures, pixels."""

SEGMENTED_PICTURE: Final = 128, 128
"""The same where a segmenter is started: the size of the video that it was trained on."""

DISCOVERY_SERVER = 'ROS_DISCOVERY_SERVER'
"""Variable with the discovery server of all participants of a process."""

SECURITY_FOLDER = 'dds-security'
"""Folder of the keystore of DDS Security beside the parties' keys; no party has such a name."""

LAST_DOMAIN = 232
"""The highest domain: the ports of the next one end above 65535."""

_FREE_DOMAINS = range(1, 102)
_PARTICIPANTS = 54  # of a domain on one host: ROS says that their ports are free, and they meet
_GUESTS = 6  # participants besides our nodes: an observer, an operator, RViz, a recorder
_PORT_RANGE = Path('/proc/sys/net/ipv4/ip_local_port_range')

_FAST_DDS = ('rmw_fastrtps_cpp', 'rmw_fastrtps_dynamic_cpp')  # the first where none is named
# What Fast DDS 2 reads, and what 3 (Kilted) reads: that warns of the older name.
_FAST_DDS_PROFILE = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
_WITH_FAST_DDS_2 = ('humble', 'iron', 'jazzy')
_CYCLONE_ON_LOOPBACK = (
    '<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast>'
    '<Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces></General>'
    '<Discovery><ParticipantIndex>auto</ParticipantIndex>'
    f'<MaxAutoParticipantIndex>{_PARTICIPANTS}</MaxAutoParticipantIndex>'
    '<Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
)
_ZENOH_ON_LOOPBACK = (
    'listen/endpoints=["tcp/127.0.0.1:0"];connect/endpoints=["tcp/127.0.0.1:7447"];'
    'scouting/multicast/enabled=false'
)


@dataclass(frozen=True)
class NodeSpec:
    """
    One node in one process.

    :param executable: in the package; of a node of ours also its module below fdrl_ros.nodes.
    :param namespace: absolute, with that of the whole federation in front.
    :param name: of the node.
    :param parameters: what differs from the node's defaults.
    :param domain: DDS domain.
    :param parameter_file: of ROS parameters; those of the site, which count last.
    :param log_level: of the whole process.
    :param package: of the executable.
    :param arguments: of its command line.
    :param remappings: names of the node and what they become.
    :param respawn: whether it is started again when it dies, if `use_respawn` says so.
    """

    executable: str
    namespace: str
    name: str
    domain: int
    parameters: Mapping[str, Value] = field(default_factory=dict)
    parameter_file: str = ''
    log_level: str = 'info'
    package: str = PACKAGE
    arguments: tuple[str, ...] = ()
    remappings: tuple[tuple[str, str], ...] = ()
    respawn: bool = True

    @property
    def label(self) -> str:
        """Name for people and for the log file."""
        return '.'.join((*self.namespace.strip('/').split('/'), self.name))

    @property
    def full_name(self) -> str:
        """Name with the namespace, and the enclave that holds the node's keys."""
        return f'{self.namespace.rstrip("/")}/{self.name}'


@dataclass(frozen=True)
class BringupSettings(Settings):
    """Where a federation runs; what it does is in the plan of its directory."""

    directory: str = setting('runs/federation', "the federation's directory")
    federation_domain: int = setting(50, 'DDS domain of the federation', limits=(0, LAST_DOMAIN))
    robot_domain: int = setting(51, 'DDS domain of the robots', limits=(0, LAST_DOMAIN))
    namespace: str = setting(
        '',
        'namespace in front of those of all nodes, such as north: federations of other namespaces '
        'do not meet in a domain',
    )
    hosts: str = setting(
        'one', 'whether all nodes run on this host or on several', choices=('one', 'several')
    )
    discovery_server: str = setting(
        '',
        "ADDRESS:PORT of the Fast DDS discovery server on which the federation's nodes of several "
        'hosts find each other; empty: by multicast',
    )
    router: str = setting(
        '',
        "router that carries the federation's messages over Eclipse Zenoh, as tls/HOST:PORT "
        '(`fdrl link`); empty: DDS carries them',
    )
    autostart: bool = setting(True, 'whether the nodes configure and activate themselves')
    use_respawn: bool = setting(True, 'whether nodes that die are started again, after 2 s')
    log_level: str = setting(
        'info', 'what the nodes log', choices=('debug', 'info', 'warn', 'error', 'fatal')
    )
    parameters: str = setting(
        '', 'file of ROS parameters such as config/hospital.yaml; empty for none'
    )
    security: bool = setting(
        False, 'whether every node joins by its enclave alone (DDS Security, as SROS2 has it)'
    )
    keystore: str = setting(
        '', 'keystore with the enclaves; empty: the one that `fdrl security init` makes'
    )

    def __post_init__(self) -> None:
        """Keep the robots' traffic apart, and refuse a parameter file that cannot be read."""
        super().__post_init__()
        check_namespace('namespace', self.namespace)
        object.__setattr__(self, 'namespace', absolute(self.namespace).rstrip('/'))
        if self.federation_domain == self.robot_domain:
            raise SettingError(
                'robot_domain', self.robot_domain, "another domain than the federation's"
            )
        if self.discovery_server and _rmw() not in _FAST_DDS:
            expected = f'none: {_rmw()} has no Fast DDS discovery server'
            raise SettingError('discovery_server', self.discovery_server, expected)
        if self.security and _rmw() not in ABLE:
            expected = f'false: {_rmw()} has no DDS Security'
            raise SettingError('security', self.security, expected)
        if self.discovery_server and self.hosts == 'one':
            raise SettingError(
                'discovery_server', self.discovery_server, 'none where hosts is `one`'
            )
        if self.discovery_server and self.security:
            expected = 'none with security: the server has no enclave'
            raise SettingError('discovery_server', self.discovery_server, expected)
        for node, _ in self.site_parameters():
            name = node.rpartition('/')[2]
            if node.strip('/') in NODES:
                expected = f'a namespace in {node!r}, such as /**{node}: no node of ours has none'
                raise SettingError('parameters', self.parameters, expected)
            near = get_close_matches(name, NODES, 1)
            if near and near != [name]:  # others may be of nodes that are not ours
                expected = f'a node of ours in {node!r}; did you mean {near[0]}?'
                raise SettingError('parameters', self.parameters, expected)

    @property
    def enclaves(self) -> Path:
        """Keystore that ROS_SECURITY_KEYSTORE names."""
        return Path(self.keystore or Path(self.directory, 'keys', SECURITY_FOLDER)).absolute()

    def check_enclaves(self, specs: Iterable[NodeSpec]) -> None:
        """
        Refuse nodes without an enclave, if security is on, before any of them starts.

        :raises SettingError: naming the first.
        """
        for spec in specs:
            key = self.enclaves / 'enclaves' / spec.full_name.lstrip('/') / 'key.pem'
            if self.security and not key.exists():
                expected = f'one with the enclave {spec.full_name}: `fdrl security` makes it'
                raise SettingError('keystore', str(self.enclaves), expected)

    def site_parameters(self) -> list[tuple[str, dict[str, Any]]]:
        """
        Read the file of ROS parameters.

        :returns: name of a node, maybe with wildcards, and its parameters, for each section.
        :raises SettingError: if the file cannot be read, or is of another form.
        """
        return sections(self.parameters) if self.parameters else []


@dataclass(frozen=True)
class FederationArguments(Settings):
    """What a whole federation on one host is asked for besides."""

    hospitals: int = setting(3, 'hospitals', limits=(3, 1000))
    rounds: int = setting(RoundSettings().rounds, 'rounds to run', limits=(1, 100000))
    robots: int = setting(1, 'simulated operating rooms', limits=(0, 100))
    operations: int = setting(
        -1, 'patients that each robot operates on by itself; -1 for no end', minimum=-1
    )
    options: str = setting('', 'further flags for `fdrl prepare`, such as "--seed 3"')

    def __post_init__(self) -> None:
        """Refuse options that are no words of a command line."""
        super().__post_init__()
        try:
            shlex.split(self.options)
        except ValueError as error:
            raise SettingError('options', self.options, f'words: {error}') from error

    def prepare_words(self, directory: str) -> list[str]:
        """Return the words after `fdrl` that make a directory ready for this federation."""
        words = ['prepare', directory, '--hospitals', str(self.hospitals)]
        return [*words, '--rounds', str(self.rounds), *shlex.split(self.options)]

    @property
    def hospital_names(self) -> tuple[str, ...]:
        """Names of the hospitals, as `fdrl prepare` gives them."""
        return hospital_names(self.hospitals)

    @property
    def robot_names(self) -> tuple[str, ...]:
        """Names of the robots."""
        return tuple(f'robot_{number}' for number in range(1, self.robots + 1))


@dataclass(frozen=True)
class HospitalArguments(Settings):
    """Which hospital is started."""

    hospital: str = setting('hospital_1', 'name in the roster')


@dataclass(frozen=True)
class RoomArguments(FrameSettings):
    """What an operating room may have besides."""

    description: bool = setting(
        True, 'start robot_state_publisher: /tf of the arm, and robot_description'
    )
    rviz: bool = setting(False, 'show arm, patient and force in RViz (simulated)')
    endoscope: bool = setting(False, "draw and publish the endoscope's pictures")
    segmenter: str = setting(
        '',
        'file of a trained segmenter, which labels the pictures, with 128 x 128 pixels of the '
        'simulated endoscope; the selector then holds while nothing is seen; empty: none',
    )
    use_sim_time: bool = setting(
        False, 'have all nodes follow /clock, which the simulated env makes where it is started'
    )
    real_time_factor: float = setting(
        1.0,
        'how fast the env has simulated time pass; 0: as fast as whoever commands the arm answers',
        limits=(0.0, 100.0),
    )
    env: bool = setting(
        True, "start the simulated env; false where a real arm answers on the robot's topics"
    )
    home: str = setting(
        '',
        'hospital that the room is in: its patients come, and the robot gets its home policy; '
        'empty: patients of all hospitals in turn, and no home policy',
    )
    armed: str = setting(
        'auto',
        'whether the selector commands the arm; auto: where the simulated env is started with it',
        choices=('auto', 'true', 'false'),
    )

    def __post_init__(self) -> None:
        """Refuse a pace of time that nobody makes."""
        super().__post_init__()
        if self.real_time_factor != 1.0 and not self.use_sim_time:
            expected = '1.0 without use_sim_time:=true'
            raise SettingError('real_time_factor', self.real_time_factor, expected)

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height of the simulated endoscope's pictures, pixels."""
        return SEGMENTED_PICTURE if self.segmenter else PICTURE

    @property
    def commands(self) -> bool:
        """Whether the selector commands the arm."""
        return self.env if self.armed == 'auto' else self.armed == 'true'


@dataclass(frozen=True)
class RobotArguments(RoomArguments):
    """What one operating room is asked for."""

    robot: str = setting('robot_1', 'name of the robot: the namespace of its topics')
    first_patient: int = setting(0, 'number of the first patient', minimum=0)
    operations: int = setting(
        -1, 'patients operated on by itself, one after the other; -1 for no end', minimum=-1
    )
    plan: str = setting(
        '',
        'YAML file of the operation plan by which the monitor makes the states of a real arm, '
        'with env:=false; empty: no monitor',
    )

    def __post_init__(self) -> None:
        """Refuse two nodes that publish states of one robot, and a name that is none."""
        super().__post_init__()
        check_name('robot', self.robot)
        if self.plan and self.env:
            raise SettingError('plan', self.plan, 'none with the simulated env; say env:=false')


def server_graph(settings: BringupSettings) -> tuple[NodeSpec, ...]:
    """Return the nodes of the servers: one aggregator, one key authority."""
    return tuple(_node(settings, name, FEDERATION) for name in ('key_authority', 'aggregator'))


def hospital_graph(settings: BringupSettings, hospital: str) -> tuple[NodeSpec, ...]:
    """Return the nodes of one hospital: its trainer, which hands policies on to the robots."""
    return (_node(settings, 'trainer', hospital, robot_domain=settings.robot_domain),)


def robot_graph(
    settings: BringupSettings,
    robot: str,
    operations: int = 0,
    room: RoomArguments = RoomArguments(),  # noqa: B008 (frozen)
    first_patient: int = 0,
    plan: str = '',
) -> tuple[NodeSpec, ...]:
    """
    Return the nodes of one operating room: the env or the monitor, selector, segmenter if asked.

    :param operations: simulated patients that are operated on by itself, one after the other;
        -1 for no end.
    :param first_patient: number of the first of them: robots have patients of their own.
    :param plan: file by which the monitor makes the states of a real arm; empty for no monitor.
    :raises SettingError: if the parameter file arms a selector that must not be armed.
    """
    place = absolute(settings.namespace, robot)
    if not room.commands and any(
        values.get('armed')
        for section, values in settings.site_parameters()
        if may_be_of(section, f'{place}/selector')
    ):
        expected = f'true, or {settings.parameters} without armed: true'
        raise SettingError('armed', room.armed, expected)
    env = _node(
        settings,
        'env',
        robot,
        operations=operations,
        first_patient=first_patient,
        endoscope=room.endoscope or bool(room.segmenter),
        endoscope_width=room.picture[0],
        endoscope_height=room.picture[1],
        use_sim_time=room.use_sim_time,
        real_time_factor=room.real_time_factor,
        hospital=room.home,
        frame_prefix=room.frame_prefix,
        base_frame=room.base_frame,
        base_pose=room.base_pose,
    )
    selector = _node(
        settings,
        'selector',
        robot,
        armed=room.commands,
        needs_visibility=bool(room.segmenter),
        use_sim_time=room.use_sim_time,
        hospital=room.home,
    )
    if not room.env and room.commands:
        # After a crash a person looks before a real arm is commanded again.
        selector = replace(selector, respawn=False)
    found = [selector]
    if room.env:
        found = [env, selector]
    elif plan:
        found = [
            _node(settings, 'monitor', robot, plan=plan, use_sim_time=room.use_sim_time),
            selector,
        ]
    if room.segmenter:
        time = room.use_sim_time
        found.append(_node(settings, 'segmenter', robot, file=room.segmenter, use_sim_time=time))
    return tuple(found)


def frames_graph(
    settings: BringupSettings, robot: str, room: RoomArguments
) -> tuple[NodeSpec, ...]:
    """Return the nodes of others that a room is shown with: robot_state_publisher and RViz."""
    # Every robot keeps its own tree of frames, unless their names tell robots apart.
    root = '/' if room.frame_prefix else ''
    common: dict[str, Any] = {
        'namespace': f'{settings.namespace}/{robot}',
        'domain': settings.robot_domain,
        'log_level': settings.log_level,
        'respawn': settings.use_respawn,
        'remappings': tuple((f'/{name}', root + name) for name in ('tf', 'tf_static')),
    }
    time: dict[str, Value] = {'use_sim_time': room.use_sim_time}
    found = []
    if room.description:
        name = 'robot_state_publisher'
        given = {'robot_description': room.mount().urdf(), 'publish_frequency': 50.0, **time}
        found.append(NodeSpec(name, name=name, package=name, parameters=given, **common))
    if room.rviz:
        shown = ('-d', str(resource('config/robot.rviz')), '-f', room.mount().base_link)
        rviz = NodeSpec('rviz2', name='rviz2', package='rviz2', parameters=time, **common)
        found.append(replace(rviz, arguments=shown))
    return tuple(found)


def federation_graph(
    settings: BringupSettings, hospitals: tuple[str, ...]
) -> tuple[NodeSpec, ...]:
    """Return the nodes of the servers and of all hospitals, on one host."""
    trainers = (spec for hospital in hospitals for spec in hospital_graph(settings, hospital))
    return (*server_graph(settings), *trainers)


def check_participants(settings: BringupSettings, specs: Sequence[NodeSpec]) -> None:
    """
    Refuse more nodes on one host than find each other in a DDS domain.

    A trainer takes part in both domains.

    :raises SettingError: if there are too many.
    """
    if settings.hosts == 'several' or _rmw() == 'rmw_zenoh_cpp':
        return
    most = _PARTICIPANTS - _GUESTS
    for name in ('federation_domain', 'robot_domain'):
        domain = getattr(settings, name)
        count = sum(each.domain == domain or each.executable == 'trainer' for each in specs)
        if count > most:
            expected = f'{most} nodes of one host at most (hospitals, robots), not {count}'
            raise SettingError(name, domain, expected)


def check_middleware() -> None:
    """
    Refuse a middleware that is not installed: every process would end when it imports rclpy.

    :raises SettingError: naming RMW_IMPLEMENTATION.
    """
    folders = [each / 'share/ament_index/resource_index/rmw_typesupport' for each in prefixes()]
    found = {each.name for folder in folders for each in folder.glob('rmw_*')}
    found.discard('rmw_implementation')  # loads the others
    name = os.environ.get('RMW_IMPLEMENTATION')
    if name and found and name not in found:
        expected = f'one that is installed: {", ".join(sorted(found))}'
        raise SettingError('RMW_IMPLEMENTATION', name, expected)


def check_domain(name: str, text: str) -> int:
    """
    Read a DDS domain.

    :param name: of the variable or setting.
    :raises SettingError: if there is no such domain.
    """
    if not text.isdecimal() or int(text) > LAST_DOMAIN:
        raise SettingError(name, text, f'a DDS domain, 0 to {LAST_DOMAIN}')
    return int(text)


def environment(settings: BringupSettings, domain: int) -> dict[str, str]:
    """Return the variables that every node of this process runs with."""
    variables = {
        LAUNCHER: str(os.getpid()),
        'ROS_DOMAIN_ID': str(domain),
        **ONE_THREAD,
        'PYTHONUNBUFFERED': '1',
        **middleware(settings),
    }
    if settings.security:
        variables |= {
            'ROS_SECURITY_ENABLE': 'true',
            'ROS_SECURITY_STRATEGY': 'Enforce',
            'ROS_SECURITY_KEYSTORE': str(settings.enclaves),
            'ROS_SECURITY_ENCLAVE_OVERRIDE': '',  # a person's counts for no node
        }
    if settings.discovery_server and domain == settings.federation_domain:
        variables[DISCOVERY_SERVER] = settings.discovery_server
    return variables


def middleware(settings: BringupSettings) -> dict[str, str]:
    """
    Return the variables of the middleware, for nodes and for who looks on.

    Messages go by UDP: over shared memory a node that was killed can leave the others deaf for
    good (Fast DDS issues 5053 and 5469), and over TCP (LARGE_DATA) nobody hears anybody where
    there is no multicast, and the ports are not known beforehand. On one host nothing leaves it;
    the range LOCALHOST would do that too, but it always brings shared memory with it.
    """
    if settings.hosts == 'several':
        own = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', 'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}
        if _rmw() in _FAST_DDS and not any(map(os.environ.get, _FAST_DDS_PROFILE)):
            own |= _fast_dds('config/fastdds_several_hosts.xml')  # a site's own profile counts
        return own
    match _rmw():
        case 'rmw_cyclonedds_cpp':
            own = {'CYCLONEDDS_URI': _CYCLONE_ON_LOOPBACK}
        case 'rmw_zenoh_cpp':
            own = {'ZENOH_CONFIG_OVERRIDE': _ZENOH_ON_LOOPBACK}
        case name if name in _FAST_DDS:
            own = _fast_dds('config/fastdds_one_host.xml')
        case _:
            return {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
    return {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SYSTEM_DEFAULT', **own}


def _fast_dds(profile: str) -> dict[str, str]:
    """
    Return what has Fast DDS take a profile of ours, and its memory for messages from it.

    The profile goes by the name that the version reads; by both names if that is unknown.
    """
    names: Sequence[str] = _FAST_DDS_PROFILE
    if distribution := os.environ.get('ROS_DISTRO'):
        names = names[:1] if distribution in _WITH_FAST_DDS_2 else names[1:]
    return {
        **dict.fromkeys(names, str(resource(profile))),
        'RMW_FASTRTPS_USE_QOS_FROM_XML': '1',
    }


def warnings(settings: BringupSettings) -> list[str]:
    """Return what a person should be told before the nodes of these settings start."""
    found = []
    name = _rmw()
    if settings.hosts == 'one' and name == 'rmw_zenoh_cpp':
        found.append(
            'hosts = one: the nodes stay on this host, but the Zenoh router is not ours: nothing '
            'leaves the host only if it connects to no other router'
        )
    elif settings.hosts == 'one' and name not in (*_FAST_DDS, 'rmw_cyclonedds_cpp'):
        found.append(
            f'hosts = one: {name} is unknown here, so messages may leave this host: it is only '
            'told ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST'
        )
    if name == 'rmw_zenoh_cpp':
        return found  # its ports do not depend on the domain
    lowest, highest = _outgoing_ports()
    for setting_name in ('federation_domain', 'robot_domain'):
        domain = getattr(settings, setting_name)
        first = _first_port(domain)
        last = first + 2 * _PARTICIPANTS - 1
        if first <= highest and last >= lowest:
            found.append(
                f'{setting_name} = {domain}: its ports {first} to {last} are among those that '
                f'this host gives to outgoing connections ({lowest} to {highest}), so a node may '
                'find its port taken'
            )
    return found


def idle_sections(settings: BringupSettings, specs: Sequence[NodeSpec]) -> list[str]:
    """
    Warn of sections of the parameter file that are for nodes such as these, and none of them.

    :returns: one warning, or nothing.
    :raises SettingError: if one says `armed: false` of a robot that is armed here, in another
        namespace. Of another robot it is only told: one file may serve many.
    """
    found = []
    for section, values in settings.site_parameters():
        if not any(may_be_of(section, each.name) for each in specs) or any(
            may_be_of(section, each.full_name) for each in specs
        ):
            continue
        for each in specs:
            same = section.split('/')[-2:] == each.full_name.split('/')[-2:]
            if same and values.get('armed') is False and each.parameters.get('armed'):
                expected = f'armed: false of {each.full_name}, not of {section}, or armed:=false'
                raise SettingError('parameters', settings.parameters, expected)
        found.append(section)
    names = ', '.join(each.full_name for each in specs)
    words = f'{settings.parameters}: {", ".join(found)} is none of the nodes {names}'
    return [words] if found else []


def _rmw() -> str:
    """Return the middleware of the nodes."""
    return os.environ.get('RMW_IMPLEMENTATION') or _FAST_DDS[0]


def _outgoing_ports() -> tuple[int, int]:
    """Return the first and last port that this host gives to outgoing connections."""
    try:
        lowest, highest = map(int, _PORT_RANGE.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return lowest, highest


def _first_port(domain: int) -> int:
    """Return the port of the first participant of a domain on a host, by the DDS standard."""
    return 7400 + 250 * domain + 10


def free_domains(count: int) -> list[int]:
    """
    Find DDS domains that nobody on this host uses, so that two runs do not meet.

    :raises SettingError: if there are not so many.
    """
    found = [domain for domain in _FREE_DOMAINS if _is_free(domain)]
    if len(found) < count:
        raise SettingError(
            'domains', count, f'as many free DDS domains; {len(found)} are, end other ROS nodes'
        )
    # Two runs that start together look at the same moment: chance keeps them apart.
    return random.SystemRandom().sample(found, count)


def _is_free(domain: int) -> bool:
    """Tell whether the port of the domain's first participant on this host can be bound."""
    port = _first_port(domain)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(('', port))
        except OSError:
            return False
    return True


def _node(settings: BringupSettings, name: str, namespace: str, **parameters: Value) -> NodeSpec:
    given: dict[str, Value] = {
        'directory': settings.directory,
        'autostart': settings.autostart,
        **parameters,
    }
    if settings.router and NODES[name] in ('server', 'hospital'):
        given['router'] = settings.router
    for node, values in settings.site_parameters():
        if not may_be_of(node, name):
            continue
        for key, value in values.items():
            # ROS keeps both values if their types differ, and the node reads ours.
            if key in given and type(value) is not type(given[key]):
                expected = f'{node}: {key} to be a {type(given[key]).__name__}, not {value!r}'
                raise SettingError('parameters', settings.parameters, expected)
    of_robot = NODES[name] == 'robot'
    domain = settings.robot_domain if of_robot else settings.federation_domain
    place = absolute(settings.namespace, namespace)
    return NodeSpec(
        name,
        place,
        name,
        domain,
        given,
        settings.parameters,
        settings.log_level,
        respawn=settings.use_respawn,
    )
