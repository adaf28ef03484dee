"""Put the agent into a program that runs already, and take it out again."""
