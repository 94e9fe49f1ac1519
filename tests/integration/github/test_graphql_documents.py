"""Our GraphQL documents, and the fake's part of the schema, against GitHub's own schema as it publishes it."""

import shutil
import subprocess
import tarfile

import pytest
from graphql import GraphQLObjectType, GraphQLSchema, build_schema, parse, validate

from app.github.calls import CALLS
from tests.support.github.graphql import SCHEMA

PACKAGE = "@octokit/graphql-schema@15.26.1"


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> GraphQLSchema:
    """GitHub's schema, brought by npm. It does not pass graphql-core's own rules in a few deprecated corners."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here: the GraphQL documents are NOT checked against GitHub's schema")
    directory = tmp_path_factory.mktemp("schema")
    command = [npm, "pack", "--silent", PACKAGE, "--cache", str(directory / "cache")]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"npm gives no {PACKAGE}: the GraphQL documents are NOT checked against GitHub's schema")
    (archive,) = directory.glob("*.tgz")
    with tarfile.open(archive) as packed:
        member = packed.extractfile("package/schema.graphql")
        assert member is not None
        text = member.read().decode()
    return build_schema(text, assume_valid=True, assume_valid_sdl=True)


@pytest.mark.parametrize(
    "document", [call.text for call in CALLS if call.text], ids=lambda text: text.split()[1].partition("(")[0]
)
def test_a_document_is_valid(schema: GraphQLSchema, document: str) -> None:
    assert validate(schema, parse(document)) == []


def test_a_wrong_document_is_noticed(schema: GraphQLSchema) -> None:
    assert validate(schema, parse("query { repository(owner: 1) { nonsense } }"))


def test_the_fake_speaks_a_part_of_githubs_schema(schema: GraphQLSchema) -> None:
    for name, kind in SCHEMA.type_map.items():
        if name.startswith("__") or not isinstance(kind, GraphQLObjectType):
            continue
        real = schema.type_map[name]
        assert isinstance(real, GraphQLObjectType), name
        for field, described in kind.fields.items():
            assert str(real.fields[field].type) == str(described.type), f"{name}.{field}"
            arguments = {key: str(argument.type) for key, argument in real.fields[field].args.items()}
            assert {key: str(argument.type) for key, argument in described.args.items()}.items() <= arguments.items()
