"""Strict schemas of the kinds of operators and kustomize: what is used of them here, and nothing else."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import jsonschema
import kubernetes_validate

_KUBERNETES = "1.31"
_STRING: dict[str, Any] = {"type": "string", "minLength": 1}
_STRINGS = {"type": "array", "items": _STRING, "minItems": 1}
_LABELS = {"type": "object", "additionalProperties": _STRING, "minProperties": 1}
_NUMBER = {"type": "string", "pattern": "^[0-9]+$"}


def _of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _kind(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = _of({"name": _STRING}, namespace=_STRING, labels=_LABELS)
    return _of(
        {
            "apiVersion": {"const": version},
            "kind": {"const": kind},
            "metadata": metadata,
            "spec": spec,
        }
    )


_KAFKA_TRIGGER = _of(
    {
        "type": {"const": "kafka"},
        "metadata": _of(
            {
                "bootstrapServers": _STRING,
                "consumerGroup": _STRING,
                "topic": _STRING,
                "lagThreshold": _NUMBER,
                "tls": {"enum": ["enable", "disable"]},
                "sasl": {
                    "enum": ["plaintext", "scram_sha256", "scram_sha512", "oauthbearer", "none"]
                },
            },
            activationLagThreshold=_NUMBER,
        ),
        "authenticationRef": _of({"name": _STRING}),
    }
)
_SCALED_OBJECT = _of(
    {
        "scaleTargetRef": _of({"name": _STRING}),
        "minReplicaCount": {"type": "integer", "minimum": 1},
        "maxReplicaCount": {"type": "integer", "minimum": 1},
        "triggers": _listed(_KAFKA_TRIGGER),
    },
    cooldownPeriod={"type": "integer", "minimum": 1},
    pollingInterval={"type": "integer", "minimum": 1},
)
_TRIGGER_AUTHENTICATION = _of(
    {
        "secretTargetRef": _listed(
            _of(
                {
                    "parameter": {"enum": ["username", "password", "ca", "cert", "key"]},
                    "name": _STRING,
                    "key": _STRING,
                }
            )
        )
    }
)
_SERVICE_MONITOR = _of(
    {
        "selector": _of({"matchLabels": _LABELS}),
        "endpoints": _listed(
            _of({"port": _STRING}, interval={"type": "string", "pattern": "^[0-9]+s$"})
        ),
    },
    jobLabel=_STRING,
)
_RULE = {
    "oneOf": [
        _of({"record": _STRING, "expr": _STRING}, labels=_LABELS),
        _of(
            {
                "alert": _STRING,
                "expr": _STRING,
                "for": {"type": "string", "pattern": "^[0-9]+[smh]$"},
                "labels": _LABELS,
                "annotations": _LABELS,
            }
        ),
    ]
}
_PROMETHEUS_RULE = _of({"groups": _listed(_of({"name": _STRING, "rules": _listed(_RULE)}))})

_CUSTOM = {
    "ScaledObject": _kind("keda.sh/v1alpha1", "ScaledObject", _SCALED_OBJECT),
    "TriggerAuthentication": _kind(
        "keda.sh/v1alpha1", "TriggerAuthentication", _TRIGGER_AUTHENTICATION
    ),
    "ServiceMonitor": _kind("monitoring.coreos.com/v1", "ServiceMonitor", _SERVICE_MONITOR),
    "PrometheusRule": _kind("monitoring.coreos.com/v1", "PrometheusRule", _PROMETHEUS_RULE),
}

_BOOLEAN = {"type": "boolean"}
_PARTS: dict[str, Any] = {
    "namespace": _STRING,
    "resources": _STRINGS,
    "components": _STRINGS,
    "labels": _listed(
        _of({"pairs": _LABELS}, includeTemplates=_BOOLEAN, includeSelectors={"const": False})
    ),
    "images": _listed(_of({"name": _STRING, "newTag": _STRING}, newName=_STRING)),
    "patches": _listed(_of({"path": _STRING})),
    "configMapGenerator": _listed(
        _of(
            {"name": _STRING},
            envs=_STRINGS,
            files=_STRINGS,
            options=_of({}, disableNameSuffixHash=_BOOLEAN, labels=_LABELS),
        )
    ),
}
#: By kind.
KUSTOMIZATIONS = {
    kind: _of(
        {
            "apiVersion": {"const": f"kustomize.config.k8s.io/{version}"},
            "kind": {"const": kind},
        },
        **_PARTS,
    )
    for kind, version in (("Kustomization", "v1beta1"), ("Component", "v1alpha1"))
}


def schema_faults(instance: Any, schema: dict[str, Any]) -> list[str]:
    """Return what of ``instance`` the schema does not allow."""
    found = jsonschema.Draft202012Validator(schema).iter_errors(instance)
    return [f"{error.json_path}: {error.message}" for error in found]


def document_faults(doc: dict[str, Any]) -> list[str]:
    """Return what is wrong with one Kubernetes document by itself."""
    return list(_document_faults(json.dumps(doc, sort_keys=True)))


@lru_cache(maxsize=1024)
def _document_faults(text: str) -> tuple[str, ...]:
    doc = json.loads(text)
    kind = doc.get("kind")
    name = f"{kind} {doc.get('metadata', {}).get('name')}"
    if kind in _CUSTOM:
        return tuple(f"{name}: {fault}" for fault in schema_faults(doc, _CUSTOM[kind]))
    try:
        kubernetes_validate.validate(doc, _KUBERNETES, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return (f"{name}: {error}",)
    return ()
