"""Progress where there is no terminal to redraw: the log of a batch job."""

import pytest

from geomatt.cli import console


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves, and the lines printed."""
    lines: list[str] = []
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(console, "note", lines.append)
    return now, lines


def test_short_work_prints_no_lines(clock):
    now, lines = clock
    with console.bars() as tell:
        tell("reading", 0, 10)
        now[0] += 9
        tell("reading", 10, 10)
    assert lines == []


def test_lines_say_the_share_and_the_time_left_of_what_was_not_done_before(clock):
    now, lines = clock
    with console.bars() as tell:
        tell("dynamics", 500, 1000)  # continued in the middle
        now[0] += 20
        tell("dynamics", 600, 1000)
        tell("dynamics", 601, 1000)
        now[0] += 5
        tell("dynamics", 610, 1000)
    assert lines == ["dynamics  60% after 20 s, 1 min 20 s left"]


def test_what_was_restored_does_not_count_as_speed(clock):
    now, lines = clock
    with console.progress_bar("dynamics", 1000) as advance:
        advance(500)
        now[0] += 20
        advance(100)
    assert lines == ["dynamics  60% after 20 s, 1 min 20 s left"]


def test_long_work_prints_ever_fewer_lines(clock):
    now, lines = clock
    with console.bars() as tell:
        for second in range(36_001):
            now[0] = 100.0 + second
            tell("dynamics", second, 36_000)
    assert 60 <= len(lines) <= 80


def test_work_of_unknown_size_prints_no_share(clock):
    now, lines = clock
    with console.bars() as tell:
        tell("download", 0, None)
        now[0] += 60
        tell("download", 1, None)
    assert lines == []
