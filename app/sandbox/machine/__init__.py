"""Machines whose commands are started from outside: what containers and cloud machines share."""
