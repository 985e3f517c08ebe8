"""Stored baselines: schema, file format, folder, update. Start at `schema.py`."""

__all__ = ["folder", "history", "joining", "names", "recording", "schema", "unused", "update"]
