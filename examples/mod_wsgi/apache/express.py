"""Replace this process by mod_wsgi-express of the same environment: `express.py SCRIPT --server-root FOLDER ...`.

Apache does not serve as root, and another user cannot read interpreters below root's home folder. So root becomes
`nobody` with one capability left, to open any file; any other user starts the server without a change.
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
    """The command that starts a program as `nobody`, which becomes the owner of the folder `server_root`."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        sys.exit(
            "Apache does not serve as root, and setpriv, which changes the user, is missing: apt install util-linux"
        )
    entry = pwd.getpwnam(USER)
    os.chown(server_root, entry.pw_uid, entry.pw_gid)
    identity = ["--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]
    return [setpriv, *identity, "--inh-caps", RIGHT, "--ambient-caps", RIGHT]


def main(argv):
    # Before a server imports it: threads contend for the reference counts of constants that a process compiles itself.
    compileall.compile_file("work.py", quiet=1)
    express = Path(sys.executable).with_name("mod_wsgi-express")
    command = [str(express), "start-server", *argv, "--host", "127.0.0.1", "--log-to-terminal"]
    if os.geteuid() == 0:
        command = [*as_nobody(argv[argv.index("--server-root") + 1]), *command]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
