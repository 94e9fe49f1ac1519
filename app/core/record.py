"""The base class of everything that is stored or sent between processes: immutable, lossless in JSON."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable model. Unknown fields are ignored, so that what an older or newer version stored stays readable."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64")


class StrictRecord(Record):
    """A record that people write: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")
