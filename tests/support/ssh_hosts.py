"""Hosts on this machine: network namespaces, each with a link of its own and an sshd in it."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("ip", "sshd", "ssh", "ssh-keygen", "unshare", "mount")
SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
ClientAliveInterval 3
ClientAliveCountMax 2
"""
# The folder that sshd wants is its own: what is below /run elsewhere stays as it is.
START = "mount -t tmpfs none /run && mkdir /run/sshd && exec {sshd} -D -e -f {folder}/sshd_config -o ListenAddress={ip}"
NUMBERS = itertools.count()
OTHER_MACHINE = "import platform\nplatform.release = lambda: '1.0.0-other'\n"


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=30)


def unavailable() -> str:
    """Why there can be no such hosts here; empty if there can be."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if missing := [name for name in NEEDED if shutil.which(name, path=path) is None]:
        return f"no {', '.join(missing)} here"
    name = f"ftgtry{os.getpid()}"
    tried = _run("ip", "netns", "add", name, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    entered = _run(
        "ip", "netns", "exec", name, "unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run", check=False
    )
    _run("ip", "netns", "delete", name)
    return f"nothing may be mounted here: {entered.stderr.strip()}" if entered.returncode else ""


class SshHost:
    """A host: `spec` is what `--tx` takes; its cache folder is its own, its files are otherwise this machine's."""

    def __init__(self, name: str, number: int, folder: Path, *, other_machine: bool = False) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.space = f"ftg{os.getpid()}-{number}"
        self.link = f"fg{os.getpid()}n{number}"
        own = os.getpid() % 200
        self.ip, here = f"198.18.{own}.{4 * number + 2}", f"198.18.{own}.{4 * number + 1}"
        self.python = self.folder / "python"
        self.cache = self.folder / "cache"
        self._keys()
        self._python(other_machine)
        _run("ip", "netns", "add", self.space)
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        _run("ip", "address", "add", f"{here}/30", "dev", self.link)
        _run("ip", "link", "set", self.link, "up")
        for words in (("address", "add", f"{self.ip}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _run("ip", "-n", self.space, *words)
        _run("ip", "-n", self.space, "link", "set", "lo", "up")
        start = START.format(sshd=shutil.which("sshd", path="/usr/sbin:/sbin"), folder=self.folder, ip=self.ip)
        with (self.folder / "sshd.log").open("w") as log:
            command = ["ip", "netns", "exec", self.space, "unshare", "--mount", "sh", "-c", start]
            self.sshd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        self._await()

    @property
    def spec(self) -> str:
        """For `--tx`."""
        return f"ssh={self.name}//ssh_config={self.folder}/ssh_config//python={self.python}//id={self.name}"

    @property
    def checkouts(self) -> list[Path]:
        """The folders of projects on this host."""
        return sorted(path for path in (self.cache / "pytest-ftgate").glob("*") if path.is_dir())

    def cut(self) -> None:
        """Nothing reaches it any more; its processes run on."""
        _run("ip", "link", "set", self.link, "down")

    def processes(self) -> list[int]:
        """The processes on this host."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self.space).stdout.split()]

    def close(self) -> None:
        """End its processes and remove it."""
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.sshd.kill()
        self.sshd.wait()
        _run("ip", "link", "delete", self.link, check=False)
        _run("ip", "netns", "delete", self.space)

    def _keys(self) -> None:
        for name in ("host_key", "client_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=self.folder))
        lines = [
            f"Host {self.name}",
            f"HostName {self.ip}",
            f"User {getpass.getuser()}",
            f"IdentityFile {self.folder}/client_key",
            "IdentitiesOnly yes",
            "StrictHostKeyChecking no",
            f"UserKnownHostsFile {self.folder}/known_hosts",
            "LogLevel ERROR",
        ]
        (self.folder / "ssh_config").write_text("\n".join(lines) + "\n")

    def _python(self, other_machine: bool) -> None:
        hook = self.folder / "hook"
        hook.mkdir()
        if other_machine:
            (hook / "sitecustomize.py").write_text(OTHER_MACHINE)
        paths = f"{hook}:{Path(__file__).parent}"
        lines = [
            "#!/bin/sh",
            f"export PATH='{os.environ['PATH']}' XDG_CACHE_HOME='{self.cache}' PYTHONPATH='{paths}'",
            f"exec '{sys.executable}' \"$@\"",
        ]
        self.python.write_text("\n".join(lines) + "\n")
        self.python.chmod(0o755)

    def _await(self) -> None:
        words = ("ssh", "-F", str(self.folder / "ssh_config"), "-o", "BatchMode=yes", self.name, "true")
        for _ in range(50):
            if not (tried := _run(*words, check=False)).returncode:
                return
            time.sleep(0.1)
        raise AssertionError(f"{tried.stderr}\n{(self.folder / 'sshd.log').read_text()}")


@contextlib.contextmanager
def ssh_hosts(folder: Path, *names: str, other_machines: tuple[str, ...] = ()) -> Iterator[list[SshHost]]:
    """Hosts of these names; those of `other_machines` have another fingerprint."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for name in names:
            host = SshHost(name, next(NUMBERS), folder, other_machine=name in other_machines)
            stack.callback(host.close)
            hosts.append(host)
        yield hosts
