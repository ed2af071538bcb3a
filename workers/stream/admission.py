"""Which models a merge counts, and keeps books of: there is room for so many, and names can be endless."""

from __future__ import annotations

from collections.abc import Callable, Collection

from attributary.schemas.manifest import Manifest, ModelCount

# Names that books are kept of, for each model: of rows that were rejected, say, and never had a model.
_NAMES_PER_MODEL = 2


class Admission:
    """Lets in the first ``most`` models whose sketches come; ``owns`` says whose sketches come here at all.

    ``report`` is told once that there is no room. ``merged`` below are the models that are in.
    """

    def __init__(
        self, most: int, owns: Callable[[str], bool], report: Callable[[str], None]
    ) -> None:
        self._most = most
        self.owns = owns
        self._report = report
        #: When a model was first heard of, in the broker's time.
        self.began: dict[str, int] = {}
        #: Models that were one too many, as far as they are told apart.
        self.refused: set[str] = set()

    def restore(self, began: dict[str, int], refused: Collection[str], models: int) -> None:
        """Begin where a snapshot of so many models was taken."""
        self.began = dict(began)
        if models >= self._most:  # else the limit has been raised
            self.refused = set(refused)

    def refuses(self, model: str, merged: Collection[str]) -> bool:
        """Say whether the model is one too many; once it is, it stays so."""
        if model in merged:
            return False
        if len(merged) < self._most and model not in self.refused:
            return False
        if not self.refused:
            self._report(
                f"model {model!r} is one too many: a merge of {self._most} models (merge.max_models) leaves "
                "its sketches out, and those of any other that is new"
            )
        if len(self.refused) < self._most:
            self.refused.add(model)
        return True

    def merges(self, model: str, merged: Collection[str]) -> bool:
        """Say whether the sketches of a model are merged here."""
        if model in merged:
            return True
        full = len(merged) >= self._most
        return self.owns(model) and not full and model not in self.refused

    def booked(self, manifest: Manifest, merged: Collection[str], clock: int) -> Manifest:
        """Return the manifest without models that no books are kept of.

        Others' sketches come to other partitions. Models that have had no row yet are remembered as far as
        there is room.
        """
        models = {
            name: count
            for name, count in manifest.models.items()
            if self._has_books(name, count, merged)
        }
        for name in models:
            self.began.setdefault(name, clock)
        if len(models) == len(manifest.models):
            return manifest
        return manifest.model_copy(update={"models": models})

    def _has_books(self, name: str, count: ModelCount, merged: Collection[str]) -> bool:
        if name in merged:
            return True
        if not self.owns(name) or len(merged) >= self._most:
            return False
        room = len(self.began) < _NAMES_PER_MODEL * self._most
        return bool(count.accepted) or name in self.began or room
