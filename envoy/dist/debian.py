"""A Debian package, made without Debian's tools. https://manpages.debian.org/deb.5, deb-control.5."""

import hashlib

from archives import File, ar, gzipped, tar


def package(control, scripts, conffiles, files, created):
    """A package of `files`.

    `control` has the fields of its control file, `scripts` the maintainer's scripts by their names; `conffiles` are those of
    `files` that an administrator may change, and an upgrade leaves alone.
    """
    kib = -(-sum(len(file.data or b"") for file in files) // 1024)
    fields = "".join(f"{name}: {value}\n" for name, value in {**control, "Installed-Size": kib}.items())
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {file.path}\n" for file in files if file.data is not None)
    about = [
        File("control", fields.encode()),
        File("conffiles", "".join(f"/{path}\n" for path in conffiles).encode()),
        File("md5sums", sums.encode()),
        *(File(name, data, 0o755) for name, data in scripts.items()),
    ]
    return ar(
        [
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", gzipped(tar(about, created, root="./"))),
            ("data.tar.gz", gzipped(tar(files, created, root="./"))),
        ],
        created,
    )
