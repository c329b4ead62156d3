"""Discovery: meta-training of update rules by populations of agents."""
