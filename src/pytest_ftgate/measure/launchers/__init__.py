"""One launcher for each kind of program: a workload, a command, a server."""
