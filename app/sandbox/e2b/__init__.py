"""Sandboxes in E2B's cloud: one virtual machine a key, closed to the network, behind the same contract."""
