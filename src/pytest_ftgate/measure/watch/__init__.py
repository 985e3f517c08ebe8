"""What can be seen of a process from outside: memory, where threads wait, the waits of the lock probe."""
