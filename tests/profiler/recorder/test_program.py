"""Names and places that the source of a program shows, and those it does not."""

import os
import textwrap
import time

import pytest

from profiler.recorder.program import MOST_BYTES, ProgramSource


class Written:
    """A program in a file, whose lines are named by a piece of their text."""

    def __init__(self, path, text):
        self.path = path
        path.write_text(textwrap.dedent(text))
        os.utime(path, (1, 1))

    def line(self, text):
        (number,) = [n for n, line in enumerate(self.path.read_text().splitlines(), 1) if text in line]
        return {"file": str(self.path), "line": number}

    def model(self, *callers, by=(), name="Net", optimizer=10, trainable=10):
        """The fact of a model that is updated by an optimizer made on these lines."""
        program = ProgramSource(since=time.time())
        lines = [self.line(caller) for caller in callers]
        fact = {"id": 1, "parameters": optimizer, "callers": lines, "place": lines[0], "driven_by": list(by)}
        self.calls = program.complete("optimizer", fact)
        self.optimizer = fact["variable"]
        model = {"id": 1, "name": name, "parameters": trainable, "trainable": trainable}
        program.complete("model", model)
        return model.get("variable"), model.get("place", {}).get("line")


@pytest.fixture
def written(tmp_path):
    return lambda text: Written(tmp_path / "train.py", text)


def test_a_plain_program(written):
    source = written("""
        net = Net().cuda()
        net = DDP(net)
        opt = torch.optim.AdamW(
            net.parameters(),
            lr=1e-3,
        )
    """)

    assert source.model("opt = ") == ("net", 2)
    assert source.optimizer == "opt"


def test_inside_a_function_and_a_class(written):
    source = written("""
        net = Other()
        class Training:
            def __init__(self):
                self.net: nn.Module = Net()
                self.opt = SGD(self.net.parameters())
    """)

    assert source.model("self.opt") == ("self.net", 5)
    assert source.optimizer == "self.opt"


def test_parameters_that_were_put_together_before(written):
    source = written("""
        def main():
            model = Net(config)
            decayed = [p for n, p in model.named_parameters() if "bias" not in n]
            optimizer = AdamW([{"params": decayed}])
    """)

    assert source.model("optimizer = ") == ("model", 3)


def test_a_method_of_the_model_makes_the_optimizer(written):
    source = written("""
        class Net:
            def configure_optimizers(self):
                return AdamW(self.parameters())
        model = Net()
        optimizer = model.configure_optimizers()
    """)

    assert source.model("return AdamW", "optimizer = ") == ("model", 5)


@pytest.mark.parametrize(
    ("by", "train", "expected"),
    [
        ("lightning", "trainer.fit(net, loader)", "net"),
        ("transformers", "trainer.train()", "net"),
        ("deepspeed", "engine, *_ = deepspeed.initialize(model=net)", "net"),
        ("", "trainer.fit(net, loader)", None),
    ],
)
def test_frameworks_are_handed_the_model(written, by, train, expected):
    source = written(f"""
        def main():
            net = Net()
            trainer = SomeTrainer(net, arguments)
            {train}
    """)

    assert source.model(train, by=[by])[0] == expected


def test_of_several_makers_the_one_of_its_class(written):
    text = """
        if resumed:
            model = load(path)
        else:
            model = Net(config)
        optimizer = AdamW(model.parameters())
    """
    assert written(text).model("optimizer =") == ("model", 5)
    assert written(text.replace("load(path)", "Net.load(Net(path))")).model("optimizer =") == ("model", None)


def test_where_there_is_a_doubt_nothing_is_said(written):
    both = written("""
        optimizer = AdamW([*encoder.parameters(), *decoder.parameters()])
    """)
    assert both.model("optimizer") == (None, None)
    assert both.model("optimizer", optimizer=11) == (None, None)


def test_a_loader_that_a_framework_made_has_no_name(written):
    source = written("""
        loader = DataLoader(data)
        prepared = accelerator.prepare(loader)
    """)
    for text, via, name in (("loader = D", [], "loader"), ("prepared", ["accelerate"], None)):
        fact = {"id": 1, "place": {**source.line(text), "via": via}}
        ProgramSource(since=time.time()).complete("loader", fact)
        assert fact["variable"] == name


def test_the_call_that_configures_the_framework(written):
    source = written("""
        arguments = SFTConfig("out", per_device_train_batch_size=4, bf16=False, optim="adamw", lr=rate,
                              hub_token="hf_secret", run_name="mine")
        trainer = SFTTrainer(model, arguments)
        trainer.train()
    """)
    source.model("trainer.train", by=["transformers"])

    (call,) = source.calls
    assert (call["id"], call["name"], call["place"]) == ("transformers", "SFTConfig", source.line("SFTConfig"))
    assert call["settings"] == {"per_device_train_batch_size": "4", "bf16": "False", "optim": '"adamw"'}


@pytest.mark.parametrize(("second", "found"), [("", 1), ("torch.save(model, 'b')", 0)])
def test_the_only_call_that_saves(written, second, found):
    source = written(f"""
        optimizer = SGD(model.parameters())
        torch.save(model, "a")
        {second}
    """)
    source.model("optimizer")

    assert [call["id"] for call in source.calls] == ["torch.save"] * found
    assert all(call["place"] == source.line("torch.save") for call in source.calls)


def test_two_such_calls_are_none(written):
    source = written("""
        a, b = Trainer(max_epochs=1), Trainer(max_epochs=2)
        a.fit(model)
    """)
    source.model("a.fit", by=["lightning"])

    assert source.calls == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("optimizer = AdamW(model.parameters(\n"),
        lambda path: path.write_bytes(b"\x00\xff"),
        lambda path: path.write_text("optimizer = AdamW(model.parameters())\n" + "#" * MOST_BYTES),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: path.unlink(),
    ],
    ids=["syntax", "bytes", "size", "pipe", "gone"],
)
def test_what_cannot_be_read_tells_nothing(written, spoil):
    source = written("optimizer = AdamW(model.parameters())\n")
    line = source.line("optimizer")
    spoil(source.path)
    if source.path.exists():
        os.utime(source.path, (1, 1))

    fact = {"id": 1, "parameters": 1, "callers": [line], "place": line, "driven_by": []}
    assert ProgramSource(since=time.time()).complete("optimizer", fact) == []
    assert fact["variable"] is None


def test_a_file_that_has_changed_since_tells_nothing(written):
    source = written("optimizer = AdamW(model.parameters())\n")
    os.utime(source.path, (2_000, 2_000))
    fact = {"id": 1, "place": source.line("optimizer")}

    ProgramSource(since=1_999.0).complete("optimizer", fact)
    assert fact["variable"] is None


@pytest.mark.parametrize("fact", [{}, {"id": []}, {"id": 1, "place": 3}, {"id": 1, "callers": 3, "place": {"file": 1}}])
@pytest.mark.parametrize("kind", ["loader", "optimizer", "model", "flags"])
def test_a_damaged_fact_is_left_as_it_is(kind, fact):
    assert ProgramSource(since=time.time()).complete(kind, dict(fact)) == []
