"""A module of the program that has the name of one of ours."""

WHOSE = "mine"
