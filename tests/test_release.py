"""What a release is checked for, says, and pins."""

import pytest

from deploy import release

CHANGELOG = """# Changelog

## [Unreleased]

- soon

## [1.2.0] - 2026-11-30

### Added

- It.

## [1.1.0]

- Old.
"""


def test_a_release_says_the_same_everywhere() -> None:
    release.check("v1.2.0", "1.2.0", CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("1.2.0", "1.2.0", "no release's tag"),
        ("v1.2", "1.2", "no release's tag"),
        ("v01.2.0", "01.2.0", "no release's tag"),
        ("v1.2.0;id", "1.2.0", "no release's tag"),
        ("v1.2.0", "1.1.0", "says 1.1.0"),
        ("v1.3.0", "1.3.0", "says nothing"),
        ("v1.1.0", "1.1.0", "no date"),
    ],
)
def test_a_release_that_does_not_is_refused(tag: str, version: str, why: str) -> None:
    with pytest.raises(release.ReleaseError, match=why):
        release.check(tag, version, CHANGELOG)


def test_notes_are_the_changelogs_section() -> None:
    assert release.notes("1.2.0", CHANGELOG) == "### Added\n\n- It.\n"
    assert release.notes("1.1.0", CHANGELOG) == "- Old.\n"
    assert release.notes("9.9.9", CHANGELOG) == ""


@pytest.mark.parametrize(("tag", "moves"), [("v1.2.3", "v1"), ("v0.4.0", "v0"), ("v2.0.0rc1", ""), ("latest", "")])
def test_a_pre_release_moves_no_tag(tag: str, moves: str) -> None:
    assert release.moving_tag(tag) == moves


def test_pins_are_whole_commits_of_our_action_alone() -> None:
    text = (
        "- uses: actions/checkout@v4 # v4\n"
        "- uses: agent-fix/agent-fix@v0 # zizmor: ignore[x] why\n- uses: a/agent-fix/sweep@v0\n"
    )
    made = release.pinned(text, "0.2.0", "b" * 40)
    assert made == (
        "- uses: actions/checkout@v4 # v4\n"
        f"- uses: agent-fix/agent-fix@{'b' * 40} # v0.2.0\n- uses: a/agent-fix/sweep@{'b' * 40} # v0.2.0\n"
    )
    with pytest.raises(release.ReleaseError, match="commit"):
        release.pinned(text, "0.2.0", "b" * 39)
    with pytest.raises(release.ReleaseError, match="does not use"):
        release.pinned("steps: []", "0.2.0", "b" * 40)
