"""Our GraphQL documents, and the fake's part of the schema, against GitHub's own schema as it publishes it."""

import pytest
from graphql import GraphQLSchema, build_schema, find_breaking_changes, parse, validate

from app.github.calls import CALLS
from tests.support.emulate.provision import Unavailable
from tests.support.github.graphql import SCHEMA
from tests.support.npm import member

PACKAGE = "@octokit/graphql-schema@15.26.1"
SHA256 = "053e74249dafce2118fd9b7ae499b067d57c5f910c57745699ac45108bc68d1e"


@pytest.fixture(scope="module")
def schema() -> GraphQLSchema:
    """GitHub's schema. It does not pass graphql-core's own rules in a few deprecated corners."""
    try:
        text = member(PACKAGE, SHA256, "schema.graphql").decode()
    except Unavailable as unavailable:
        pytest.skip(f"the GraphQL documents are NOT checked against GitHub's schema: {unavailable}")
    return build_schema(text, assume_valid=True, assume_valid_sdl=True)


@pytest.mark.parametrize(
    "document", [call.text for call in CALLS if call.text], ids=lambda text: text.split()[1].partition("(")[0]
)
def test_a_document_is_valid(schema: GraphQLSchema, document: str) -> None:
    assert validate(schema, parse(document)) == []


def test_a_wrong_document_is_noticed(schema: GraphQLSchema) -> None:
    assert validate(schema, parse("query { repository(owner: 1) { nonsense } }"))


def test_the_fake_speaks_a_part_of_githubs_schema(schema: GraphQLSchema) -> None:
    assert find_breaking_changes(SCHEMA, schema) == []
