from pathlib import Path

import pytest

from untrimmed.search.store import listing
from untrimmed.search.store.records import VideoRecord

UNUSED = {
    "video_id": "",
    "content_hash": "",
    "size": 0,
    "mtime_ns": 0,
    "duration_s": 1.0,
    "width": 1,
    "height": 1,
    "num_frames": 1,
    "sampling": "",
    "encoder_identity": "",
    "model": "",
    "indexed_at": 0.0,
}


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/media/me/USB/trip/a.mp4", "/media/me/USB"),
        ("/mnt/disk/a.mp4", "/mnt/disk"),
        ("/Volumes/Photos 2/a.mp4", "/Volumes/Photos 2"),
        ("/data/videos/a.mp4", "/data"),
        ("/net/A/films/a.mp4", "/net/A"),
        ("/net/B/away/a.mp4", "/net/B/away"),
        ("/misc/disk/a.mp4", "/misc/disk"),
        ("/run/user/7/gvfs/smb-share:server=a/a.mp4", "/run/user/7/gvfs/smb-share:server=a"),
        ("/mnt/bare/a.mp4", "/mnt/bare"),
        ("/mnt/lived in/a.mp4", None),
        ("/mnt/lived in/trip/a.mp4", None),
        ("/home/me/Videos/trip/a.mp4", None),
    ],
)
def test_a_missing_drive_is_recognised_by_its_path(monkeypatch, path, root):
    """No existing folder is empty, and all but one contain another video that exists."""
    folders = {"/", "/mnt", "/mnt/lived in", "/media", "/media/me", "/Volumes", "/home", "/home/me", "/home/me/Videos"}
    folders |= {"/net", "/net/B", "/misc", "/run/user/7/gvfs"}
    existing = {f"{folder.rstrip('/')}/other.mp4" for folder in folders}
    folders.add("/mnt/bare")
    monkeypatch.setattr(listing, "is_deleted", lambda path: path not in existing)
    monkeypatch.setattr(listing, "_is_empty", lambda _: False)
    monkeypatch.setattr(Path, "is_dir", lambda self: str(self) in folders)
    records = [VideoRecord(path=path, **UNUSED) for path in (path, *existing)]
    deleted, missing = listing.find_deleted(records)
    assert [record.path for record in deleted] == ([] if root else [path])
    assert {str(folder) for folder in missing} == ({root} if root else set())
