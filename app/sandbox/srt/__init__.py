"""Commands behind Anthropic's sandbox-runtime: the same contract on this machine, for a Mac above all."""
