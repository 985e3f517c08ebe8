"""Hides credentials in addresses and the values of secrets; makes digests that resist guessing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

HIDDEN: Final = "***"
"""Stands for what is not shown."""
SHORTEST: Final = 8
"""Shorter values of variables are not searched for in texts, because they are also parts of other words."""

_SECRET = r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private)[_-]?key)(?![a-z])"
_NAME = re.compile(rf"[\w-]{{0,60}}{_SECRET}[\w-]{{0,60}}", re.IGNORECASE)
# Texts may be JSON, whose strings end at a quotation mark: none of these goes beyond one, or over a backslash. Bounds
# keep the time of a search in proportion to the text.
_ADDRESS = re.compile(
    r'((?<![\w./-])//)(?!git@)(?:[^\s/?#"\\]{0,2000}'  # `user:password@`
    r'|[^\s/:@"\\]{0,200}:(?!\d*(?!\w)|\{)[^\s"\\]{0,200})@'  # a password with a slash: after the colon stands no port
)
_NAMED = re.compile(
    rf"((?i:(?:[?&]|(?<![\w-])--){_NAME.pattern}=|(?<![\w-])--{_NAME.pattern} )"  # in an address or a command line
    rf"|(?<![\w-])(?=[A-Z\d_]+=)(?i:{_NAME.pattern})="  # an environment variable
    r"|(?i:\bauthorization'?: ?'?(?:(?:basic|bearer|digest|token) )?))"
    r"""(?:'[^'"\\]*'|[^\s"'\\&]+)"""
)


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable's name says that its value is a secret, or the value is that of such a variable here."""
    return _names_secret(name) or value in _secrets()


@lru_cache(maxsize=1024)  # each text that is recorded asks for all variables
def _names_secret(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def without_secrets(text: str) -> str:
    """A text without credentials of addresses, without values that stand beside the name of a secret, and without
    those of this process's environment variables that are named so.
    """
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if "//" in text:  # a hundredth of what the expression takes
        text = _ADDRESS.sub(rf"\1{HIDDEN}@", text)
    if "=" in text or "--" in text or "uthorization" in text:
        text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return text


def _secrets() -> Iterator[str]:
    named = (os.environ[name] for name in os.environ if _names_secret(name))  # a look at a value decodes it
    return (value for value in named if len(value) >= SHORTEST)


@lru_cache(maxsize=4096)
def slow_digest(text: str, salt: str) -> str:
    """A digest that is the same for the same text and salt.

    The text may be known except for a short secret, so each guess takes some 50 ms and 16 MiB, and the salt makes
    guesses at one digest useless for another.
    """
    import hashlib  # every run of pytest imports this module

    return hashlib.scrypt(_bytes(text), salt=_bytes(salt), n=1 << 14, r=8, p=1, dklen=8).hex()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
