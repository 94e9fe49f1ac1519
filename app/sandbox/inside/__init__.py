"""A machine whose commands are started from outside, a virtual machine or a container: what both have in common."""
