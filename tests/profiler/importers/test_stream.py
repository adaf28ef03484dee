"""Reading: chunks of any size, truncated and damaged files, files of other tools."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from traces_made import KERNEL, Made, two_ranks

from profiler.errors import ProfilerError
from profiler.importers import kineto, stream
from profiler.importers.columns import CALL, OPERATOR
from profiler.importers.columns import KERNEL as WORK
from profiler.importers.kineto import read
from profiler.importers.stream import Stream


def made() -> Made:
    trace = Made(distributedInfo={"rank": 3, "world_size": 8, "backend": "nccl"})
    trace.step(0, 0, 100)
    for at in range(5, 95, 6):
        trace.host(
            'aten::"mm", }, { ] \\ \u00e9',
            at,
            at + 3,
            **{"Input Dims": [[2, 3], [], [[1], [2]]], "x": [{"a": 1}, {"b": 2}]},
        )
        trace.gpu(KERNEL, at + 3, at + 5, (at + 1, at + 2))
    return trace


def events(path):
    source = Stream(path)
    return [event for piece in source for event in piece], source


@pytest.mark.parametrize("piece", [1, 7, 64, 1000, 1 << 22])
def test_the_size_of_the_pieces_makes_no_difference(tmp_path, monkeypatch, piece):
    path = made().write(tmp_path / "t.json")
    monkeypatch.setattr(stream, "PIECE", piece)

    found, source = events(path)

    assert [event.name for event in found] == [event["name"] for event in made().events]
    assert (source.cut_off, source.unreadable) == ("", 0)
    assert source.about["distributedInfo"]["rank"] == 3
    assert source.about["traceName"] == "t.json"


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.pt.trace.json"])
def test_gzipped_and_plain_traces_are_read(tmp_path, name):
    trace = read(made().write(tmp_path / name))

    assert (trace.rank, trace.world_size, trace.problems) == (3, 8, ())
    assert trace.events == len(trace.ranges) == len(made().events)


@pytest.mark.parametrize("layout", [{"indent": 1}, {"separators": (",", ":")}, {"indent": "\t", "sort_keys": True}])
def test_any_json_formatting_is_read(tmp_path, layout):
    trace = made()
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": trace.events, **trace.about}, **layout))

    found = read(path)

    assert (found.events, found.rank, found.problems) == (len(trace.events), 3, ())


def test_bare_list_is_read_with_or_without_closing_bracket(tmp_path):
    path = tmp_path / "t.json"
    text = json.dumps(made().events)
    path.write_text(text)
    assert read(path).problems == ()

    path.write_text(text[:-1])
    assert read(path).events == len(made().events)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_events_before_any_truncation_are_read(tmp_path_factory, data):
    whole = made().text().encode()
    names = [event["name"] for event in made().events]
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "t.json"
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b'"args"') - 1

    if cut <= whole.index(b"["):
        with pytest.raises(ProfilerError):
            events(path)
        return
    found, source = events(path)

    assert [event.name for event in found] == names[: len(found)]
    assert len(found) >= complete
    assert source.unreadable == 0
    assert source.cut_off or whole[cut:].strip() == b""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_truncated_gzip_is_read_and_reported(tmp_path_factory, data):
    packed = gzip.compress(made().text().encode(), mtime=0)
    cut = data.draw(st.integers(0, len(packed) - 1))
    path = tmp_path_factory.mktemp("cut") / "t.json.gz"
    path.write_bytes(packed[:cut])

    try:
        trace = read(path)
    except ProfilerError:
        assume(False)

    assert events(path)[1].cut_off
    assert trace.problems
    assert 0 < len(trace.ranges) <= len(made().events)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_damaged_file_is_read_or_raises_profiler_error(tmp_path_factory, seed):
    chance = random.Random(seed)
    damaged = bytearray(gzip.compress(made().text().encode(), mtime=0) if seed % 2 else made().text().encode())
    for _ in range(chance.randint(1, 20)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    path.write_bytes(damaged)

    with suppress(ProfilerError):
        assert len(read(path).ranges)


def test_truncated_trace_is_reported_and_keeps_its_metadata(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(made().text()[:2000])

    trace = read(path)

    assert events(path)[1].cut_off
    assert len(trace.problems) == 1
    assert path.name in trace.problems[0]
    assert trace.rank == 3


def test_name_with_unescaped_quotes_is_read(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(made().text().replace('"ProfilerStep#0"', '"a "quoted" name"'))

    trace = read(path)

    assert trace.problems == ()
    assert trace.events == len(made().events)
    assert 'a "quoted" name' in trace.names


def test_event_with_invalid_json_does_not_affect_others(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(made().text().replace('"ProfilerStep#0"', '"a" 3'))

    trace = read(path)

    assert events(path)[1].unreadable == len(trace.problems) == 1
    assert trace.events == len(made().events) - 1


def test_nan_and_infinity_are_accepted(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        made().text().replace('"device": 0', '"est. achieved occupancy %": nan, "blocks per SM": -inf, "device": 0')
    )

    trace = read(path)

    assert (trace.events, trace.problems) == (len(made().events), ())


def test_event_without_numeric_duration_is_skipped(tmp_path):
    trace = made()
    trace.events[3]["dur"] = {"no": "number"}
    trace.events[4]["ts"] = "1000010.5"

    path = trace.write(tmp_path / "t.json")
    found = read(path)

    assert found.events == len(trace.events) - 1
    assert events(path)[1].unreadable == len(found.problems) == 1


def test_events_of_unknown_phase_are_skipped(tmp_path):
    """Some writers end their list with an empty event, so that every other event can end with a comma."""
    trace = made()
    trace.events += [{"ph": "?", "cat": "kernel", "ts": "then"}, {"cat": "kernel", "name": "k"}, {}]

    found = read(trace.write(tmp_path / "t.json"))

    assert found.events == len(trace.events)
    assert found.problems == ()
    assert len(found.ranges) == len(read(made().write(tmp_path / "without.json")).ranges)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"hello", "it is not JSON"),
        (b"\x89PNG\r\n", "it is not JSON"),
        (b'{"schema": "profile-train/result@1"}', "it contains no list of trace events"),
        (b'{"traceEvents": "none"}', "it contains no list of trace events"),
        (gzip.compress(b"hello", mtime=0), "it is not JSON"),
    ],
)
def test_file_that_is_not_a_trace_is_refused(tmp_path, content, why):
    path = tmp_path / "x.json"
    path.write_bytes(content)

    with pytest.raises(ProfilerError, match=why) as raised:
        read(path)

    assert raised.value.remedy == stream.NO_TRACE


@pytest.mark.parametrize("content", [b'{"traceEvents": []}', b"[]", b"[1, 2]", b'[{"a": 1}]'])
def test_trace_without_ranges_is_refused(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)

    with pytest.raises(ProfilerError, match="contains no ranges"):
        read(path)


def test_gzip_truncated_to_nothing_is_refused(tmp_path):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(made().text().encode())[:12])

    with pytest.raises(ProfilerError, match="No part of the trace") as raised:
        read(path)

    assert raised.value.remedy not in ("", stream.NO_TRACE)


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(ProfilerError, match="cannot be read: No such file"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize(("name", "rank"), [("trace_rank-12.json", 12), ("rank7.pt.trace.json", 7), ("t.json", None)])
def test_rank_falls_back_to_file_name(tmp_path, name, rank):
    trace = Made()
    trace.step(0, 0, 10)

    assert read(trace.write(tmp_path / name)).rank == rank


@pytest.mark.parametrize("behind", [b"\0\0", b"padding"])
def test_gzip_of_several_members(tmp_path, behind):
    text = made().text().encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:1500]) + gzip.compress(text[1500:]) + behind)

    trace = read(path)

    assert trace.events == len(made().events)
    assert trace.problems == ()


def test_older_category_names_are_recognized(tmp_path):
    trace = Made()
    trace.host("aten::mm", 0, 5, "Operator")
    trace.gpu(KERNEL, 3, 5, (1, 2), cat="Kernel")
    trace.events[-1]["cat"] = "Runtime"

    assert sorted(read(trace.write(tmp_path / "t.json")).ranges.category.tolist()) == [OPERATOR, CALL, WORK]


def test_times_are_integer_nanoseconds_from_first_event(tmp_path):
    trace = Made()
    trace.host("a", 0.125, 2.5)
    trace.host("b", 2.5, 4)

    ranges = read(trace.write(tmp_path / "t.json")).ranges

    assert (ranges.start.tolist(), ranges.end.tolist()) == ([0, 2375], [2375, 3875])


def test_two_ranks_are_read_as_two_traces(tmp_path):
    assert [kineto.read(path).rank for path in two_ranks(tmp_path)] == [0, 1]


def test_oversized_numbers_are_clamped_or_ignored(tmp_path):
    trace = Made()
    trace.gpu(KERNEL, 5, 9, (1, 2))
    trace.host("far", 1e300, 1e300)
    for event in trace.events[:2]:
        event["args"]["correlation"] = 2**64 - 1

    found = read(trace.write(tmp_path / "t.json")).ranges

    assert found.correlation.tolist() == [-1, -1, -1]
    assert found.start.tolist() == [0, 4000, 10**18 + 4000]
