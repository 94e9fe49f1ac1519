"""The HTTP gateway through which an external agent reaches its model."""
