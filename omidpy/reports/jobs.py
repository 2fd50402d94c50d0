"""Jobs that publish files: those that have begun to commit and not ended, and how they end."""

from __future__ import annotations

from typing import Any

from omidpy.committers.hadoop import leftovers, rescue
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore, Upload
from omidpy.committers.places import Folder, parse_object
from omidpy.committers.publishing import ending
from omidpy.committers.publishing.completing import Progress, unobserved
from omidpy.committers.values import Manifest


def half_published(objects: ObjectStore, folder: Folder) -> list[str]:
    """Return the addresses of the jobs below a folder that have begun to commit and not ended."""
    return leftovers.plan_addresses(objects, folder) + rescue.magic_folders(objects, folder)


def shown(objects: ObjectStore, address: str) -> tuple[Plan, dict[str, Any]]:
    """Return what a job was about to publish, and the same as JSON."""
    if rescue.is_magic(address):
        adopted = rescue.load(objects, address)
        more = {"tasks": adopted.tasks, "unready": adopted.unready or None}
        return adopted.plan, {**plan_document(adopted.plan), **more}
    found, _ = _loaded(objects, address)
    return found, plan_document(found)


def document(objects: ObjectStore, address: str) -> dict[str, Any]:
    """Return what a job was about to publish, as JSON."""
    return shown(objects, address)[1]


def resume_job(objects: ObjectStore, address: str, progress: Progress = unobserved) -> Manifest:
    """Finish a job whose driver has died: afterwards everything of it is visible."""
    if rescue.is_magic(address):
        return rescue.resume(objects, address, progress)
    return ending.resume(objects, _loaded(objects, address)[0], progress)


def roll_back_job(objects: ObjectStore, address: str, progress: Progress = unobserved) -> Plan:
    """Take back a job whose driver has died: afterwards nothing of it is visible."""
    if rescue.is_magic(address):
        return rescue.take_back(objects, address, progress)
    found, etag = _loaded(objects, address)
    ending.take_back(objects, found, etag, progress)
    return found


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """Return what a job has published as JSON."""
    return {
        "job": manifest.job_id,
        "destination": manifest.destination,
        "files": list(manifest.files),
        "bytes": manifest.bytes_written,
        "rows": manifest.rows,
        "replaced": manifest.replaced,
    }


def _loaded(objects: ObjectStore, address: str) -> tuple[Plan, str]:
    bucket, key = parse_object(address)
    return ending.load(objects, f"s3://{bucket}/{key}", bucket, key)


def upload_document(one: Upload) -> dict[str, Any]:
    """Return an upload as JSON."""
    return {"key": one.key, "upload_id": one.upload_id, "started_ms": one.started_ms}


def plan_document(found: Plan) -> dict[str, Any]:
    """Return a plan as JSON."""
    rows = [one.rows for one in found.files]
    return {
        "job": found.job_id,
        "plan": found.address,
        "destination": found.folder.url,
        "committer": found.committer,
        "state": found.state,
        "created_ms": found.created_ms,
        "bytes": sum(one.length for one in found.files),
        "rows": None if None in rows else sum(row for row in rows if row is not None),
        "files": [
            {
                "key": one.key,
                "bytes": one.length,
                "rows": one.rows,
                "upload_id": one.upload_id or None,
            }
            for one in found.files
        ],
        "removes": [one.key for one in found.old],
    }
