"""The list of crates that `cargo auditable` links into a program: its section .dep-v0."""

import json
import struct
import zlib

_SECTION = b".dep-v0"


def crates(program):
    """The crates in a program's bytes, each as (name, version); empty where it has no list."""
    section = _section(program)
    packages = json.loads(zlib.decompress(section))["packages"] if section else []
    # What only builds it is listed, too.
    return {(package["name"], package["version"]) for package in packages if package.get("kind", "runtime") == "runtime"}


def _section(elf):
    """The bytes of the section in an ELF file of 64 bits, as x86_64 and aarch64 have them."""
    (at,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    # Its name, type, flags, address, offset and size.
    headers = [struct.unpack_from("<IIQQQQ", elf, at + size * index) for index in range(count)]
    names = headers[of_names][4]
    for name, _, _, _, begins, length in headers:
        if elf.startswith(_SECTION + b"\0", names + name):
            return elf[begins : begins + length]
    return b""
