"""The structure of a baseline file."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from ..errors import FtgateError
from ..model import BodyKind, Count, Launch, Machine, Reuse

INSTALLED = re.compile(r".*(?:^|/)(lib(?:64)?/python\d+\.\d+t?/.*)", re.DOTALL)
SCHEMA = 2
STATISTIC = 1
LONGEST_NAME = 180
"""Bytes of one file name; most file systems end at 255, and a suffix and a temporary name must fit."""


class BaselineError(FtgateError):
    """A stored baseline that cannot be read, kept or written; the text names the place and suggests a fix."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of what stands in a file: as strict as the model's, but what is at its default is left out."""


class StoredInterpreter(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """An interpreter without what names a place on one machine."""

    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool
    jit_enabled: bool
    pgo: bool
    lto: bool
    shared: bool
    debug: bool
    compiler: str
    build: str


class Recording(Stored, frozen=True, kw_only=True):
    """What one run left: when, of which commit, with which seed, and the launches of a Sample, each in its order.

    Launches are as they were measured, without what no metric reads: see `recording_of`.
    """

    recorded_at: str
    commit: str
    seed: int
    launches: tuple[Launch, ...]
    control: tuple[Launch, ...] = ()
    single: tuple[Launch, ...] = ()
    memory: tuple[Launch, ...] = ()
    locks: tuple[Launch, ...] = ()


class StoredCell(Stored, frozen=True, kw_only=True):
    """One cell on one machine and one build; the newest recording stands last."""

    interpreter: StoredInterpreter
    executor: str
    workers: Count
    recordings: Annotated[tuple[Recording, ...], msgspec.Meta(min_length=1)]
    body: BodyKind = "worker"
    reuse: Reuse = "fresh"
    measures: str = ""


class TestBaseline(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """One file: `cells` maps cell label -> `<fingerprint>/<build key>` -> stored cell."""

    __test__ = False

    schema: int
    statistic: int
    test: str
    machines: dict[str, Machine] = {}
    cells: dict[str, dict[str, StoredCell]] = {}
