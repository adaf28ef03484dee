"""Names and places that a program's source shows, and those it does not."""

import os
import textwrap
import time

import pytest

from profiler.recorder.program import MOST_BYTES, ProgramSource


class Written:
    """A program in a file; a line is named by a part of its text."""

    def __init__(self, path, text):
        self.path = path
        path.write_text(textwrap.dedent(text))
        os.utime(path, (1, 1))

    def line(self, text):
        (number,) = [n for n, line in enumerate(self.path.read_text().splitlines(), 1) if text in line]
        return {"file": str(self.path), "line": number}

    def model(self, *callers, by=(), name="Net", optimizer=10, trainable=10):
        """Return name and line of the variable of a model whose optimizer was created on these lines."""
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


def test_model_and_optimizer_are_found_in_a_plain_script(written):
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


def test_model_and_optimizer_are_found_inside_a_class(written):
    source = written("""
        net = Other()
        class Training:
            def __init__(self):
                self.net: nn.Module = Net()
                self.opt = SGD(self.net.parameters())
    """)

    assert source.model("self.opt") == ("self.net", 5)
    assert source.optimizer == "self.opt"


def test_model_is_found_through_separate_parameter_groups(written):
    source = written("""
        def main():
            model = Net(config)
            decayed = [p for n, p in model.named_parameters() if "bias" not in n]
            optimizer = AdamW([{"params": decayed}])
    """)

    assert source.model("optimizer = ") == ("model", 3)


def test_model_is_found_if_its_method_makes_the_optimizer(written):
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
def test_model_passed_to_a_framework_is_found(written, by, train, expected):
    source = written(f"""
        def main():
            net = Net()
            trainer = SomeTrainer(net, arguments)
            {train}
    """)

    assert source.model(train, by=[by])[0] == expected


def test_model_line_is_the_call_of_its_class_among_several(written):
    text = """
        if resumed:
            model = load(path)
        else:
            model = Net(config)
        optimizer = AdamW(model.parameters())
    """
    assert written(text).model("optimizer =") == ("model", 5)
    assert written(text.replace("load(path)", "Net.load(Net(path))")).model("optimizer =") == ("model", None)


def test_ambiguous_model_is_not_named(written):
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


def test_framework_configuration_call_is_found(written):
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
def test_saving_call_is_found_only_if_unique(written, second, found):
    source = written(f"""
        optimizer = SGD(model.parameters())
        torch.save(model, "a")
        {second}
    """)
    source.model("optimizer")

    assert [call["id"] for call in source.calls] == ["torch.save"] * found
    assert all(call["place"] == source.line("torch.save") for call in source.calls)


def test_ambiguous_framework_configuration_is_not_reported(written):
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
def test_unreadable_source_gives_no_names(written, spoil):
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
def test_damaged_fact_is_not_completed(kind, fact):
    assert ProgramSource(since=time.time()).complete(kind, dict(fact)) == []
