"""Judge a run by the rules, rank the advice, and correct predictions by what trials have shown."""
