"""Git repositories: the trusted store, remotes, merges, and the code index."""
