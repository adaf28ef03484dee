from harness import DoesNotFire, Fires, NotMeasured, given

CASES = [
    Fires("TODO: just above the limit", given({})),
    DoesNotFire("TODO: just below the limit", given({})),
    NotMeasured("TODO: not measured", given({})),
]
