"""What containers and cloud machines share: their commands are started from outside."""
