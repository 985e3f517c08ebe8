"""Contracts: their grammar, what is checked at collection, and their values."""

__all__ = ["check", "grammar"]
