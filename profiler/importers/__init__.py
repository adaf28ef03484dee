"""Import recordings of other tools as the tables of a run."""
