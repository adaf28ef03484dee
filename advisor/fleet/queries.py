"""The SQL queries of a fleet, simple enough for DuckDB, ClickHouse, Spark and Trino alike.

`{hours}` is the column of hours, `gpu_hours` or `cpu_hours`: the two are never added. `{price}` is the price of a
GPU-hour, a number or NULL; if NULL, the price declared for each run counts. Runs without a GPU cost no money.
"""

from advisor.fleet.columns import CAUSES

DIMENSIONS = {"project": "project", "user": "user_name", "script": "script", "host": "host"}

LOST = " + ".join(f"coalesce(lost_{cause}, 0)" for cause in CAUSES)
MEASURED = f"coalesce({', '.join(f'lost_{cause}' for cause in CAUSES)})"

_SUMS = ", ".join(f"sum({{hours}} * lost_{cause}) AS hours_{cause}" for cause in CAUSES)
TOTALS = f"""count(*) AS runs, sum({{hours}}) AS hours, sum(gpu_hours * coalesce({{price}}, gpu_price)) AS money,
  sum(CASE WHEN {MEASURED} IS NOT NULL THEN {{hours}} END) AS measured,
  sum(CASE WHEN outcome IN ('failed', 'killed') THEN {{hours}} END) AS ended_badly,
  sum(gpu_hours * ({LOST}) * coalesce({{price}}, gpu_price)) AS lost_money, {_SUMS}"""
WEEK = "strftime(date_trunc('week', CAST(day AS DATE)), '%Y-%m-%d')"
"""The Monday of a day's week. Only for DuckDB: engines name weeks differently."""
WHERE = "{hours} IS NOT NULL AND day >= '{since}'"

ALL = f"SELECT {TOTALS} FROM runs WHERE {WHERE}"
"""Hours, and hours lost by cause."""

BY = (
    f"SELECT {{column}} AS name, {TOTALS} FROM runs WHERE {WHERE} GROUP BY {{column}} ORDER BY 3 DESC, 1 LIMIT {{most}}"
)
"""The same by a column, the largest first."""

STATUS = "SELECT status, count(*) AS runs FROM runs WHERE day >= '{since}' GROUP BY status ORDER BY status"

UNREAD = """SELECT folder, status, note FROM runs WHERE status <> 'complete' AND day >= '{since}'
ORDER BY imported_at DESC, folder LIMIT {most}"""

CHANGES = """
SELECT a.project AS project, a.script AS script, a.rule AS rule, min(a.title) AS title, count(*) AS runs,
  sum(a.{hours} * a.saves_alone) AS alone, sum(a.{hours} * a.saves_in_plan) AS in_plan
FROM advice a
JOIN (
  SELECT project, script, max(started) AS newest FROM runs
  WHERE plan_saves IS NOT NULL AND script IS NOT NULL AND day >= '{since}' GROUP BY project, script
) AS s ON a.script = s.script AND coalesce(a.project, '') = coalesce(s.project, '')
WHERE a.{hours} IS NOT NULL AND a.day >= '{since}'
GROUP BY a.project, a.script, a.rule HAVING max(a.started) >= max(s.newest)
ORDER BY 1, 2, 3
"""
"""Hours that a change to a script would have saved, if the newest run of the script still advises it."""

PLANS = """SELECT project, script, sum({hours} * plan_saves) AS hours FROM runs
WHERE plan_saves > 0 AND {hours} IS NOT NULL AND day >= '{since}' GROUP BY project, script ORDER BY 1, 2"""
"""Hours that all advice together would have saved, by script."""

COMPARABLE = """
SELECT work, commit_id, host, project, script, day, started, step_p50_s, folder FROM (
  SELECT r.*, row_number() OVER (PARTITION BY work, commit_id, host ORDER BY started DESC, run_id) AS recent
  FROM runs r
  WHERE work IN (
    SELECT work FROM runs WHERE work IS NOT NULL AND step_p50_s > 0 AND day >= '{since}'
    GROUP BY work HAVING count(*) >= {fewest} ORDER BY sum({hours}) DESC, work LIMIT {most}
  ) AND step_p50_s > 0 AND started IS NOT NULL AND day >= '{since}' AND (crowded IS NULL OR NOT crowded)
) AS numbered WHERE recent <= {each} ORDER BY work, commit_id, host, recent
"""
"""Step times of the newest runs of each commit and host, for the values of `work` with most hours."""

LOOK = f"""SELECT folder, project, user_name, script, host, started, outcome, {{hours}} AS hours,
  {", ".join(f"lost_{cause}" for cause in CAUSES)}
FROM runs WHERE {WHERE} AND (outcome IN ('failed', 'killed') OR {LOST} > 0)
ORDER BY {{hours}} * (CASE WHEN outcome IN ('failed', 'killed') THEN 1 ELSE {LOST} END) DESC, started DESC, folder
LIMIT {{most}}"""
"""Runs that wasted most hours: they ended badly, or lost hours to a cause."""

CELLS = f"""
SELECT {WEEK} AS week, project, user_name, script, host, {TOTALS}
FROM runs WHERE {WHERE} GROUP BY 1, 2, 3, 4, 5 ORDER BY hours DESC, 1, 2, 3, 4, 5 LIMIT {{most}}"""
"""The cells that the filters of the page add up."""
