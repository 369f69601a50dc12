"""A recorder and a program of different versions say so."""

import re


def test_library_of_another_version(fragscope):
    run = fragscope.record(*fragscope.steps("alloc", 100))
    path = run.directory / "run.json"
    path.write_text(re.sub(r'("fragscope_version": )"[^"]*"', r'\1"9.9.9"', path.read_text()))
    text = fragscope("report", run.directory, check=True)
    words = (text.stdout + text.stderr).decode()
    assert re.search(r"recorded by libfragscope\.so \S+, the run by fragscope 9\.9\.9", words)
    assert "libfragscope.so" not in fragscope("report", fragscope.record(
        *fragscope.steps("alloc", 100)).directory).stderr.decode()
