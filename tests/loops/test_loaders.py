"""Where the batches come from: no loader, streams, several loaders, new loaders every epoch, workers of every kind."""

from programs import QUIET_TRACKER

from profiler.schema import TAG_EPOCH_START, TAG_EVALUATION

SLEEP = 0.002

LOADERS = """
class Stream(IterableDataset):
    def __init__(self, samples): self.samples = samples
    def __iter__(self):
        index = 0
        while self.samples is None or index < self.samples:
            time.sleep(SLEEP)
            yield torch.full((8,), index / 100)
            index += 1

if __name__ == "__main__":
    model, optimizer = made()
    losses = [update(model, optimizer, torch.ones(4, 8)) for _ in range(8)]
    tell("without", steps=8, batches=0, losses=losses)

    losses = [update(model, optimizer, batch) for batch in DataLoader(Stream(40), 4)]
    tell("stream", steps=10, batches=10, losses=losses)

    losses = []
    for batch in DataLoader(Stream(None), 4):
        losses.append(update(model, optimizer, batch))
        if len(losses) == 7: break
    tell("endless", steps=7, batches=7, losses=losses)

    losses = []
    for one, other in zip(DataLoader(Slow(24), 4), DataLoader(Slow(12), 2)):
        losses.append(update(model, optimizer, torch.cat([one, other])))
    tell("zipped", steps=6, batches=12, losses=losses)

    losses = []
    for epoch in range(4):
        for batch in DataLoader(Slow(12), 4): losses.append(update(model, optimizer, batch))
    tell("recreated", steps=12, batches=12, epochs=4, losses=losses)

    training, validation = DataLoader(Slow(12), 4), DataLoader(Slow(9), 3)
    for epoch in range(3):
        for batch in training: losses.append(update(model, optimizer, batch))
        model.eval()
        with torch.no_grad():
            for batch in validation: losses.append(model(batch).mean().item())
        model.train()
    losses.append(update(model, optimizer, torch.ones(4, 8)))
    tell("validated", steps=10, batches=9, epochs=3, evaluated=3 * (9 * SLEEP + 3 * model.seconds), losses=losses)

    losses = []
    for batch in training:
        if len(losses) == 1:
            for _ in range(2):
                model.eval()
                with torch.no_grad():
                    for held in validation: model(held)
                model.train()
        losses.append(update(model, optimizer, batch))
    tell("validated inside", steps=3, batches=3, evaluated=2 * (9 * SLEEP + 3 * model.seconds), losses=losses)

    losses = []
    loader = DataLoader(Slow(16), 4, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        for batch in loader: losses.append(update(model, optimizer, batch))
    tell("persistent", steps=12, batches=12, epochs=3, losses=losses)
"""


def test_every_kind_of_loader_is_recorded(loop, run_both, parts):
    plain, profiled = run_both(loop(LOADERS))

    assert (plain.status, plain.out) == (profiled.status, profiled.out)
    found = parts(profiled)
    assert {name: part.total("batches") for name, part in found.items()} == {
        name: part.done.batches for name, part in found.items()
    }
    assert all(step.data_wait is None for step in found["without"].steps)
    for name in ("stream", "endless", "zipped", "recreated"):
        for step in found[name].steps:
            assert step.data_wait >= 4 * SLEEP
            assert step.forward >= SLEEP
            assert step.micro_steps == 1
    assert all(not part.tagged(TAG_EVALUATION) for name, part in found.items() if "validated" not in name)
    assert found["recreated"].tagged(TAG_EPOCH_START) == [0, 3, 6, 9]
    validated = found["validated"]
    assert validated.tagged(TAG_EVALUATION) == [3, 6, 9]
    assert validated.total("evaluation") >= validated.done.evaluated
    assert max(step.duration for step in validated.steps) < validated.done.evaluated
    inside = found["validated inside"]
    assert inside.tagged(TAG_EVALUATION) == [1]
    assert inside.total("evaluation") >= inside.done.evaluated
    assert inside.steps[1].data_wait >= 4 * SLEEP
    assert found["persistent"].tagged(TAG_EPOCH_START) == [0, 4, 8]
    assert len(profiled.workers) == 1
    # Of nine loaders, only the validation's is not a training loader.
    uses = [loader.training for loader in profiled.facts("loader")]
    assert uses.count(False) == 1
    assert uses.count(True) == len(uses) - 1
    assert profiled.facts("flags")[0].evaluation_grad is False


WORKERS = (
    QUIET_TRACKER
    + """
import multiprocessing

class Once(Slow):
    \"\"\"What it holds can be handed over one time only, as a connection or a lock of its own.\"\"\"
    pickled = 0
    def __reduce__(self):
        type(self).pickled += 1
        if self.pickled > 1: raise RuntimeError("pickled twice")
        return Slow, (self.samples,)

if __name__ == "__main__":
    context = sys.argv[1]
    model, optimizer = made()
    dataset = Once(32)
    losses = []
    for batch in DataLoader(dataset, 4, num_workers=1, multiprocessing_context=context):
        losses.append(update(model, optimizer, batch))
    tell(context, steps=8, batches=8, losses=losses, pickled=Once.pickled)
"""
)


def test_every_kind_of_worker_is_recorded_with_a_dataset_pickled_once(loop, start_plain, start_profiled, parts):
    program = loop(WORKERS)
    contexts = ("fork", "spawn", "forkserver")
    plain = [start_plain(program, context) for context in contexts]
    profiled = [start_profiled(program, context) for context in contexts]

    for context, one, other in zip(contexts, plain, profiled, strict=True):
        one, other = one.finish(), other.finish()
        assert (one.status, one.out) == (other.status, other.out)
        (part,) = parts(other).values()
        assert part.done.pickled == (context != "fork")
        assert part.total("batches") == 8
        (worker,) = other.workers
        assert [batch.samples for batch in other.tables.batches] == [4.0] * 8
        assert {batch.pid for batch in other.tables.batches} == {worker.pid}
        assert all(batch.duration >= 4 * SLEEP for batch in other.tables.batches)
        assert len(other.ranks) == 1
