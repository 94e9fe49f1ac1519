"""Recordings: what was recorded is played, by the step's name, and a file that is no recording is left alone."""

from pathlib import Path

import pytest

from app.llm.base import Message, Model, ModelAnswer, ModelInfo, ModelRequest, ToolCall, Usage
from app.llm.errors import ModelError
from app.llm.litellm import LiteLLMModel
from app.llm.registry import make_model, record_to
from app.llm.replay import ModelRecorder, RecordedModel
from tests.support.scripted_model import ScriptedModel, text

ASK = ModelRequest(messages=(Message(role="user", content="go"),))
INFO = ModelInfo("fake/one", 50_000, 5_000, input_price=3_000_000, cached_price=300_000, output_price=15_000_000)
ODD = ModelAnswer(
    content="a\u2028b\n\x85c \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    tool_calls=(ToolCall(id="c1", name="bash", arguments='{"command" : "ls\\n"}'),),
    finish_reason="tool_calls",
    usage=Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2, cost=11),
    model="fake/one",
)


async def record(path: Path, **answers: ModelAnswer) -> None:
    recorder = ModelRecorder(ScriptedModel(list(answers.values()), info=INFO), path, note="made in a test")
    await recorder.check()
    for key in answers:
        await recorder.complete(ASK, key=key.replace("_", "."))


async def refusal(model: Model, key: str = "") -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(ASK, key=key)
    return caught.value


async def test_recorded_answers_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("the plan"), turn_1=ODD)
    model = RecordedModel(path)
    await model.check()
    assert await model.complete(ASK, key="turn.1") == ODD
    assert (model.info.name, model.note, model.info.context_window) == ("recorded/fake/one", "made in a test", 50_000)
    assert (model.info.input_price, model.info.output_price, model.info.priced) == (3_000_000, 15_000_000, True)
    assert model.count(ASK) > 0


async def test_recorded_answers_are_found_by_key_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("p"), turn_1=text("1"), turn_2=text("2"))
    assert (await RecordedModel(path).complete(ASK, key="turn.2")).content == "2"
    model = RecordedModel(path)
    again = [(await model.complete(ASK, key="turn.1")).content for _ in range(2)]
    assert again == ["1", "1"]


async def test_text_is_streamed_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("one two three four"))
    heard: list[str] = []
    await RecordedModel(path).complete(ASK, key="plan", on_text=heard.append)
    assert "".join(heard) == "one two three four"
    assert len(heard) > 1


@pytest.mark.parametrize("key", ["turn.2", "review.1", ""])
async def test_unrecorded_call_is_refused_with_a_hint(tmp_path: Path, key: str) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("p"), turn_1=text("1"))
    found = await refusal(RecordedModel(path), key)
    assert (found.kind, found.reason) == ("give_up", "recording_ended")
    assert "turn.1" in found.message
    assert "--model" in found.hint


async def test_recording_continues_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("p"), turn_1=text("first"))
    with path.open("ab") as file:
        file.write(b'{"key": "turn.2", "answ')
    await record(path, turn_1=text("second"), turn_2=text("2"))
    model = RecordedModel(path)
    assert [(await model.complete(ASK, key=key)).content for key in ("plan", "turn.1", "turn.2")] == [
        "p",
        "second",
        "2",
    ]


async def test_recording_of_another_model_is_not_extended(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes, without an end of line")
    with pytest.raises(ModelError, match="another kind of file"):
        await ModelRecorder(ScriptedModel([]), notes).check()
    assert notes.read_text() == "my notes, without an end of line"
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("p"))
    before = path.read_bytes()
    with pytest.raises(ModelError, match="of fake/one, not of scripted"):
        await ModelRecorder(ScriptedModel([]), path).check()
    assert path.read_bytes() == before


async def test_unwritable_recording_is_refused_before_the_first_call(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        await ModelRecorder(ScriptedModel([]), tmp_path / "none" / "demo.jsonl").check()
    assert caught.value.reason == "recording_unwritable"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\xfe", "it is not text"),
        (b"hello\n", "line 1"),
        (b'{"recording": 2, "model": "m"}\n', "line 1"),
        (b'{"recording": 1, "model": "m"}\n{"key": "plan"}\n', "line 2"),
        (b'{"recording": 1, "model": "m"}\n\n{"key": "", "answer": {}}\n', "line 3"),
    ],
)
def test_invalid_recording_is_refused_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "demo.jsonl"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        RecordedModel(path)
    assert (caught.value.kind, caught.value.reason) == ("give_up", "bad_recording")


def test_missing_recording_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        make_model(f"recorded/{tmp_path}/none.jsonl", environment={})


async def test_a_recording_without_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path)
    with pytest.raises(ModelError, match="has no answers"):
        await RecordedModel(path).check()


async def test_model_name_selects_replay_or_recorder(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    await record(path, plan=text("p"))
    assert isinstance(make_model(f"recorded/{path}", environment={}), RecordedModel)
    assert isinstance(make_model("openai/gpt-4o", environment={}), LiteLLMModel)
    live = make_model("openai/gpt-4o", environment={})
    assert isinstance(record_to(path, live, of=live.info), ModelRecorder)
    recorded = make_model(f"recorded/{path}", environment={})
    assert record_to(tmp_path / "other.jsonl", recorded, of=live.info) is recorded
