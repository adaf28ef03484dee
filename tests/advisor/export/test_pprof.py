"""protobuf reads the profile back, with the field numbers of pprof's profile.proto."""

import gzip
from dataclasses import replace

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from profiles import RUN, metrics, rank

from advisor.export import pprof
from profiler.errors import ProfilerError
from profiler.schema import Stack

MESSAGES = {
    "Profile": "sample_type:1:ValueType* sample:2:Sample* location:4:Location* function:5:Function* "
    "string_table:6:string* time_nanos:9:int duration_nanos:10:int default_sample_type:14:int",
    "ValueType": "type:1:int unit:2:int",
    "Sample": "location_id:1:id* value:2:int* label:3:Label*",
    "Label": "key:1:int str:2:int num:3:int",
    "Location": "id:1:id line:4:Line*",
    "Line": "function_id:1:id line:2:int",
    "Function": "id:1:id name:2:int filename:4:int",
}
FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {"int": FIELD.TYPE_INT64, "id": FIELD.TYPE_UINT64, "string": FIELD.TYPE_STRING}
FRAMES = (("t.py", 5, "main", ""), ("torch/a.py", 200, "tanh", "torch"))


def read(data):
    """Return the profile of these bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            label, number, kind = field.split(":")
            several, kind = kind.endswith("*"), kind.removesuffix("*")
            one = message.field.add(name=label, number=int(number), label=3 if several else 1)
            one.type = TYPES.get(kind, FIELD.TYPE_MESSAGE)
            if kind not in TYPES:
                one.type_name = f".pprof.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))()
    made.ParseFromString(gzip.decompress(data))
    return made


def test_each_stack_is_a_sample_innermost_frame_first(tmp_path):
    forward = Stack(pid=1, id=0, phase="forward", frames=FRAMES, total=2.0, samples=20)
    fetch = Stack(pid=1, id=1, role="worker", phase="fetch", frames=FRAMES[:1], total=3.0, samples=300)
    recorded = metrics(rank(stacks=(forward, fetch)), runs=(replace(RUN, started_at=7.0),))
    pprof.write((), recorded, tmp_path / "stacks.pb.gz")
    made = read((tmp_path / "stacks.pb.gz").read_bytes())
    text = made.string_table
    functions = {one.id: (text[one.name], text[one.filename]) for one in made.function}
    places = {one.id: (*functions[one.line[0].function_id], one.line[0].line) for one in made.location}

    assert text[0] == ""
    assert [(text[one.type], text[one.unit]) for one in made.sample_type] == [
        ("samples", "count"),
        ("time", "nanoseconds"),
    ]
    assert text[made.default_sample_type] == "time"
    assert [[places[number] for number in one.location_id] for one in made.sample] == [
        [("tanh", "torch/a.py", 200), ("main", "t.py", 5)],
        [("main", "t.py", 5)],
    ]
    assert [list(one.value) for one in made.sample] == [[20, 2 * 10**9], [300, 3 * 10**9]]
    labels = [{text[one.key]: text[one.str] or one.num for one in sample.label} for sample in made.sample]
    assert labels == [{"role": "rank", "phase": "forward", "rank": 0}, {"role": "worker", "phase": "fetch", "rank": 0}]
    assert made.time_nanos == 7 * 10**9


def test_a_run_without_stacks_says_how_to_get_them(tmp_path):
    with pytest.raises(ProfilerError):
        pprof.write((), metrics(rank()), tmp_path / "stacks.pb.gz")
