"""Calls that a training script itself must make to be watched, by tool: the lines that each manual asks for."""


def nobody(train, model, folder):
    return train


def profile_train(train, model, folder):
    """Mark the end of each step, as a loop without an optimizer must."""
    import checkout  # noqa: F401

    from profiler import step

    def watched(batch):
        train(batch)
        step()

    return watched


def traceml(train, model, folder):
    import traceml_ai

    traceml_ai.init(mode="auto")
    trace_step = traceml_ai.trace_step

    def watched(batch):
        with trace_step(model):
            train(batch)

    return watched


def torch_profiler(train, model, folder):
    """Record in cycles of five waiting steps, one of warm-up and three recorded: lighter than 1, 1 and 2, which torch's
    own page on `profile` shows. They continue to the end of the run, as the others watch all of it; each trace replaces
    the last."""
    from torch.profiler import ProfilerActivity, profile, schedule

    profiler = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(skip_first=10, wait=5, warmup=1, active=3),
        on_trace_ready=lambda found: found.export_chrome_trace(str(folder / "trace.json")),
    )
    profiler.start()

    def watched(batch):
        train(batch)
        profiler.step()

    return watched


WATCHES = {watch.__name__: watch for watch in (nobody, profile_train, traceml, torch_profiler)}
