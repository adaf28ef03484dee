"""Two recorded runs beside one another: what changed, and whether it is more than chance."""
