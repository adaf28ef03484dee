"""Detect files on remote filesystems. SQLite's write-ahead log is unsafe there, because its index is shared memory."""

import re
from pathlib import Path

# Linux's names of filesystems that several machines may have mounted. FUSE filesystems count, except those known to be
# local.
REMOTE = re.compile(
    "(nfs.*|cifs|smb.*|lustre|gpfs|beegfs.*|ceph|glusterfs|afs|orangefs|pvfs2|panfs|wekafs|ocfs2|gfs2|9p|virtiofs"
    "|coda|fuse(?!blk$|ctl$|\\.overlayfs$|\\.fuse-overlayfs$|\\.ntfs-3g$).*)"
)

MOUNTS = Path("/proc/self/mountinfo")


def is_remote(path: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether the file is on a filesystem that other machines may have mounted; False if unknown."""
    return REMOTE.fullmatch(filesystem(path.parent, mounts)) is not None


def filesystem(path: Path, mounts: Path = MOUNTS) -> str:
    """Return the kind of filesystem that holds the path, such as "ext4" or "nfs4"; empty if unknown."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
        place = path.resolve()
    except OSError:
        return ""
    depth, kind = -1, ""
    for line in lines:
        head, _, tail = line.partition(" - ")
        fields = head.split()
        if len(fields) < 5 or not tail:
            continue
        mount = Path(re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        if len(mount.parts) >= depth and place.is_relative_to(mount):  # of mounts at one place, the last is on top
            depth, kind = len(mount.parts), tail.split()[0]
    return kind
