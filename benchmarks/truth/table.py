"""The rows: what is run, what must be advised first, and what must not be advised above information.

C01 to C16 each have one thing wrong with them, HC1 to HC6 nothing. The base is a perceptron of five hidden layers of
768, batches of 16, SGD, one thread, 60 steps. Rows that also name a model have the same thing wrong with another one,
in several sizes: the result must not depend on one perceptron.
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class Row:
    id: str
    program: str
    """Name of a program in rows/."""
    order: tuple[str, ...] = ()
    """The rules that come first, in this order; none for a healthy row."""
    absent: tuple[str, ...] = ()
    """Patterns of ids that must not be above information."""
    model: str | None = None
    ranks: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    cores: int = 1
    """Number of cores that it needs."""
    within_cores: bool = False
    """Whether more workers than all cores but one must not be advised."""
    gains_from_threads: bool = False
    """Whether to skip it where a second thread makes no matmul faster."""
    uneven: bool = False
    """Whether its steps differ by nature: the advisor may then call them too few."""
    measured: bool = True
    """Whether its cure is also run."""
    repeats: int | None = None
    """Number of recordings, instead of the plan's."""
    quick: bool = False

    @property
    def words(self):
        """Return the program's arguments."""
        return [] if self.model is None else ["--model", self.model]

    @property
    def healthy(self):
        return not self.order


def sick(number, first, absent=(), **more):
    return Row(id=number, program=number.lower(), order=(first,), absent=absent, **more)


def healthy(number, **more):
    return Row(id=number, program=number.lower(), absent=("*",), measured=False, **more)


def on(row, model, **more):
    return replace(row, id=f"{row.id} {model}", model=model, **{"quick": False, **more})


C01 = sick("C01", "data-workers-zero", ("precision-*", "data-io-format", "zero-*"), quick=True)
C02 = sick("C02", "data-more-workers", ("data-workers-oversubscribed",), quick=True)
C03 = sick("C03", "data-workers-zero", cores=4, within_cores=True)
C04 = sick("C04", "data-workers-oversubscribed", ("data-more-workers",))
C05 = sick("C05", "data-persistent-workers", ("data-more-workers",))
C06 = sick("C06", "data-jitter-prefetch", ("data-more-workers",), uneven=True)
C07 = sick("C07", "host-logging", ("data-*",), quick=True)
C08 = sick("C08", "ckpt-interval-daly", ("ckpt-every-n",), quick=True)
C09 = sick("C09", "padding-waste", ("batch-raise",))
C10 = sick("C10", "debug-apis-on", ("compile-model",), quick=True)
C11 = sick("C11", "optimizer-fused", ("data-*",), quick=True)
C12 = sick("C12", "data-collate", ("data-more-workers",), quick=True)
C13 = sick("C13", "data-io-format", ("data-more-workers",))
C14 = sick("C14", "ddp-no-sync", ("zero-*",), ranks=2, cores=2)
C15 = sick("C15", "straggler-rank", ("comm-compress*",), ranks=2, cores=2)
C16 = sick(
    "C16", "cpu-threads-misset", ("data-*",), environment={"OMP_NUM_THREADS": "1"}, cores=2, gains_from_threads=True
)
BOTH = Row(
    id="C01+C07", program="c01_c07", order=("data-workers-zero", "host-logging"), absent=("precision-*", "zero-*")
)
SICK = (C01, C02, C03, C04, C05, C06, C07, C08, C09, C10, C11, C12, C13, C14, C15, C16, BOTH)

HC1, HC2 = healthy("HC1", quick=True), healthy("HC2", quick=True)
HC3, HC4 = healthy("HC3", uneven=True), healthy("HC4")
HC5, HC6 = healthy("HC5", quick=True), healthy("HC6")
HEALTHY = (HC1, HC2, HC3, HC4, HC5, HC6)

MODELS = (
    *("cnn-16", "cnn-32", "cnn-64"),
    *("lstm-32", "lstm-64", "lstm-128"),
    *("gpt-32", "gpt-64", "gpt-128"),
    *("vae-256", "vae-512", "vae-1024"),
    *("mlp-256", "mlp-1536"),
)
SMALL = ("cnn-16", "lstm-32", "gpt-32", "vae-256")
MEDIUM = ("cnn-32", "lstm-64", "gpt-64", "vae-512")

ELSEWHERE = (
    *(on(C01, model, repeats=1, measured=model in MEDIUM, quick=model == "gpt-64") for model in MODELS),
    *(on(C02, model, repeats=1, measured=False) for model in MEDIUM),
    *(on(C07, model, repeats=1, measured=model in ("cnn-16", "vae-256")) for model in SMALL + MEDIUM),
    *(on(C08, model, repeats=1, measured=model == "vae-512") for model in ("vae-256", "vae-512", "vae-1024")),
    *(on(C10, model, repeats=1, measured=model == "gpt-32") for model in SMALL),
)
HEALTHY_ELSEWHERE = tuple(on(HC1, model, repeats=3, quick=model == "cnn-32") for model in MODELS)

ROWS = (*SICK, *HEALTHY, *ELSEWHERE, *HEALTHY_ELSEWHERE)
