"""Call frame information that is wrong: the program goes on, its stack ends where nothing can be read."""

import struct
import subprocess

import pytest

from shim_programs import programs  # noqa: F401

# mode, allocations
MODES = [("switched", 60), ("base_pointers", 7), ("coroutines", 420)]


@pytest.mark.parametrize("mode, allocations", MODES)
def test_wrong_frame_information_is_not_followed(programs, mode, allocations):  # noqa: F811
    [log] = programs.run_both("shim_stacks", mode)
    assert len(log.of("device_alloc")) == allocations
    assert all(event["stack"] for event in log.of("device_alloc"))


LIBRARY = 'extern "C" void call(void (*f)()) { f(); asm volatile(""); }\n'


def section(image, name):
    """Offset in the file of an ELF section."""
    [start], [size, count, names] = struct.unpack_from("<Q", image, 40), struct.unpack_from("<3H", image, 58)
    sections = [struct.unpack_from("<2I4Q", image, start + i * size) for i in range(count)]
    texts = sections[names][4]
    for header in sections:
        text = image[texts + header[0]:]
        if text[:text.index(0)] == name:
            return header[4]
    raise AssertionError(name)


# What is written over .eh_frame_hdr, from which byte on: the number of functions; the place of each
# function's record; the version.
LIES = {
    "count": (8, struct.pack("<I", 0x7fffffff)),
    "records": (12, struct.pack("<iiii", -0x7fffffff, 0x70000000, -0x7ffffff0, -0x70000000) * 2),
    "version": (0, b"\x07"),
}


@pytest.mark.parametrize("lie", LIES)
def test_tables_that_lie_are_not_followed(programs, tmp_path, lie):  # noqa: F811
    (tmp_path / "source.cpp").write_text(LIBRARY)
    library = tmp_path / "liblies.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "source.cpp"], check=True)
    image = bytearray(library.read_bytes())
    offset, text = LIES[lie]
    place = section(image, b".eh_frame_hdr") + offset
    image[place:place + len(text)] = text
    library.write_bytes(image)
    [log] = programs.run_both("shim_stacks", "library", library)
    [event] = log.of("device_alloc")
    assert event["stack"]


@pytest.mark.parametrize("length", [0x10000000, 0xffffffff])
def test_records_that_lie_are_not_followed(programs, tmp_path, length):  # noqa: F811
    (tmp_path / "source.cpp").write_text(LIBRARY)
    library = tmp_path / "liblies.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "source.cpp"], check=True)
    image = bytearray(library.read_bytes())
    place = section(image, b".eh_frame")
    end = section(image, b".eh_frame_hdr")
    assert place != end
    struct.pack_into("<I", image, place, length)  # of the common record
    library.write_bytes(image)
    [log] = programs.run_both("shim_stacks", "library", library)
    [event] = log.of("device_alloc")
    assert event["stack"]
