"""Stored baselines: schema, file format, folder, update. Start at `schema.py`."""

__all__ = ["conversion", "folder", "names", "schema", "unused", "update", "values"]
