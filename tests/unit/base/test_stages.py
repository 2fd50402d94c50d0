"""What Spark's UI is told of a job, and by whom."""

from __future__ import annotations

from omidpy.base.telemetry.stages import DESCRIPTION, GROUP, described, told


class Context:
    """A context of Spark's, as far as it takes words."""

    def __init__(self) -> None:
        self.said: dict[str, str | None] = {}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark calls it so
        """Return a word of this thread."""
        return self.said.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - see above
        """Say a word, or take it back."""
        self.said[name] = value


class Session:
    """A session, which has a context."""

    def __init__(self) -> None:
        self.sparkContext = Context()


class Connected:
    """A session of Spark Connect, which has none."""

    @property
    def sparkContext(self) -> Context:  # noqa: N802 - Spark calls it so
        """Raise, as Spark does."""
        raise NotImplementedError("JVM_ATTRIBUTE_NOT_SUPPORTED")


def test_a_block_has_a_name_and_the_thread_has_none_behind_it() -> None:
    """Whatever else runs in the thread is not called so."""
    session = Session()
    with described(session, "omidpy: this", group="r1"):
        assert session.sparkContext.said == {DESCRIPTION: "omidpy: this", GROUP: "r1"}
    assert session.sparkContext.said == {DESCRIPTION: None, GROUP: None}


def test_what_the_user_said_stands() -> None:
    """A group may be cancelled by its name."""
    context = Context()
    context.setLocalProperty(GROUP, "mine")
    context.setLocalProperty(DESCRIPTION, "my work")
    with described(context, "omidpy: this", group="r1"):
        assert context.said == {GROUP: "mine", DESCRIPTION: "my work"}
    assert context.said == {GROUP: "mine", DESCRIPTION: "my work"}


def test_a_session_without_a_context_runs_unnamed() -> None:
    """The work is done all the same."""
    with described(Connected(), "omidpy: this") as nothing:
        assert nothing is None


def test_tasks_are_told_words_within_a_block() -> None:
    """Those that are set, and that the thread does not say itself."""
    session = Session()
    session.sparkContext.setLocalProperty("mine", "1")
    with told(session, {"mine": "2", "theirs": "3", "nobody's": None}):
        assert session.sparkContext.said == {"mine": "1", "theirs": "3"}
    assert session.sparkContext.said == {"mine": "1", "theirs": None}
    with told(Connected(), {"theirs": "3"}) as nothing:
        assert nothing is None
