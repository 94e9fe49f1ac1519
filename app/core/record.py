"""The base of every noun that crosses a durable boundary: frozen, closed, and the same after JSON and back."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable; an unknown field is an error, so that a stored record of another shape is never half-read."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
