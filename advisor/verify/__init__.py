"""Try advice: run the recorded program with and without a change, in turns, and judge the outcome."""
