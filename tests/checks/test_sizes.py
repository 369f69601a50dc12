"""check_sizes.py: the tree keeps the limits, and a long file or function is noticed."""


def body(lines):
    return "".join(f"  step({index});\n" for index in range(lines))


def test_the_tree_keeps_the_limits(check):
    code, lines = check("sizes")
    assert (code, [line for line in lines if not line.startswith("note: ")]) == (0, [])


def test_short_things_pass_in_silence(check, tree):
    files = {"src/a.cpp": "namespace x {\nint f(int a) {\n" + body(30) + "}\n}\n", "tools/b.py": "def f():\n    pass\n"}
    assert check("sizes", tree(files)) == (0, [])


def test_a_long_function_is_an_error_wherever_it_stands(check, tree):
    member = "struct A {\n  void g() const {\n" + body(80) + "  }\n};\n"
    code, lines = check("sizes", tree({"src/a.cpp": "int f() {\n" + body(79) + "}\n", "shim/b.h": member}))
    assert (code, lines) == (1, ["src/a.cpp:1: f has 81 lines (limit 80, aim 40)",
                                 "shim/b.h:2: g has 82 lines (limit 80, aim 40)"])


def test_eighty_lines_are_only_a_note(check, tree):
    assert check("sizes", tree({"src/a.cpp": "int f() {\n" + body(78) + "}\n"})) == \
        (0, ["note: src/a.cpp:1: f has 80 lines (limit 80, aim 40)"])


def test_python_functions_count_too(check, tree):
    text = "def f():\n" + "    pass\n" * 80
    assert check("sizes", tree({"tests/a.py": text})) == (1, ["tests/a.py:1: f has 81 lines (limit 80, aim 40)"])


def test_a_long_file_is_an_error_and_a_list_is_not(check, tree):
    files = {"src/long.cpp": "int x;\n" * 801, "src/list.def": "X(1)\n" * 2000}
    assert check("sizes", tree(files)) == (1, ["src/long.cpp:1: 801 lines (limit 800, aim 400)"])


def test_braces_in_strings_and_comments_do_not_count(check, tree):
    text = 'int f() {\n  g("}{{"); // }}\n  /* } */ h(\'}\');\n}\nint g() {\n' + body(79) + "}\n"
    assert check("sizes", tree({"src/a.cpp": text})) == (1, ["src/a.cpp:5: g has 81 lines (limit 80, aim 40)"])


def test_a_marked_table_is_exempt(check, tree):
    assert check("sizes", tree({"src/a.cpp": "// table: one row per kind\nint f() {\n" + body(90) + "}\n"})) == (0, [])


def test_branches_of_the_preprocessor_count_once(check, tree):
    text = "#if A\nint f(int a) {\n#else\nint f(long a) {\n#endif\n  return 1;\n}\n" + "int x;\n" * 90
    assert check("sizes", tree({"src/a.cpp": text})) == (0, [])
    text = "#if A\nint f(int a) {\n#else\nint f(long a) {\n#endif\n" + body(90) + "}\n"
    assert check("sizes", tree({"src/b.cpp": text})) == (1, ["src/b.cpp:2: f has 95 lines (limit 80, aim 40)"])
