"""check_format.py: C++ files are formatted (where clang-format 14 is installed)."""

import pytest


@pytest.fixture
def check_format(check):
    def run(*files):
        result = check("format", *files)
        if result[0] == 77:
            pytest.skip("no clang-format 14")
        return result

    return run


def test_the_tree_is_formatted(check_format):
    assert check_format() == (0, [])


def test_an_unformatted_file_is_found(check_format, tree):
    path = tree({"a.cpp": "int  f( ) {return 1 ;}\n"}) / "a.cpp"
    assert check_format(path) == (1, [f"{path}: not formatted (make format)"])
    path.write_text("int f() { return 1; }\n", encoding="utf-8")
    assert check_format(path) == (0, [])
