"""Cards and grids as the control topics give them, hostile records included."""

from __future__ import annotations

import pytest
from streams import card, grid, some_rows

from attributary.schemas.card import Feature, ModelCard
from attributary.workers.stream.catalogue import ControlCatalogue


def _catalogue(*cards: ModelCard) -> ControlCatalogue:
    made = ControlCatalogue()
    for each in cards:
        made.add_card(each.model.encode(), each.to_bytes())
    return made


AB = card("a", "b")
GRID = grid(AB, some_rows("ab"))


def test_the_newest_card_holds_until_it_is_withdrawn() -> None:
    made = _catalogue(card("a"), AB)
    assert made.card("m") == AB
    assert made.card("n") is None
    made.add_card(b"m", None)
    assert made.card("m") is None
    made.add_card(b"never", None)
    made.add_card(None, None)


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"null", b"[" * 5000, b"\xff", b'{"model": ""}', b'{"model": "m", "windows": []}'],
)
def test_records_that_cannot_be_read_change_nothing(value: bytes) -> None:
    made = _catalogue(AB)
    made.add_grid(GRID.to_bytes())
    version = made.version
    made.add_card(b"m", value)
    made.add_grid(value)
    assert (made.version, made.card("m")) == (version, AB)
    assert made.epoch("m") is not None
    made.add_grid(None)


def test_the_first_grid_of_an_epoch_holds_and_the_newest_epoch_counts() -> None:
    made = _catalogue(AB)
    assert made.epoch("m") is None
    assert made.next_epoch("m") == 0
    other = GRID.model_copy(update={"rows": 999})
    made.add_grid(GRID.to_bytes())
    made.add_grid(other.to_bytes())
    first = made.epoch("m")
    assert first is not None
    assert first.record == GRID
    assert made.next_epoch("m") == 1
    made.add_grid(GRID.model_copy(update={"epoch": 1}).to_bytes())
    newest = made.epoch("m")
    assert newest is not None
    assert newest.record.epoch == 1
    assert made.epoch_of("m", 0) is first
    assert made.epoch_of("m", 2) is None
    assert made.epoch_in("m", 0, 8192) is newest


def test_a_grid_that_names_a_layout_it_does_not_share_is_ignored() -> None:
    made = _catalogue()
    made.add_grid(GRID.to_bytes())
    for changes in (
        {"epoch": 1, "layout": 0, "pane_ms": 5000},
        {"epoch": 1, "layout": 0, "samples": 4},
        {"epoch": 1, "layout": 0, "compression": 300},
        {"epoch": 1, "layout": 0, "outputs": ["z"]},
        {"epoch": 1, "layout": 7},
    ):
        made.add_grid(GRID.model_copy(update=changes).to_bytes())
    assert made.next_epoch("m") == 1
    made.add_grid(GRID.model_copy(update={"epoch": 1, "layout": 0}).to_bytes())
    assert made.next_epoch("m") == 2


def test_a_grid_whose_categorical_lacks_other_levels_is_ignored() -> None:
    made = _catalogue()
    of = card(Feature(name="k", kind="categorical", levels=["x"]))
    good = grid(of, [row for row in some_rows(["k"]) if row])
    made.add_grid(
        good.model_copy(
            update={
                "columns": good.columns[:1],
                "x_edges": good.x_edges[:1],
                "x_reference": good.x_reference[:1],
            }
        ).to_bytes()
    )
    assert made.epoch("m") is None


def test_a_card_that_needs_other_columns_leaves_the_model_without_an_epoch() -> None:
    made = _catalogue(AB)
    made.add_grid(GRID.to_bytes())
    changed = card("a", "b", "c")
    made.add_card(b"m", changed.to_bytes())
    assert made.epoch("m") is None
    assert made.next_epoch("m") == 1
    made.add_grid(grid(changed, some_rows("abc"), number=1).to_bytes())
    assert made.epoch("m") is not None
    made.add_card(b"m", AB.to_bytes())
    assert made.epoch("m") is None


def test_strictness_follows_the_card_whichever_came_first() -> None:
    strict = card("a", "b", strict=True)
    for made in (_catalogue(strict), _catalogue(AB)):
        made.add_grid(GRID.to_bytes())
        made.add_card(b"m", strict.to_bytes())
        found = made.epoch("m")
        assert found is not None
        assert found.layout.strict
        assert made.epoch("m") is found
        made.add_card(b"m", AB.to_bytes())
        relaxed = made.epoch("m")
        assert relaxed is not None
        assert not relaxed.layout.strict


def test_two_workers_that_learn_of_a_card_one_after_the_other_settle_on_its_layout() -> None:
    """The slower one must not answer the new layout with the old card's."""
    changed = card("a", "b", "c")
    fast, slow = _catalogue(AB), _catalogue(AB)
    first = grid(AB, some_rows("ab")).model_copy(update={"cards": 1})
    fast.add_card(b"m", changed.to_bytes())
    assert (fast.cards_read, slow.cards_read) == (2, 1)
    wider = grid(changed, some_rows("abc"), number=1).model_copy(update={"cards": 2})
    for made in (fast, slow):
        made.add_grid(first.to_bytes())
        made.add_grid(wider.to_bytes())
        found = made.epoch("m")
        assert found is not None
        assert found.record.epoch == 1
    slow.add_card(b"m", changed.to_bytes())
    assert slow.epoch("m") is not None
    slow.add_card(b"m", AB.to_bytes())  # a card of its own, which it has read
    assert slow.epoch("m") is None


def test_a_models_topic_that_was_made_anew_does_not_keep_old_layouts() -> None:
    made = ControlCatalogue()
    made.add_grid(grid(AB, some_rows("ab")).model_copy(update={"cards": 57}).to_bytes())
    made.add_card(b"m", card("a", "b", "c").to_bytes(), 3)
    assert made.epoch("m") is not None
    made.complete()
    assert made.epoch("m") is None
