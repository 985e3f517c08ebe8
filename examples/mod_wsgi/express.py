"""Become mod_wsgi-express of the same environment: `python express.py SCRIPT --server-root FOLDER --port N ...`.

Apache does not serve as root, and a plain change of user would lock it out of interpreters below root's home folder. So
root becomes `nobody` with one right left, to open any file; anyone else starts the server as what they are.
"""

from __future__ import annotations

import compileall
import os
import pwd
import shutil
import sys
from pathlib import Path

USER = "nobody"
RIGHT = "+dac_override"  # unlike dac_read_search, a container's root has it


def as_nobody(server_root):
    """The words that start a program as `nobody`, who gets the folder `server_root`."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        sys.exit("Apache does not serve as root, and setpriv is not there to change the user: apt install util-linux")
    entry = pwd.getpwnam(USER)
    os.chown(server_root, entry.pw_uid, entry.pw_gid)
    identity = ["--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]
    return [setpriv, *identity, "--inh-caps", RIGHT, "--ambient-caps", RIGHT]


def main(argv):
    # Before a server imports it: of code that a process compiles itself, the constants are counted by every thread.
    compileall.compile_file("work.py", quiet=1)
    express = Path(sys.executable).with_name("mod_wsgi-express")
    command = [str(express), "start-server", *argv, "--host", "127.0.0.1", "--log-to-terminal"]
    if os.geteuid() == 0:
        command = [*as_nobody(argv[argv.index("--server-root") + 1]), *command]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
