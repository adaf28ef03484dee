"""Notebooks: `%load_ext profiler`, then `%%profile_train` at the top of a cell that trains."""

import ast
import html
from pathlib import Path
from typing import Any

from profiler import ours
from profiler.session import profile

try:
    from IPython.core.error import UsageError
    from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
    from IPython.display import display
except ImportError as error:
    raise ImportError("These magics are for IPython, which is not installed: pip install ipython") from error

HEIGHT = 700
"""Height of the report in the notebook, in pixels."""


class Inline:
    """A report as a notebook displays it.

    It is shown in a sandboxed frame that runs its script but cannot access the notebook. The report's own
    Content-Security-Policy stays in effect.
    """

    def __init__(self, report: Path) -> None:
        self.report = report

    def __repr__(self) -> str:
        return f"The report is in {self.report}"

    def _repr_html_(self) -> str:
        document = html.escape(self.report.read_text(encoding="utf-8"))
        return (
            f'<iframe title="profile-train report" width="100%" height="{HEIGHT}" style="border: 0"'
            f' sandbox="allow-scripts allow-popups" srcdoc="{document}"></iframe>'
        )


@magics_class
class ProfileTrainMagics(Magics):
    """The notebook magics for recording and reports."""

    _last: Path | None = None
    """Folder of the last run."""

    @magic_arguments()
    @argument("--out", help="Run folder.  [profile-train-runs/<time>-<script>]")
    @argument("--budget", type=float, default=0.01, help="Share of the run time that torch.profiler windows may cost.")
    @argument("--rate", type=float, default=10.0, help="Samples of GPUs and host per second.")
    @argument("--no-windows", dest="windows", action="store_false", help="Open no torch.profiler windows.")
    @argument("--no-report", dest="report", action="store_false", help="Only record.")
    @cell_magic
    def profile_train(self, line: str, cell: str) -> None:
        """Record the training in the cell and show the report."""
        recording = profile(**vars(parse_argstring(self.profile_train, line)))
        recording.summary = getattr(self.shell, "kernel", None) is None  # a notebook shows the report itself
        with recording as run:
            self._last = run.folder
            self._run(cell)
        if run.report_path and run.report_path.exists():
            display(Inline(run.report_path))

    @magic_arguments()
    @argument("run", nargs="?", type=Path, help="Run folder.  [the run of the last cell with %%profile_train]")
    @line_magic
    def profile_train_report(self, line: str) -> None:
        """Show the report of a run."""
        folder = parse_argstring(self.profile_train_report, line).run or self._last
        report = folder and ours.where(folder, "report.html")
        if report is None or not report.exists():
            raise UsageError(
                f"There is no report{f' in {folder}' if folder else ''}. "
                "Train in a cell with %%profile_train, or name the folder of a run."
            )
        display(Inline(report))

    def _run(self, cell: str) -> None:
        """Run the cell as IPython would: show its last expression, and let exceptions pass through."""
        shell: Any = self.shell
        source = "\n" + shell.transform_cell(cell)  # the magic's own line counts, too
        number = len(shell.history_manager.input_hist_parsed) - 1  # IPython 9 increments it before it runs a cell
        name = shell.compile.cache(source, number, raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        expressions = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(shell.compile(tree, name, "exec"), shell.user_ns)
        exec(shell.compile(ast.Interactive(expressions), name, "single"), shell.user_ns)
