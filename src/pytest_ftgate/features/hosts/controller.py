"""Reserved hosts: a run measures on the machines of pytest-xdist's `--tx ssh=...`, each test on one host of each class.

pytest-xdist starts the workers and brings their reports. What is ours: the project goes there by git, in place of
rsync, which is deprecated in pytest-xdist and refuses paths of the command line (pytest-dev/pytest-xdist#1081); one
worker at a time is on a host; and a host that is lost does not end the run.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import execnet
import msgspec
import pytest
from execnet.gateway_bootstrap import HostNotFound
from xdist import workermanage

from ...declare.options import table
from ...hookspec import hookimpl
from ...kit.errors import FtgateError
from ...model.report import Machine
from ...plugin.options import options_of
from . import checkout
from .scheduler import HostScheduler, test_of

SSH: Final = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
"""A host that does not answer for 15 s is lost. They come after the user's: ssh takes the first of each."""
TIMEOUT_S: Final = 600.0
ALIVE_S: Final = 20.0
RESTARTS: Final = 3
SERVE: Final = f"""
try:
    from {checkout.__name__} import serve
except ImportError as error:
    import sys
    fix = "install pytest-ftgate[xdist] there"
    channel.send({{"error": "%s has no pytest-ftgate (%s): %s" % (sys.executable, error, fix)}})
else:
    serve(channel)
"""


class HostLink:
    """A host with the connection that holds it for this run; the worker of pytest-xdist has one of its own."""

    def __init__(self, spec: Any) -> None:
        """`spec` is the execnet.XSpec of its worker."""
        self.given: Any = execnet.XSpec(str(spec))  # without the id that execnet gives
        self.name = str(self.given.id or str(self.given.ssh).split()[-1].rpartition("@")[2])
        self.spec = spec
        self.restarts = 0
        self.machine: Machine
        self._group = execnet.Group()
        self._channel: Any = None

    def prepare(self, shipment: checkout.Shipment, owner: str) -> str:
        """Reserve the host and check the project out there; the folder. Raises FtgateError."""
        spec = self.given
        spec.ssh, spec.env, spec.id, spec.chdir, spec.execmodel = self.spec.ssh, self.spec.env, None, None, "thread"
        ours = version("pytest-ftgate")
        try:
            self._channel = self._group.makegateway(spec).remote_exec(SERVE)
            said = checkout.answer(self._channel, TIMEOUT_S)
            if said["version"] != ours:
                raise FtgateError(f"it has pytest-ftgate {said['version']}, and here is {ours}: install that")
            self.machine = msgspec.json.decode(said["machine"], type=Machine)
            self._channel.send({"project": shipment.project, "prefix": shipment.repository.prefix, "owner": owner})
            have = checkout.answer(self._channel, TIMEOUT_S)["have"]
            return shipment.deliver(self._channel, have, TIMEOUT_S)
        except HostNotFound:
            why = "cannot be reached by ssh; try `ssh -o BatchMode=yes` with the same address"
        except FtgateError as error:
            why = str(error)
        except (EOFError, OSError) as error:  # TimeoutError of execnet, too
            cause = f"{type(error).__name__}: {error}".rstrip(": ")
            why = f"the connection was lost while it was prepared ({cause})"
        raise FtgateError(f"host {self.name}: {why}")

    def answers(self) -> bool:
        try:
            self._channel.send("")
            self._channel.receive(ALIVE_S)
        except (EOFError, OSError):
            return False
        return True

    def close(self) -> None:
        """Let others have the host."""
        self._group.terminate(timeout=5.0)


class Hosts:
    """The hosts of a run, in its controller."""

    def __init__(self, config: pytest.Config, run: str, reference: str) -> None:
        """`reference` is the commit of `--ftgate-against`, "" for none. Raises pytest.UsageError."""
        self.config = config
        self.run = run
        self.reference = reference
        self.hosts: list[HostLink] = []
        self.scheduler = HostScheduler({})
        self.patch = pytest.MonkeyPatch()
        specs = [execnet.XSpec(each) for each in workermanage.parse_tx_spec_config(config)]
        if any(not spec.ssh for spec in specs):
            raise pytest.UsageError(
                "--ftgate measures on hosts of `--tx ssh=...` alone: leave out the other --tx, or give this machine as "
                "a host too, `--tx ssh=localhost`"
            )
        names = [HostLink(spec).name for spec in specs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise pytest.UsageError(f"a host measures with one worker: {', '.join(sorted(twice))} stands in --tx twice")
        # Some options have no meaning on several machines.
        options = options_of(config)
        for option in table():
            if option.not_with_hosts and option.of(options) != option.default:
                raise pytest.UsageError(option.not_with_hosts)

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        """Bring the project to every host before pytest-xdist connects to it."""
        names = ("PYTEST_ADDOPTS", *(option.variable for option in table()))
        variables = {name: os.environ[name] for name in names if name in os.environ}
        for spec in specs:
            self.hosts.append(HostLink(spec))
            spec.ssh = " ".join([spec.ssh, *(f"-o {option}" for option in SSH)])
            spec.env = variables | spec.env
        try:
            root = config.rootpath
            shipment = checkout.Shipment(root, root / ".ftgate", self.reference)
            owner = f"the run {self.run} of {socket.gethostname()}"
            with ThreadPoolExecutor(len(self.hosts)) as threads:
                folders = list(threads.map(lambda host: host.prepare(shipment, owner), self.hosts))
        except FtgateError as error:
            raise pytest.UsageError(str(error)) from None
        top = shipment.repository.top
        below = Path(os.path.relpath(config.invocation_params.dir, top))
        for host, folder in zip(self.hosts, folders, strict=True):
            host.spec.chdir = str(Path(folder, below))
        self.scheduler = HostScheduler({host.name: host.machine.fingerprint for host in self.hosts})
        # What pytest-xdist would do with rsync, and with the worker of a lost host.
        session: Any = self.config.pluginmanager.get_plugin("dsession")
        session.nodemanager.roots = []
        arguments = partial(self._arguments, top)
        self.patch.setattr(workermanage, "make_reltoroot", lambda roots, args: arguments(args), raising=False)
        self.restart = session._clone_node
        self.patch.setattr(session, "_clone_node", self._restarted)

    def _arguments(self, top: Path, given: Iterable[str]) -> list[str]:
        """The words of the command line for a worker: paths of the repository relative to where pytest was started."""
        start = self.config.invocation_params.dir
        words = [_relative(word, top, start) for word in given]
        if self.reference:
            words.append(f"--ftgate-against={self.reference}")
        classes = len(set(self.scheduler.classes.values()))
        if classes > 1:  # each test is judged so many times, and the error budget is the run's
            words += ["-o", f"ftgate_alpha={options_of(self.config).alpha / classes!r}"]
        return words

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which host it is on."""
        node.workerinput["ftgate_host"] = next(host.name for host in self.hosts if host.spec is node.gateway.spec)

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self) -> HostScheduler:
        """Whole tests, each on one host of each class."""
        return self.scheduler

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Nothing more goes to a host whose worker died."""
        if error:
            self.scheduler.host_down(node.workerinput["ftgate_host"])

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Say where and what was lost."""
        host = report.node.workerinput["ftgate_host"]
        lost = f"host {host} was lost while it measured {test_of(crashitem)}"
        report.longrepr = f"{lost}: the connection or the worker there ended"
        self.scheduler.lost.append(f"{lost}, which is missing")

    def _restarted(self, node: Any) -> None:
        """In place of DSession._clone_node: a new worker only where the host still answers."""
        name = node.workerinput["ftgate_host"]
        host = next(each for each in self.hosts if each.name == name)
        if host.restarts < RESTARTS and host.answers():
            host.restarts += 1
            with contextlib.suppress(HostNotFound, OSError, EOFError):
                self.restart(node)
                self.scheduler.alive.add(name)
                return
        self.config.get_terminal_writer().line(f"host {name} does not answer: the run goes on without it")

    @hookimpl
    def ftgate_measured(self, session: pytest.Session) -> str:
        """Which tests were not measured, and on which host: such a run fails."""
        missing = "; ".join([*self.scheduler.lost, *self.scheduler.not_run()])
        if missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return missing

    def pytest_unconfigure(self) -> None:
        self.patch.undo()
        for host in self.hosts:
            host.close()


def _relative(word: str, top: Path, start: Path) -> str:
    """A word, or the value of `--option=VALUE`, relative to `start` if it is a path in the repository."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    if not Path(value).is_absolute() or not Path(value).is_relative_to(top):
        return word
    return f"{option}{equals}{os.path.relpath(value, start)}"
