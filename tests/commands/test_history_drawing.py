"""The drawing of a history: what is clipped, what is said of a change, and text that is not to be trusted."""

from __future__ import annotations

import pytest

from pytest_ftgate.features.history import drawing
from pytest_ftgate.features.history.series import History, HistoryPoint, LevelChange, series
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.store.schema import Recording


def point(
    value: float, half: float = 0.01, *, day: int = 1, commit: str = "c" * 40, level: float = 0.95
) -> HistoryPoint:
    return HistoryPoint(
        commit=commit,
        recorded_at=f"2026-05-{day:02d}T00:00:00+00:00",
        value=Interval(value=value, low=value - half, high=value + half, level=level),
    )


def drawn(*points: HistoryPoint, unit: str = "ratio", changes: tuple[LevelChange, ...] = (), last: int = 0) -> str:
    of = History(metric="wall", unit=unit, points=points, changes=changes)
    return drawing.render("t.py::test[c]", of, width=80, unicode=True, last=last)


def recording(*values: float, day: int, metric: str) -> Recording:
    return Recording(
        recorded_at=f"2026-05-{day:02d}",
        commit="c" * 40,
        build="b",
        executor="threads",
        workers=2,
        orders=tuple(range(len(values))),
        values={metric: values},
    )


def test_an_interval_that_is_too_wide_has_no_ends() -> None:
    lines = drawn(point(1.0), point(1.1), point(1.05, half=50.0)).splitlines()
    assert "├" not in lines[-2]
    assert "┤" not in lines[-2]
    assert "├" in lines[-4]
    assert max(map(len, lines)) <= 80


def test_one_launch_has_no_interval() -> None:
    assert "├" not in drawn(point(1.0, 0.0, level=0.0), point(1.1, 0.0, level=0.0))


def test_few_launches_have_a_range() -> None:
    lines = drawn(point(1.0, level=0.0), point(1.1)).splitlines()
    assert [line.endswith("┤  range") for line in lines if "├" in line] == [True, False]
    assert max(map(len, lines)) <= 80


def test_equal_values_are_drawn() -> None:
    assert drawn(point(1.0, 0.0), point(1.0, 0.0)).count("●") == 2


def test_a_change_before_the_last_ones_is_said() -> None:
    points = [point(1.0, day=1), point(1.0, day=2), point(2.0, day=3), point(2.0, day=4)]
    text = drawn(*points, changes=(LevelChange(index=1, ratio=2.0),), last=2)
    assert "─" * 78 not in text
    assert "changed  +100 % between cccccccccc (2026-05-01) and cccccccccc (2026-05-02)" in text
    assert "4 recordings, the last 2 shown" in text


def test_a_share_changes_by_points() -> None:
    low, high = [[0.0, 0.0, 0.01]] * 6, [[0.2, 0.21, 0.22]] * 6
    recordings = [recording(*each, day=day, metric="lock_wait") for day, each in enumerate(low + high, 1)]
    found = series(recordings, "lock_wait", fingerprint="m", build="b")
    assert found is not None
    (changed,) = found.changes
    assert (changed.index, changed.ratio) == (6, None)
    assert drawing.change(found, changed).startswith("+20.8 points between ")


def test_a_time_without_a_control_is_a_time() -> None:
    recordings = [recording(1e6, 1.1e6, day=day, metric="wall") for day in (1, 2)]
    found = series(recordings, "wall", fingerprint="m", build="b")
    assert found is not None
    assert (found.unit, drawing.label(found)) == ("time", "wall")
    assert "1.05 ms" in drawing.render("t", found, width=80, unicode=True)


def test_a_recording_without_the_metric_is_left_out() -> None:
    recordings = [recording(1.0, day=1, metric="uss"), recording(2.0, day=2, metric="cold")]
    found = series(recordings, "uss", fingerprint="m", build="b")
    assert found is not None
    assert len(found.points) == 1
    assert series(recordings, "pss", fingerprint="m", build="b") is None


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "\x1b]0;title\x07", "a\x00b"])
def test_text_of_files_does_not_reach_the_terminal_as_it_is(hostile: str) -> None:
    of = History(metric="wall", unit="time", build=hostile, points=(point(1.0, commit=hostile),))
    text = drawing.render(f"t.py::test[{hostile}]", of, width=80, unicode=True)
    assert not set(text) & {"\x1b", "\x07", "\x00"}
