"""Sentences about a thing that is first one, then the other: which it is in the end, order alone tells."""

import numpy as np

# fmt: off
THINGS = [
    "dinner", "film", "hotel", "room", "book", "song", "game", "lesson", "journey", "meeting",
    "show", "concert",
]
GOOD = [
    "good", "great", "excellent", "wonderful", "pleasant", "friendly", "brilliant",
    "charming", "beautiful", "fun",
]
BAD = ["bad", "terrible", "awful", "boring", "poor", "horrible", "ugly", "dull", "cold", "nasty"]
# fmt: on
BEGINNINGS = ("", "we think that", "last week", "my friends say", "of course")
#: X and Y are a good and a bad word, or a bad and a good one; the place of the one that counts.
TEMPLATES = {
    "the {thing} was not {X} but {Y}": "Y",
    "the {thing} was {X} before it was {Y}": "Y",
    "the {thing} was {X} and then became {Y}": "Y",
    "the {thing} was {X} after it was {Y}": "X",
    "the {thing} was {X} and not {Y}": "X",
}


def draw(count, rng):
    """Return ``count`` sentences (lists of words) and their labels: 1 where the good word counts.

    With X and Y changed, the same words have the other label: a bag of words is right in half.
    """
    sentences, labels = [], []
    templates = list(TEMPLATES.items())
    for _ in range(count):
        template, counts = templates[rng.integers(len(templates))]
        words = [GOOD[rng.integers(len(GOOD))], BAD[rng.integers(len(BAD))]]
        good_first = bool(rng.integers(2))
        first, second = words if good_first else words[::-1]
        thing = THINGS[rng.integers(len(THINGS))]
        text = template.format(thing=thing, X=first, Y=second)
        beginning = BEGINNINGS[rng.integers(len(BEGINNINGS))]
        sentences.append(f"{beginning} {text}".split())
        labels.append(int(good_first == (counts == "X")))
    return sentences, np.array(labels)
