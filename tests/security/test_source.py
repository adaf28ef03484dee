"""The source code: nothing that evaluates or unpickles, and no environment variables but those listed."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for package in ("profiler", "advisor") for path in (ROOT / package).rglob("*.py"))
TEMPLATES = sorted(
    path for path in (ROOT / "templates").rglob("*") if path.is_file() and path.parent.name != "__pycache__"
)

RISKY = {
    *("eval", "exec", "compile", "__import__", "pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "Markup"),
    *("os.system", "os.popen", "from_string", "load_extension", "enable_load_extension", "import_module", "shell"),
}

ALLOWED = {
    "advisor/cli/__init__.py": {"import_module": "one of COMMANDS"},
    "advisor/cli/export.py": {"import_module": "one of FORMATS"},
    "advisor/export/extra.py": {"import_module": "packages of the extra `export`, named in our own code"},
    "advisor/metrics/__init__.py": {"import_module": "the modules of our own package"},
    "advisor/settings/own_rules.py": {"import_module": "rules that the user has installed or named"},
    "advisor/testing.py": {"compile": "whether the code of advice is Python; it is not run"},
    "advisor/rules/__init__.py": {"import_module": "the modules of our own package"},
    "advisor/report/render/html.py": {"Markup": "our own style and scripts, and JSON in which `<` is escaped"},
    "advisor/report/render/templates.py": {"Markup": "text that has just been escaped"},
    "advisor/report/render/markdown.py": {"Markup": "text that has just been escaped"},
    "advisor/rules/compile_model.py": {"compile": "how torch.compile is spelled in the user's framework"},
    "advisor/rules/launch_bound_graphs.py": {"compile": "how torch.compile is spelled in the user's framework"},
    "profiler/agent/interventions/__init__.py": {"import_module": "one of the changes that we know"},
    "profiler/agent/interventions/compile.py": {"compile": "torch's, of the model: it is what is tried"},
    "profiler/agent/interventions/optimizer_8bit.py": {"import_module": "bitsandbytes"},
    "profiler/integrations/jupyter.py": dict.fromkeys(
        ("compile", "exec"), "the user's own cell, as a notebook runs it"
    ),
    "profiler/agent/bootstrap/sitecustomize.py": {
        "__import__": "the sitecustomize that Python would have run without us"
    },
}

STORED = {
    "CUDA_LAUNCH_BLOCKING": "whether it is set",
    "TORCH_DISTRIBUTED_DEBUG": "a debugging mode",
    "PYTORCH_ALLOC_CONF": "the allocator's settings",
    "PYTORCH_CUDA_ALLOC_CONF": "the allocator's settings",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "whether one is set"),
    **dict.fromkeys(("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), "a number"),
    **dict.fromkeys(("PALS_RANKID", "FLUX_TASK_RANK"), "a number"),
    **dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"), "a number"),
    **dict.fromkeys(("PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"), "a number"),
    **dict.fromkeys(("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"), "a number"),
    **dict.fromkeys(("PMI_SIZE", "PALS_SIZE", "FLUX_JOB_SIZE"), "a number"),
    **dict.fromkeys(("GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "SLURM_NODEID", "PALS_NODEID"), "a number"),
    **dict.fromkeys(("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"), "the folder's name"),
    "PMIX_NAMESPACE": "the folder's name",
    **dict.fromkeys(("FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"), "the folder's name"),
    "PET_NNODES": "whether there are several nodes",
}

USED = {
    "PROFILE_TRAIN_AGENT": "our own",
    "PROFILE_TRAIN_STACKS": "whether stacks are sampled",
    "PYTHONPATH": "to come in",
    **dict.fromkeys(("PROFILE_TRAIN_CALIBRATION", "XDG_DATA_HOME"), "where verdicts are kept"),
    "VIRTUAL_ENV": "which Python is meant",
    "CONDA_PREFIX": "which Python is meant",
    "CUDA_VISIBLE_DEVICES": "which GPUs are sampled",
    "CUDA_DEVICE_ORDER": "which GPUs are sampled",
    **dict.fromkeys(("KINETO_USE_DAEMON", "NSYS_PROFILING_SESSION_ID"), "another profiler may be at work"),
    **dict.fromkeys(
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        "whether an export has a place to go to",
    ),
    "TEARDOWN_CUPTI": "unset while a window ends",
    "KUBERNETES_SERVICE_HOST": "whether to speak of containers",
    "TENSORBOARD_LOGGING_DIR": "where the Trainer writes its events",
    **dict.fromkeys(("WANDB_MODE", "NEPTUNE_MODE", "CLEARML_OFFLINE_MODE"), "trackers stay offline in a trial"),
    **dict.fromkeys(("SWANLAB_MODE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"), "nothing goes out of a trial"),
    **dict.fromkeys(("COMET_START_ONLINE", "HF_HUB_DISABLE_TELEMETRY"), "trackers stay offline in a trial"),
    **dict.fromkeys(("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"), "trackers stay offline in a trial"),
}


def risks(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            yield from {name, name.rpartition(".")[2] if not name.startswith("re.") else ""}
            yield from (keyword.arg for keyword in node.keywords if keyword.arg == "shell")
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.module or "").partition(".")[0],
                *(alias.name for alias in node.names if alias.name != "Markup"),
            )


def test_risky_calls_occur_only_where_listed(subtests):
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        with subtests.test(name):
            assert RISKY & set(risks(ast.parse(path.read_text(encoding="utf-8")))) == set(ALLOWED.get(name, ()))


def test_risk_check_detects_each_risky_call():
    code = (
        "import pickle, yaml.x\nfrom marshal import loads\neval('1')\nsubprocess.run('x', shell=True)\nos.system('x')"
    )

    assert RISKY & set(risks(ast.parse(code))) == {"pickle", "yaml", "marshal", "eval", "shell", "os.system"}


def test_no_template_disables_escaping(subtests):
    unescaped = r"\|\s*safe\b|autoescape|Markup|innerHTML|insertAdjacentHTML|document\.write|outerHTML|eval\("
    for path in TEMPLATES:
        with subtests.test(path.name):
            assert not re.search(unescaped, path.read_text(encoding="utf-8"))


def test_template_environment_escapes():
    from advisor.report.render.templates import environment

    assert environment().autoescape is True


def variables(path):
    """Return the names of environment variables in a module that uses the environment."""
    source = path.read_text(encoding="utf-8")
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    names = {value for value in constants if isinstance(value, str) and re.fullmatch(VARIABLE, value)}
    return names if "environ" in source else set()


# O_CLOEXEC and similar names are flags of open; FULL_SHARD and similar names are FSDP's strategies.
VARIABLE = r"(?!O_|\w*SHARD)[A-Z]+(_[A-Z]+)+|RANK|PYTHONPATH"


def test_only_listed_environment_variables_are_read():
    assert set().union(*map(variables, SOURCES)) == {*STORED, *USED}
