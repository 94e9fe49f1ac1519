"""The base class of everything that is stored or sent between processes: immutable, strict, lossless in JSON."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable model that rejects unknown fields, so that a stored record of another shape is never half-read."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
