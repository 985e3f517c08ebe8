"""`python -P -s .../pytest_ftgate/runner JOB`: one launch. Kept tiny, because spawned workers import it too."""

import os
import sys

if __name__ == "__main__":
    # Python has put this folder on sys.path, where its modules would hide others of the same name.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    from pytest_ftgate.runner.main import main

    raise SystemExit(main(sys.argv[1:]))
