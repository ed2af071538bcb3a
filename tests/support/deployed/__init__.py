"""What is deployed, checked without an engine or a cluster: ``faults(read_tree())`` is empty."""

from __future__ import annotations

from deployed.compose import compose_faults
from deployed.images import image_faults
from deployed.kubernetes import kubernetes_faults
from deployed.tree import Tree


def faults(tree: Tree) -> list[str]:
    """Return what is wrong with the files of ``tree``, each in one line that names the place."""
    return [*image_faults(tree), *compose_faults(tree), *kubernetes_faults(tree)]
