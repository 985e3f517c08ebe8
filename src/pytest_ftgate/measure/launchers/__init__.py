"""One launcher for each kind of program: a workload, a command, a server."""

__all__ = ["command", "cpus", "factory", "guard", "program_words", "runner_copy", "server"]
