"""A cache with one lock."""

import threading

lock = threading.Lock()


def lookup(key):
    with lock:
        return key
