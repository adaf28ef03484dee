"""Python stacks of the training process and its loader workers, sampled from outside by py-spy."""
