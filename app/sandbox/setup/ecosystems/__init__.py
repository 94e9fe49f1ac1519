"""One file per ecosystem: what a repository's manifests require to be installed."""
