"""Reports as tests want them, and what a page says."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from results import DAY, LIFETIME, MAY, attribution, drift, hopping, score

from attributary.schemas.attribution import (
    FeatureScore,
    LightAgreement,
    Profile,
    WindowAttribution,
)
from attributary.service.model_board import ModelBoard
from attributary.service.report.collect import chapters
from attributary.service.report.page import page

HOSTILE = "</style></title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\x1b[31m\u202e"
PROFILE = Profile(
    edges=[1.0, 2.0, 3.0], mean=[0.5, None, 1.5, 2.5], stderr=[0.1, None, 0.1, 0.2],
    rows=[10, 0, 10, 10],
)  # fmt: skip


def features(*names: str) -> list[FeatureScore]:
    return [
        score(
            name, 0.9 - 0.1 * place, place + 1, effect=2.0 - place, effect_stderr=0.25,
            missing=0.125, mutual_information=0.3, profile=PROFILE if place == 0 else None,
        )
        for place, name in enumerate(names)
    ]  # fmt: skip


def with_books(message: WindowAttribution, **fields: Any) -> WindowAttribution:
    accounting = message.accounting.model_copy(update=fields)
    return message.model_copy(update={"accounting": accounting})


def full_board(*names: str, output: str = "arrival_delay") -> ModelBoard:
    board = ModelBoard("flight-delay")
    message = attribution(hopping(MAY), output=output, features=features(*names))
    board.add(
        with_books(
            message,
            rows_rejected={"wrong_type": 12, "far_future": 3},
            offsets={"attributary.rows/0": (0, 4711)},
            gaps=2,
            rows_late=9,
            fractions=[0.25, 1.0],
            rows_thinned=321,
        ).model_copy(
            update={
                "light_agreement": LightAgreement(
                    rows=800, rows_light=200, fractions=[0.25], jaccard_at_8=0.75, kendall=0.91,
                    spearman=0.95, procrustes=0.02, symmetric_kl=0.01,
                )
            }
        )
    )  # fmt: skip
    found = drift(hopping(MAY), output=output)
    board.add(found)
    board.add(
        found.model_copy(
            update={"reference": "preceding", "reference_window": hopping(MAY - 7 * DAY)}
        )
    )
    return board


def made(board: ModelBoard, **choice: Any) -> str:
    return page(board.name, chapters(board, **choice), made_at=MAY, top=20)


class Words(HTMLParser):
    """The page's elements, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def unsure(name: str, value: float, rank: int, **other: Any) -> FeatureScore:
    """A score whose interval includes 1/2."""
    found = score(name, value, rank, **other)
    limits = (value - 0.132, value + 0.131)
    return found.model_copy(update={"interval": limits, "strength_low": 0.0})


def document_of(*scores: FeatureScore, top: int = 20) -> str:
    board = ModelBoard("m")
    board.add(attribution(LIFETIME, features=list(scores)).model_copy(update={"groups": []}))
    return page("m", chapters(board), made_at=MAY, top=top)
