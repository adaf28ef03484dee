"""report.md: short, and safe to post."""

from dataclasses import replace

import pytest
from golden_report import empty, golden, hostile

from advisor.metrics.base import Need
from advisor.render import markdown


def test_it_says_what_was_found_and_what_to_do():
    text = markdown.render(golden())

    assert text.startswith("# A step takes 200 ms, 40% of it waiting for data.\n")
    assert "### 1. Use more DataLoader workers (do this, `data-more-workers`)" in text
    assert "\n`train.py:31`: num_workers: 2 \u2192 5\n\n```python\n" in text
    assert "    num_workers=5,  # was 2\n" in text
    assert "| Waiting for data | 80 ms | 40% |" in text
    assert "Record with a CUDA build of torch. (`zero-1-2`)" in text


def test_it_tells_what_falls_between_the_steps_the_prospect_and_the_problems():
    text = markdown.render(golden())

    assert "\nBetween the steps, of the run: evaluation 4.1%.\n" in text
    assert "\nA step: 200 ms now, 44.4 ms after the plan.\n" in text
    assert "- nvml: Power could not be read: not supported on this device. (3 times)" in text


def test_it_tells_regions_costs_what_rules_need_and_how_to_look_into_much_that_no_phase_holds():
    much = tuple(replace(p, seconds=0.1, share=0.5) if p.name == "other" else p for p in golden().phases)
    text = markdown.render(replace(golden(), phases=much))

    assert "\n| loss | 1,000 | 4.5 ms | 4.5 s |\n" in text
    assert "Saves: 10.1 of every 100 GPU-hours, worth 25.25. Cost of training: 4 to 12% less.\n" in text
    assert "failed. 1 of 6 rules could not be checked: 1 needs a GPU to train on.\n\n- Not measured" in text
    assert (
        "\nEverything else takes 50% of the step. To see what that is, put more parts of the loop under: with" in text
    )
    assert "Everything else takes" not in markdown.render(golden())


def test_what_takes_another_machine_is_asked_for_last():
    gpu = next(check for check in golden().checked if check.outcome == "not_measured")
    word = replace(gpu, rule="spot-switch", why="The discount was not declared", need=Need.DECLARATION)

    text = markdown.render(replace(golden(), checked=(gpu, word)))
    assert text.index("The discount was not declared") < text.index("The allocator's statistics were not recorded")


def test_a_tiny_share_needs_no_entity():
    overhead = replace(golden().overhead, fraction=1e-5)

    assert "recording cost under 0.1%" in markdown.render(replace(golden(), overhead=overhead))


def test_an_empty_run_is_told():
    assert "Nothing can be said without steady training steps." in markdown.render(empty())


@pytest.mark.parametrize("attack", ["<script>alert(1)</script>", "<img src=x>", "&lt;"])
def test_html_from_outside_stands_in_code_or_escaped(attack):
    fenced = False
    for line in markdown.render(hostile(attack)).splitlines():
        fenced ^= line.startswith("```")
        outside_code = "" if fenced else "".join(line.split("`")[::2])
        assert attack not in outside_code


def test_markup_from_outside_is_only_text():
    assert str(markdown.text("[a](javascript:b) **c** `d` _e_ snake_case |")) == (
        r"\[a\](javascript:b) \*\*c\*\* \`d\` \_e\_ snake_case \|"
    )


def test_code_that_holds_a_fence_gets_a_longer_one():
    assert str(markdown.fence("```\nx", "python")) == "````python\n```\nx\n````"
    assert str(markdown.code("a`b")) == "``a`b``"
