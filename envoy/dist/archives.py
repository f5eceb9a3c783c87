"""Archives whose bytes follow from their files alone: names are sorted, owners and times are fixed."""

import gzip
import io
import tarfile
from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file of an archive: where it stands there, its bytes (None: it is a folder), and its mode."""

    path: str
    data: bytes | None
    mode: int = 0o644


def tar(files, created, root=""):
    """A tar of `files` and of the folders they are in, below `root`; `created`, in seconds since 1970, is the time of all."""
    files = {file.path: file for file in files}
    for path in [parent for path in files for parent in _parents(path)]:
        files.setdefault(path, File(path, None, 0o755))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(root + path)
            entry.mode, entry.mtime, entry.uname, entry.gname = file.mode, created, "root", "root"
            if file.data is None:
                entry.type = tarfile.DIRTYPE
                out.addfile(entry)
            else:
                entry.size = len(file.data)
                out.addfile(entry, io.BytesIO(file.data))
    return packed.getvalue()


def gzipped(data):
    """`data`, packed. Another version of zlib may pack other bytes; what they unpack to is the same."""
    return gzip.compress(data, 9, mtime=0)


def ar(members, created):
    """An ar archive of `members`, pairs of a name and bytes, in their order."""
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name:<16}{created:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def _parents(path):
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]
