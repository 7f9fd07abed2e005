"""Versions of ``topic.json`` and ``lineage.json`` on an object store, as the first fields of the documents.

::

    {"revision": 12, "topic_uid": "7", "v": 1, "name": ...
    {"v": 1, "deleted": "7", "revision": 12}

The first is of a topic, the second of a deleted one. A directory has one leader at a time that renames documents. An
object store may apply a write late, so a document is replaced only by one of a higher revision, also after a deletion.
Readers of documents ignore the fields.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from seaweedmq.codec.state.documents import deleted_document

_HEADER = re.compile(rb'\{"revision": ([0-9]{1,20}), "topic_uid": "([0-9]{1,20})", ')
_DELETED_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """The version of a stored document."""

    uid: int
    """Uid of the topic."""
    revision: int
    """Revision of the metadata that it repeats (``coordination.view.ClusterView.version``), which only grows."""
    is_deleted: bool = False
    """Whether the document says that the topic was deleted."""


def with_version(content: bytes, version: DocumentVersion) -> bytes:
    """Return a document, a JSON object with at least one field, with its version."""
    assert content[:1] == b"{", f"no document: {content[:20]!r}"
    return b'{"revision": %d, "topic_uid": "%d", %b' % (version.revision, version.uid, content[1:].lstrip())


def deletion_document(version: DocumentVersion) -> bytes:
    """Return what replaces the documents of a topic that metadata of this revision does not have."""
    return json.dumps(json.loads(deleted_document(version.uid)) | {"revision": version.revision}).encode()


def version_of(content: bytes) -> DocumentVersion | None:
    """Return the version of a document; None for one that has none, or is damaged."""
    match = _HEADER.match(content)
    if match is not None:
        return DocumentVersion(uid=int(match[2]), revision=int(match[1]))
    if len(content) > _DELETED_BYTES_MAX:
        return None
    try:
        fields: Any = json.loads(content)
        return DocumentVersion(uid=int(fields["deleted"]), revision=int(fields.get("revision", 0)), is_deleted=True)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
