"""One file a form in which a report is shown; each sees a `Report` and nothing else."""
