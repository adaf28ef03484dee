"""Write a change that a trial made from outside as a patch of the program's source."""
