"""Notebooks: `%load_ext profiler`, then `%%profile_train` over a cell that trains."""

from __future__ import annotations

import ast
import html
from pathlib import Path
from typing import Any

from profiler.session import profile

try:
    from IPython.core.error import UsageError
    from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
    from IPython.display import display
except ImportError as error:
    raise ImportError("These magics are for IPython, which is not installed: pip install ipython") from error

HEIGHT = 700
"""Pixels of the report in the notebook."""


class Inline:
    """A report as a notebook shows it: in a frame that runs its script and reaches nothing of the notebook. Its own
    Content-Security-Policy stays in it."""

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
    """Recording and report in a notebook."""

    _last: Path | None = None
    """The folder of the last run."""

    @magic_arguments()
    @argument("--out", help="Run folder.  [profile-train-runs/<time>-<script>]")
    @argument("--budget", type=float, default=0.01, help="Share of run time that torch.profiler windows may cost.")
    @argument("--rate", type=float, default=10.0, help="Samples of GPUs and host a second.")
    @argument("--no-windows", dest="windows", action="store_false", help="Take no torch.profiler windows.")
    @argument("--no-report", dest="report", action="store_false", help="Only record.")
    @cell_magic
    def profile_train(self, line: str, cell: str) -> None:
        """Record what the cell trains, and show the report."""
        with profile(**vars(parse_argstring(self.profile_train, line))) as run:
            self._last = run.folder
            self._run(cell)
        if run.report_path and run.report_path.exists():
            display(Inline(run.report_path))

    @magic_arguments()
    @argument("run", nargs="?", type=Path, help="Run folder.  [that of the last cell with %%profile_train]")
    @line_magic
    def profile_train_report(self, line: str) -> None:
        """Show the report of a run."""
        folder = parse_argstring(self.profile_train_report, line).run or self._last
        if folder is None or not (folder / "report.html").exists():
            raise UsageError(
                f"There is no report{f' in {folder}' if folder else ''}. "
                "Train in a cell with %%profile_train, or name the folder of a run."
            )
        display(Inline(folder / "report.html"))

    def _run(self, cell: str) -> None:
        """As a cell is run by itself: its last expression is shown. What it raises passes through."""
        shell: Any = self.shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, shell.execution_count, raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        shown = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(shell.compile(tree, name, "exec"), shell.user_ns)
        exec(shell.compile(ast.Interactive(shown), name, "single"), shell.user_ns)
