"""Target interpreters and their environments: found, described, installed. Start at `find.py`."""
