"""The files of docs/examples: docs/containers.md shows them unchanged, and their programs can read them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from advisor.cli import group

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = DOCS / "examples"


def test_containers_page_shows_the_example_files_unchanged():
    blocks = re.findall(r"```\w+\n(.*?)```", (DOCS / "containers.md").read_text(), re.DOTALL)

    assert blocks == [
        (EXAMPLES / name).read_text()
        for name in ("Dockerfile", "job.yaml", "trainjob.yaml", "rayjob.yaml", "train.sbatch")
    ]


def test_job_runs_unprivileged_and_writes_only_to_its_volumes():
    claim, job = yaml.safe_load_all((EXAMPLES / "job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert (claim["kind"], job["kind"], pod["restartPolicy"]) == ("PersistentVolumeClaim", "Job", "Never")
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"claimName": claim["metadata"]["name"]}]
    out = container["args"][container["args"].index("--out") + 1]
    assert any(Path(mount["mountPath"]) in Path(out).parents for mount in container["volumeMounts"])
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize("name", ["trainjob", "rayjob"])
def test_every_pod_mounts_its_volumes(name):
    job = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    pods = list(pod_specs(job))

    assert pods
    for pod in pods:
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert "/runs" in {mount["mountPath"] for mount in container["volumeMounts"]}


def pod_specs(node):
    """Yield every mapping that has containers."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from pod_specs(child)
    if isinstance(node, dict) and "containers" in node:
        yield node


def instructions():
    """Return the Dockerfile's instructions: name and words, with continued lines joined."""
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def test_image_runs_as_unprivileged_user_with_exec_form_commands():
    found = instructions()

    assert [words for name, words in found if name == "USER"] == ["trainer"]
    last = [name for name, _ in found][-3:]
    assert last == ["USER", "ENTRYPOINT", "CMD"]
    assert all(isinstance(yaml.safe_load(words), list) for name, words in found if name in ("ENTRYPOINT", "CMD"))
    assert ":latest" not in dict(found)["FROM"]


@pytest.mark.process
def test_the_batch_script_parses():
    subprocess.run(["bash", "-n", EXAMPLES / "train.sbatch"], check=True)


def command_lines():
    _, job = yaml.safe_load_all((EXAMPLES / "job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    train = yaml.safe_load((EXAMPLES / "trainjob.yaml").read_text())["spec"]["trainer"]
    script = (EXAMPLES / "train.sbatch").read_text().replace("\\\n", " ")
    (step,) = [line for line in script.splitlines() if line.startswith("srun ")]
    entry = [yaml.safe_load(words) for name, words in instructions() if name in ("ENTRYPOINT", "CMD")]
    return {
        "Dockerfile": [*entry[0], *entry[1]],
        "job.yaml": [*container["command"], *container["args"]],
        "trainjob.yaml": [*train["command"], *train["args"]],
        "train.sbatch": shlex.split(step)[2:],
    }


@pytest.mark.parametrize("name", command_lines())
def test_example_command_lines_use_existing_options(name):
    """A wrong option exits with status 2 before the help is shown."""
    command, *words = command_lines()[name]
    program = next(index for index, word in enumerate(words) if word in ("torchrun", "train.py"))
    shown = CliRunner().invoke(group, ["run", *words[:program], "--help"])

    assert (command, shown.exit_code) == ("profile-train", 0), shown.output
