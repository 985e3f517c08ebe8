"""Features: known by their hooks alone, in the order of their names, those of other distributions after ours."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import pytest

from pytest_ftgate import features, hookspec


def names_of(kind: str, hook: str) -> list[str]:
    """The features that have a hook, in the order in which they are called."""
    plugins = hookspec.features(kind)
    called = reversed(getattr(plugins.hook, hook).get_hookimpls())
    return [each.plugin_name for each in called]


@pytest.mark.parametrize("kind", ["IN_A_RUN", "COMMANDS"])
def test_each_feature_that_is_listed_has_a_hook(kind: str) -> None:
    plugins = hookspec.features(kind)
    assert [name for name, plugin in plugins.list_name_plugin() if not plugins.get_hookcallers(plugin)] == []
    assert {name for name, _ in plugins.list_name_plugin()} == set(getattr(features, kind))


def test_they_are_called_in_the_order_of_their_names() -> None:
    assert names_of("COMMANDS", "ftgate_commands") == list(features.COMMANDS)
    assert names_of("IN_A_RUN", "ftgate_configure") == ["github", "hosts", "shards", "trust"]


def test_another_distribution_takes_part_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        @hookspec.hookimpl
        def ftgate_commands(self) -> None:
            """Add a command."""

    point = SimpleNamespace(group="ftgate", name="theirs", load=Theirs)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [SimpleNamespace(entry_points=[point])])
    assert names_of("COMMANDS", "ftgate_commands") == [*features.COMMANDS, "theirs"]
