import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

import pytest

from profiler.agent import importing
from profiler.agent.importing import forget, when_imported


@pytest.fixture(autouse=True)
def _as_before(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield
    forget()
    for name in set(sys.modules) - before:
        del sys.modules[name]
    assert importing._watch not in sys.meta_path


@pytest.fixture
def module(tmp_path):
    """Return a function that writes an importable module and returns its name."""

    def write(name, text="VALUE = 1\n"):
        path = tmp_path.joinpath(*name.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
        importlib.invalidate_caches()
        return name

    return write


@pytest.fixture
def calls():
    return []


def test_module_already_imported_calls_back_at_once(calls):
    when_imported("sys", lambda: calls.append("sys"))
    assert calls == ["sys"]


def test_the_callback_comes_once_after_the_module_has_run(module, calls):
    name = module("later")
    when_imported(name, lambda: calls.append(sys.modules[name].VALUE))
    assert calls == []
    importlib.import_module(name)
    importlib.import_module(name)
    assert calls == [1]


def test_no_import_hook_remains_after_the_import(module, calls):
    finders = list(sys.meta_path)
    name = module("later")
    when_imported(name, lambda: calls.append(name))
    made = importlib.import_module(name)
    assert sys.meta_path == finders
    assert "exec_module" not in vars(made.__spec__.loader)
    importlib.reload(made)
    assert calls == [name]


def test_other_imports_are_unaffected(module, calls):
    when_imported(module("awaited"), lambda: calls.append("awaited"))
    other = importlib.import_module(module("other"))
    assert calls == []
    assert "exec_module" not in vars(other.__spec__.loader)


def test_distinguishes_submodules_from_packages(module, tmp_path, calls):
    module("package.__init__")
    module("package.part")
    for name in ("package", "package.part"):
        when_imported(name, lambda name=name: calls.append(name))
    importlib.import_module("package.part")
    assert calls == ["package", "package.part"]


def test_a_module_imported_by_its_package_calls_back_before_the_package(module, calls):
    """Like torch.utils.data.dataloader in torch: the agent waits for both at once."""
    module("package.__init__", "from package import part\n")
    module("package.part")
    for name in ("package", "package.part"):
        when_imported(name, lambda name=name: calls.append(name))
    importlib.import_module("package")
    assert calls == ["package.part", "package"]


def test_a_callback_may_wait_for_another_module(module, calls):
    module("first")
    module("second")
    when_imported("first", lambda: when_imported("second", lambda: calls.append("second")))
    importlib.import_module("first")
    importlib.import_module("second")
    assert calls == ["second"]


def test_find_spec_does_not_end_the_watch(module, calls):
    """Libraries call `find_spec("torch")` before anything imports torch."""
    name = module("asked")
    when_imported(name, lambda: calls.append(name))
    assert importlib.util.find_spec(name).name == name
    assert importlib.util.find_spec(name).name == name
    assert calls == []
    importlib.import_module(name)
    assert calls == [name]


def test_a_missing_module_is_still_awaited(module, calls):
    when_imported("absent", lambda: calls.append("absent"))
    assert importlib.util.find_spec("absent") is None
    with pytest.raises(ModuleNotFoundError, match="absent"):
        importlib.import_module("absent")
    importlib.import_module(module("absent"))
    assert calls == ["absent"]


def test_a_module_that_fails_calls_back_only_once_it_succeeds(module, calls):
    name = module("fragile", "raise RuntimeError('not yet')\n")
    when_imported(name, lambda: calls.append(name))
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(name)
    assert calls == []
    module(name, "VALUE = 'it is long enough for another size'\n")
    importlib.import_module(name)
    assert calls == [name]


def test_forgetting_ends_every_watch(module, calls):
    name = module("later")
    when_imported(name, lambda: calls.append(name))
    forget()
    importlib.import_module(name)
    assert calls == []


def test_namespace_package_is_imported_as_usual(tmp_path, calls):
    (tmp_path / "space").mkdir()
    when_imported("space", lambda: calls.append("space"))
    assert importlib.import_module("space").__path__
    assert calls == []  # there is no code that could call it back


class Slotted:
    __slots__ = ()

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.VALUE = 2


class Finds(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, Slotted()) if name == "slotted" else None


def test_a_loader_that_cannot_be_wrapped_is_left_alone(monkeypatch, calls):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finds()])
    when_imported("slotted", lambda: calls.append("slotted"))
    assert importlib.import_module("slotted").VALUE == 2
    assert calls == []


class AsksTheOthers(MetaPathFinder):
    """A finder that queries the other finders, as other tools' import hooks and a second agent do."""

    def __init__(self):
        self.asked = 0

    def find_spec(self, name, path=None, target=None):
        self.asked += 1
        assert self.asked < 10
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        return next(filter(None, specs), None)


def test_finder_that_queries_ours_causes_no_endless_loop(module, monkeypatch, calls):
    name = module("later")
    monkeypatch.setattr(sys, "meta_path", [AsksTheOthers(), PathFinder])
    when_imported(name, lambda: calls.append(name))
    assert importlib.import_module(name).VALUE == 1
    assert calls == [name]
    assert importing._watch not in sys.meta_path


def test_finder_ahead_of_ours_is_queried_once(module, calls, monkeypatch):
    name = module("later")
    asked = []

    class First:
        def find_spec(self, wanted, path=None, target=None):
            asked.append(wanted)

    when_imported(name, lambda: calls.append(name))
    monkeypatch.setattr(sys, "meta_path", [First(), *sys.meta_path])
    importlib.import_module(name)
    assert (asked.count(name), calls) == (1, [name])
    forget()


def test_the_programs_own_finder_stays_first(module, calls, monkeypatch):
    class First:
        def find_spec(self, name, path=None, target=None):
            return None

    first = First()
    monkeypatch.setattr(sys, "meta_path", [first, *sys.meta_path])
    name = module("later")
    when_imported(name, lambda: calls.append(name))
    assert sys.meta_path[0] is first
    importlib.import_module(name)
    assert calls == [name]
