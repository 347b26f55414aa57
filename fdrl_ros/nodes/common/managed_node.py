# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A lifecycle node as this package wants it, and the process around it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, ExitStack
from dataclasses import asdict, dataclass
import inspect
import os
from pathlib import Path
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any, ClassVar
import warnings

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.namespaces import beside, check_namespace, FEDERATION
from fdrl_ros.deployment.plan import Plan, SURGERY
from fdrl_ros.deployment.security.variables import check_security
from fdrl_ros.deployment.supervision import FAULT, REFUSED
from fdrl_ros.errors import FdrlError, LOCKED, SettingError
from fdrl_ros.nodes.common.diagnostics import Diagnostics, Health, Level
from fdrl_ros.nodes.common.parameters import NodeParameters
from fdrl_ros.runtime.worker_thread import Post, Run, Take, Worker
from fdrl_ros.settings import setting, Settings
import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.clock import Clock, ClockType
from rclpy.executors import ExternalShutdownException
from rclpy.experimental import EventsExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future

SPIN = 0.1
"""Time between two looks whether to stop, second: ``spin()`` of this executor burns a core."""

PATIENCE = 10.0
"""How long a job may take to stop, second."""

LOCK_PATIENCE = 10.0
"""How long a node that starts by itself waits for what another process has, second."""

LOCK_PERIOD = 0.5
"""Between two attempts to get it, second."""

_SUCCESS = TransitionCallbackReturn.SUCCESS
_NOTHING_ASKED = inspect.Signature()


@dataclass(frozen=True)
class NodeSettings(Settings):
    """What every node is told."""

    directory: str = setting('', "the federation's directory, as `fdrl` prepares it")
    autostart: bool = setting(
        True, 'configure and activate at once; otherwise `ros2 lifecycle` does it'
    )
    federation_namespace: str = setting(
        '',
        "namespace of the federation's topics, such as /north/federation; those of the hospitals "
        "lie beside it; a relative one lies beside this node's; empty: federation",
    )

    def __post_init__(self) -> None:
        """Refuse an illegal namespace."""
        super().__post_init__()
        check_namespace('federation_namespace', self.federation_namespace)


class ManagedNode(LifecycleNode):
    """
    A lifecycle node with described parameters, diagnostics, one worker thread and a clean end.

    Subclasses open what they need in :meth:`open` (configure) and begin in :meth:`begin`
    (activate). What they make through the methods here is destroyed by the opposite transition.
    A fault at run time takes the node back to unconfigured, and its process, if it started by
    itself, ends with the exit code FAULT.
    """

    executable: ClassVar[str]
    """Name of the node, of its executable and of its module."""

    part: ClassVar[str] = 'state'
    """What of the node its diagnostics tell of."""

    groups: ClassVar[tuple[str, ...]] = ()
    """Groups of the plan that are parameters of this node."""

    prepares: ClassVar[bool] = False
    """Whether it still prepares itself when it is active; it calls :meth:`note_begun` itself."""

    further: ClassVar[dict[str, type[Settings]]] = {}
    """Groups of parameters that are not in the plan, by name."""

    own: ClassVar[type[NodeSettings]] = NodeSettings

    alone: ClassVar[bool] = False
    """Whether it runs without a directory too, by the default plan."""

    def __init__(self, post: Post) -> None:
        """
        Declare the parameters.

        :param post: makes the executor call something on its own thread.
        :raises FdrlError: if a parameter is unknown or cannot be.
        """
        super().__init__(self.executable, automatically_declare_parameters_from_overrides=True)
        self.post = post
        self.changeable = True
        self.fault: Exception | None = None
        self.begun = False  # what is refused before will be refused again
        self._locked_at: float | None = None
        self._fault_told = False
        self.worker: Worker | None = None
        self.abandoned = False
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._made: ExitStack | None = None
        self._configured, self._active = ExitStack(), ExitStack()
        self._declared = parameters = NodeParameters(self)
        # The defaults come out of that directory: it stays the same.
        directory = parameters.declare('', self.own, fixed=('directory',)).directory
        self.layout = Layout(Path(directory))
        if not directory and not self.alone:
            expected = 'one that `fdrl prepare` or `fdrl run` made'
            raise SettingError('directory', directory, expected)
        plan = self._prepared_plan()
        # Parameters have the settings of surgery's world only; a plan has those of every world.
        surgery = plan.federation.task == SURGERY
        self._groups = [each for each in self.groups if surgery or each != 'world']
        for group in self._groups:
            parameters.declare(group, Plan.kind(group), getattr(plan, group))
        for group, kind in self.further.items():
            parameters.declare(group, kind)
        parameters.seal(self.check)
        self.check()
        self._diagnostics = Diagnostics(self, self.part, self.place, self.health)

    @property
    def now(self) -> float:
        """The steady clock, second."""
        return time.monotonic()

    @property
    def motion_clock(self) -> Clock:
        """Clock of arm and patient: /clock with use_sim_time, else the steady one."""
        clock = self.get_clock()
        return clock if clock.ros_time_is_active else self._steady

    @property
    def time(self) -> float:
        """That clock, second; simulated time may stand, and go back when it is reset."""
        clock = self.get_clock()
        return 1e-9 * clock.now().nanoseconds if clock.ros_time_is_active else time.monotonic()

    @property
    def place(self) -> str:
        """The last word of the namespace: which hospital or robot this node is of."""
        return self.get_namespace().rpartition('/')[2]

    @property
    def federation_namespace(self) -> str:
        """Namespace of the federation's topics, absolute."""
        return beside(self.get_namespace(), self.settings.federation_namespace or FEDERATION)

    @property
    def settings(self) -> Any:
        """The node's own settings as they are now."""
        return self._declared.read('', self.own)

    def further_settings(self, group: str) -> Any:
        """Return a group of :attr:`further` as it is now."""
        return self._declared.read(group, self.further[group])

    def plan(self) -> Plan:
        """Return the plan of the directory, with this node's parameters."""
        chosen = {
            name: asdict(self._declared.read(name, Plan.kind(name))) for name in self._groups
        }
        return self._prepared_plan().replaced(chosen)

    def _prepared_plan(self) -> Plan:
        """Return the plan of the directory, or without one what surgery has by default."""
        return Plan.read(self.layout.plan) if self.settings.directory else Plan().of_task()

    # What subclasses say.

    def check(self) -> None:
        """
        Refuse parameters that contradict each other; a change that would is refused too.

        :raises SettingError: naming one of them.
        """
        _ = self.settings, self.plan()
        for group in self.further:
            self.further_settings(group)

    def open(self) -> None:
        """Open files and make publishers."""

    def begin(self) -> None:
        """Subscribe and start working."""

    def health(self) -> Health:
        """Tell how the node is."""
        if self.fault is not None:
            return Health(Level.ERROR, str(self.fault))
        return Health(Level.OK, self.state_name)

    # What they make things with.

    def keep(self, undo: Callable[[], object]) -> None:
        """Undo something at the opposite of the present transition."""
        assert self._made is not None, 'outside of a transition'
        self._made.callback(undo)

    def later(self) -> AbstractContextManager[None]:
        """Make things while the node is active already; deactivation undoes them."""
        return self._making(self._active)

    @contextmanager
    def _making(self, stack: ExitStack) -> Iterator[None]:
        """Have what is made be undone with a stack."""
        self._made = stack
        try:
            yield
        finally:
            self._made = None

    def publisher(self, kind: type[object], topic: str, profile: QoSProfile) -> Any:
        """Make a publisher that is silent while the node is inactive."""
        profile, overriding = self._declared.overriding('publisher', topic, profile)
        made = self.create_lifecycle_publisher(
            kind, topic, profile, qos_overriding_options=overriding
        )
        self.keep(lambda: self.destroy_lifecycle_publisher(made))
        return made

    def hear(self, kind: type[object], topic: str, callback: Take, profile: QoSProfile) -> None:
        """Make a subscription."""
        profile, overriding = self._declared.overriding('subscription', topic, profile)
        made = self.create_subscription(
            kind, topic, self.guarded(callback), profile, qos_overriding_options=overriding
        )
        self.keep(lambda: self.destroy_subscription(made))

    def every(
        self, period: float, callback: Callable[[], None], clock: Clock | None = None
    ) -> Any:
        """Make a timer, on the steady clock unless another is given, and return it."""
        guarded, destroyed = self.guarded(callback), threading.Event()

        def call() -> None:
            if not destroyed.is_set():  # it may have been overdue then
                guarded()

        # The executor asks for the signature at every call, which takes longer than most of them.
        call.__signature__ = _NOTHING_ASKED  # type: ignore[attr-defined]
        made = self.create_timer(period, call, clock=clock or self._steady)
        self.keep(lambda: self.destroy_timer(made))
        self.keep(destroyed.set)
        return made

    def answer(
        self, kind: type[object], name: str, callback: Callable[[Any, Any], object]
    ) -> None:
        """Make a service; `callback` fills in the response, and a fault leaves it as it is."""
        guarded = self.guarded(callback)

        def serve(request: Any, response: Any) -> Any:
            guarded(request, response)
            return response

        made = self.create_service(kind, name, serve)
        self.keep(lambda: self.destroy_service(made))

    def stamped(self, message: Any) -> Any:
        """Put the time of the node's clock into a message's header."""
        message.header.stamp = self.get_clock().now().to_msg()
        return message

    def submit(self, run: Run, done: Take, reported: Take = lambda value: None) -> None:
        """Run a job on the worker; `done` and `reported` are called on the executor's thread."""
        assert self.worker is not None, 'inactive'
        self.worker.submit(run, self.guarded(done), self.guarded(reported))

    # The lifecycle.

    @property
    def state_name(self) -> str:
        """The state of the lifecycle."""
        return self._state_machine.current_state[1]

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and open what is needed."""
        self.changeable = False
        self._configured = ExitStack()
        try:
            self.check()
            with self._making(self._configured):
                self.open()
        except Exception as error:
            self.note_fault(error)
            self._configured.close()
            self.changeable = True
            return TransitionCallbackReturn.FAILURE
        self.fault = None
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start working."""
        self.fault = None
        super().on_activate(state)
        self._active = ExitStack()
        self.worker = Worker(self.get_name(), self.post)
        self._active.callback(self._stop_worker)
        try:
            with self._making(self._active):
                self.begin()
        except Exception as error:
            self.note_fault(error)
            self._active.close()
            super().on_deactivate(state)
            return TransitionCallbackReturn.FAILURE
        if not self.prepares:
            self.note_begun()
        return _SUCCESS

    def note_begun(self) -> None:
        """Note that all is made: what fails from now on may succeed when it is started again."""
        self.begun = True
        self._declared.warn_of_idle_overrides()

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working."""
        self._active.close()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Close what was opened."""
        self._configured.close()
        self.changeable = True
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and close, whatever state this is."""
        self._active.close()
        self._configured.close()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Close everything after a transition that raised; the node is then unconfigured."""
        if self.fault is None:
            self.note_fault(FdrlError(f'the transition from {state.label} raised an error'))
        for stack in (self._active, self._configured):
            try:
                stack.close()
            except Exception as error:
                self.note_fault(error)
        self.changeable = True
        return super().on_error(state)

    def _stop_worker(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None and not worker.close(PATIENCE):
            self.abandoned = True
            self.get_logger().warning(f'a job did not stop within {PATIENCE:g} s and is left')

    def guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Turn what a callback raises into a fault of the node."""

        def call(*arguments: object) -> None:
            if self.fault is not None:
                return
            try:
                callback(*arguments)
            except Exception as error:
                self.fail(error)

        return call

    def fail(self, error: Exception) -> None:
        """Log a fault and take the node back to unconfigured."""
        self.note_fault(error)
        self.post(self._leave)

    def note_fault(self, error: Exception) -> None:
        """Keep a fault and log it, or once that the node waits for another process."""
        self.fault, self._fault_told = error, False
        if isinstance(error, LOCKED) and self._locked_at is None:
            self._locked_at = self.now
            if self.waits:
                self.get_logger().warning(f'waits up to {LOCK_PATIENCE:g} s: {error}')
        if not self.waits:
            self.tell_fault()

    def tell_fault(self) -> None:
        """Log the fault, unless that was done."""
        error = self.fault
        if error is None or self._fault_told:
            return
        self._fault_told = True
        if isinstance(error, FdrlError):
            self.get_logger().fatal(f'{type(error).__name__}: {error}')
        else:
            self.get_logger().fatal(''.join(traceback.format_exception(error)))

    @property
    def refuses(self) -> bool:
        """Whether it would fail again if it were started again: nothing of it had begun."""
        return not self.begun and isinstance(self.fault, FdrlError)

    @property
    def waits(self) -> bool:
        """Whether it tries again, as the process that has its state may end."""
        return (
            not self.begun
            and self.settings.autostart
            and isinstance(self.fault, LOCKED)
            and self._locked_at is not None
            and self.now - self._locked_at < LOCK_PATIENCE
        )

    def start(self) -> None:
        """Configure, unless that is done, and activate."""
        if self.state_name == 'inactive' or self.trigger_configure() == _SUCCESS:
            self.trigger_activate()

    def _leave(self) -> None:
        if self.state_name == 'active':
            self.trigger_deactivate()
        if self.state_name == 'inactive':
            self.trigger_cleanup()


def run_node(make: Callable[[Post], ManagedNode], args: Sequence[str] | None = None) -> int:
    """
    Run one node until it is told to stop.

    SIGINT and SIGTERM stop the job, deactivate, clean up and end with 0; a second one changes
    nothing.

    :param make: makes the node.
    :returns: exit code: REFUSED if the node could not begin, FAULT if it failed later.
    """
    stopping = [False]

    def stop(number: int, frame: FrameType | None) -> None:
        stopping[0] = True

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    try:
        check_security(os.environ, rclpy.get_rmw_implementation_identifier())
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RCLError as error:
        sys.exit(f'fdrl_ros: {error}')
    except SettingError as error:
        rclpy.logging.get_logger('fdrl_ros').fatal(str(error))
        return REFUSED
    executor = EventsExecutor()
    try:
        with warnings.catch_warnings():
            # Of what is undone where the middleware refuses: it has no security, above all.
            warnings.filterwarnings('ignore', 'Failed to fini')
            node = make(executor.create_task)
    except (RCLError, FdrlError) as error:
        words = f'{type(error).__name__}: {" ".join(str(error).split())}'
        rclpy.logging.get_logger('fdrl_ros').fatal(words)
        rclpy.shutdown()
        return REFUSED
    executor.add_node(node)
    stopped = Future(executor=executor)

    def look() -> None:
        if stopping[0] and not stopped.done():
            stopped.set_result(None)

    # While a timer is overdue, spinning outlasts its time limit: an overloaded node ends by this.
    node.create_timer(SPIN, look, clock=Clock(clock_type=ClockType.STEADY_TIME))
    node.get_logger().info(
        f'{node.get_fully_qualified_name()} is in DDS domain {node.context.get_domain_id()}'
    )
    autostart = node.settings.autostart
    failed = False
    try:
        if autostart:
            node.start()
        else:
            way = f'ros2 lifecycle set {node.get_fully_qualified_name()} configure'
            node.get_logger().info(f'autostart is false: it waits for `{way}`, then `activate`')
        tried = node.now
        while not stopping[0] and node.state_name != 'finalized':
            if autostart and node.fault is not None:
                if not node.waits:
                    node.tell_fault()
                    break
                if node.now - tried >= LOCK_PERIOD:
                    tried = node.now
                    node.start()
            # Many callbacks a call: spin_once would leave the executor after each.
            executor.spin_until_future_complete(stopped, timeout_sec=SPIN)
    except ExternalShutdownException:
        pass
    except Exception as error:
        node.note_fault(error)
        failed = True
    failed |= autostart and node.fault is not None and not node.waits
    code = (REFUSED if node.refuses else FAULT) if failed else 0
    if node.state_name != 'finalized':
        node.trigger_shutdown()
    executor.spin_once(timeout_sec=0.0)  # it lets go of what was destroyed, so that others see it
    executor.remove_node(node)
    node.destroy_node()
    rclpy.shutdown()
    sys.stdout.flush()
    if node.abandoned:
        # The thread is in foreign code: ending the interpreter around it could crash.
        os._exit(code)
    return code
