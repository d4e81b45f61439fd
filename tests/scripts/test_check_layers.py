"""The checker of the project's rules passes on this tree and fails on each planted defect."""

import subprocess
import sys
from pathlib import Path

import pytest
from planted import ROOT, bare, check, expect_one, plant

SCRIPT = ROOT / "scripts" / "check_layers.py"
import cpp_source  # noqa: E402


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small tree under the real rules, without defects until a test plants one."""
    bare(tmp_path)
    plant(tmp_path, "include/deltawire/result.h", "#include <string>\n")
    plant(tmp_path, "src/base/bits.h", "int bits();\n")
    plant(tmp_path, "src/wire/frame.cc", '#include "base/bits.h"\n#include "deltawire/frame.h"\n')
    assert check(tmp_path)[0] == 0
    return tmp_path


def test_no_row_lets_the_library_see_an_application(house: Path) -> None:
    page = house / "docs" / "design" / "architecture.md"
    row = "| `server` | `src/server` | `server.h` `snapshot.h` | "
    text = page.read_text()
    assert row in text
    page.write_text(text.replace(row, row + "`linear` "))
    status, said = check(house)
    assert status == 1
    assert "server" in said and "linear" in said and "apps/" in said


@pytest.mark.parametrize("planted", [False, True])
def test_the_program_says_what_it_found(house: Path, planted: bool) -> None:
    if planted:
        plant(house, "src/base/long.cc", "int x();\n" * 801)
    done = subprocess.run(
        [sys.executable, SCRIPT, house], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (int(planted), check(house)[1])


def test_a_long_file_is_a_question_and_a_longer_one_is_wrong(house: Path) -> None:
    plant(house, "src/base/long.cc", "int x();\n" * 400)
    assert "question" not in check(house)[1]
    for lines in (401, 800):
        plant(house, "src/base/long.cc", "int x();\n" * lines)
        status, said = check(house)
        assert status == 0
        assert f"question: src/base/long.cc has {lines} lines" in said
    plant(house, "src/base/long.cc", "int x();\n" * 801)
    expect_one(house, "src/base/long.cc:801:", "801 lines", "800")


def test_a_class_of_41_members(house: Path) -> None:
    fields = "".join(f"  int field{i}_ = {{}};\n" for i in range(20))
    methods = "".join(f"  int method{i}(int a, int b) const;\n" for i in range(19))
    begin = "\nclass Large : Base {\n public:\n  using Base::Base;\n"
    plant(house, "src/base/a.h", f"{begin}{methods}  int f() {{ return 1; }}\n{fields}}};\n")
    assert check(house)[0] == 0
    plant(house, "src/base/a.h", f"{begin}{methods}  int f(), g();\n  int x;\n{fields}}};\n")
    expect_one(house, "src/base/a.h:2:", "Large has 41 members (20 methods, 21 fields)", "40")


def test_a_python_class_of_41_members(house: Path) -> None:
    methods = "".join(f"    def method{i}(self): pass\n" for i in range(30))
    fields = "".join(f"        self.field{i} = self.field0 = 1\n" for i in range(10))
    plant(house, "lab/a.py", f"class Large:\n{methods}    def __init__(self):\n{fields}")
    expect_one(house, "lab/a.py:1:", "Large has 41 members (31 methods, 10 fields)", "40")


def test_a_class_in_three_files(house: Path) -> None:
    plant(house, "src/base/a.h", "class A {\n  void f();\n  void g();\n  void h();\n};\n")
    plant(house, "src/base/a.cc", '#include "base/a.h"\nvoid A::f() {\n}\n')
    plant(house, "src/base/a_test.cc", '#include "base/a.h"\nTEST(A, F) {\n  A::f();\n}\n')
    plant(house, "src/wire/a.cc", "namespace wire {\nclass A {};\nvoid A::f() {\n}\n}\n")
    assert check(house)[0] == 0
    plant(
        house, "src/base/a_rest.cc", '#include "a.h"\nnamespace deltawire {\nint A::g() {\n}\n}\n'
    )
    expect_one(house, "src/base/a.h:1:", "A lives in 3 files", "src/base/a_rest.cc")


@pytest.mark.parametrize(
    ("file", "namespace", "wrong"),
    [
        ("src/base/b.cc", "namespace deltawire", True),
        ("apps/cli/b.cc", "inline namespace deltawire", True),
        ("src/base/b.cc", "namespace deltawire::b", False),
        ("src/base/b.cc", "namespace deltawire { namespace", False),
        ("src/base/b.cc", "namespace deltawire { namespace DELTAWIRE_TARGET", False),
        ("src/base/b_test.cc", "namespace deltawire", False),
    ],
)
def test_two_classes_of_one_name(house: Path, file: str, namespace: str, wrong: bool) -> None:
    text = "class Link {\n  struct State {};\n};\n"
    plant(house, "src/base/a.cc", f"namespace deltawire {{\n{text}}}\n")
    plant(house, file, f"{namespace} {{\nstruct Link;\n{text}}}\n")
    status, said = check(house)
    assert status == int(wrong), said
    names = ("deltawire::Link", "deltawire::Link::State") if wrong else ()
    for line, name in enumerate(names, start=3):
        assert f"{file}:{line}: {name} is another class in" in said


def test_figures(house: Path) -> None:
    plant(house, "src/base/a.h", "struct Large {\n  int a;\n};\n")
    status, said = check(house, "--figures")
    rows = [row.split() for row in said.splitlines()]
    assert status == 0
    assert ["1", "0", "1", "1", "Large", "src/base/a.h"] in rows
    assert ["2", "4", "src/base"] in rows
    assert ["4", "7", "all"] in rows


@pytest.mark.parametrize(
    ("file", "begin", "line", "most", "end"),
    [
        ("src/base/f.cc", "\nint f() {\n", "  g();\n", 58, "}\n"),
        ("lab/f.py", "def f():\n", "    g()\n", 59, ""),
    ],
)
def test_a_function_of_61_lines(
    house: Path, file: str, begin: str, line: str, most: int, end: str
) -> None:
    plant(house, file, begin + line * most + end)
    assert check(house)[0] == 0
    plant(house, file, begin + line * (most + 1) + end)
    expect_one(house, f"{file}:{begin.count(chr(10))}:", "f has 61 lines", "60")


@pytest.mark.parametrize(
    "around",
    [
        "class F:",
        "def g():",
        "if x:",
        "if x:\n    pass\nelse:",
        "while x:",
        "try:\n    pass\nexcept E:",
        "try:\n    pass\nfinally:",
        "with x:",
        "match x:\n  case 1:",
    ],
)
def test_a_python_function_is_found_in_every_block(house: Path, around: str) -> None:
    plant(house, "lab/f.py", f"{around}\n    def f():\n" + "        g()\n" * 60)
    _, said = check(house)
    assert "f has 61 lines" in said, said


def test_a_docstring_does_not_count(house: Path) -> None:
    doc = '    """F.\n' + "    More.\n" * 80 + '    """\n'
    plant(house, "lab/f.py", "def f():\n" + doc + "    g()\n" * 60)
    expect_one(house, "lab/f.py:1:", "f has 61 lines", "60")


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("src/base/a.cc", "wire/frame_layout.h"),
        ("src/base/a.cc", "deltawire/frame.h"),
        ("src/wire/a.cc", "codecs/registry.h"),
        ("src/wire/a.cc", "deltawire/channel.h"),
        ("src/transport/links/a.cc", "deltawire/codec.h"),
        ("src/transport/tcp/a.cc", "codecs/threelc/threelc.h"),
        ("src/codecs/bf16/a.cc", "codecs/threelc/threelc.h"),
        ("src/codecs/baselines/a/a.cc", "codecs/baselines/b/b.h"),
        ("src/codecs/baselines/a/a.cc", "codecs/threelc/threelc.h"),
        ("src/codecs/part_checks.cc", "codecs/threelc/threelc.h"),
        ("src/codecs/registry.cc", "codecs/threelc/threelc.h"),
        ("src/codecs/bf16/a.cc", "channel/residual_store.h"),
        ("src/channel/a.cc", "deltawire/transport.h"),
        ("src/channel/a.cc", "codecs/threelc/threelc_ops.h"),
        ("apps/cli/a.cc", "reduce/vote.h"),
        ("apps/cli/a.cc", "linear/trainer.h"),
        ("apps/main.cc", "deltawire/codec.h"),
        ("src/server/a.cc", "linear/trainer.h"),
        ("src/base/a.cc", "cli/outcome.h"),
        ("lab/a.cc", "linear/trainer.h"),
        ("tests/multiproc/a.cc", "reduce/vote.h"),
        ("python/src/a.cc", "channel/channel_state.h"),
        ("include/deltawire/result.h", "deltawire/codec.h"),
        ("include/deltawire/codec.h", "base/bits.h"),
        ("src/base/a.cc", "not_there.h"),
        ("src/base/a.cc", "deltawire/unheard_of.h"),
        ("src/attic/a.cc", "base/bits.h"),
        ("src/codecs/bf16/bf16_ref.cc", "base/checked.h"),
        ("src/codecs/bf16/bf16_ref.cc", "deltawire/codec.h"),
        ("src/codecs/kernels/a.h", "deltawire/codec.h"),
        ("src/codecs/bf16/bf16_avx512.cc", "codecs/dispatch.h"),
        ("src/codecs/bf16/a.cc", "codecs/bf16/bf16_ref.cc"),
        ("src/codecs/dispatch_test.cc", "codecs/bf16/bf16_ref.cc"),
    ],
)
def test_an_include_against_the_arrows(house: Path, file: str, included: str) -> None:
    plant(house, file, f'// A file.\n#include "{included}"\n')
    expect_one(house, f"{file}:2:", included)


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("src/wire/a.cc", "deltawire/codec.h"),
        ("src/codecs/conformance_test.cc", "codecs/threelc/threelc_ops.h"),
        ("src/codecs/bf16/a.cc", "codecs/part_checks.h"),
        ("src/codecs/baselines/a/a.cc", "codecs/baselines/a/a_ops.h"),
        ("src/codecs/bf16/bf16_ref.cc", "codecs/bf16/bf16_ops.h"),
        ("src/codecs/bf16/bf16_avx512.cc", "base/bit_functions.h"),
        ("src/codecs/bf16/bf16_ref.cc", "codecs/kernels/rice.h"),
        ("src/codecs/bf16/bf16.cc", "codecs/kernels/rice.h"),
        ("src/codecs/bf16/bf16.cc", "codecs/sparse/sparse_part.h"),
        ("src/reduce/vote_test.cc", "reduce/vote.h"),
        ("apps/cli/a.cc", "deltawire/file.h"),
        ("apps/linear/commands/a.cc", "cli/outcome.h"),
        ("apps/main.cc", "linear/commands/commands.h"),
        ("tests/fuzz/a.cc", "base/bits.h"),
        ("tests/mpi/a.cc", "transport/message_testing.h"),
        ("bench/a.cc", "deltawire/reducer.h"),
    ],
)
def test_an_include_along_the_arrows(house: Path, file: str, included: str) -> None:
    plant(house, file, f'#include "{included}"\n')
    status, said = check(house)
    assert status == 0, said


def test_a_kernel_that_allocates(house: Path) -> None:
    plant(house, "src/codecs/bf16/bf16_ops.h", "#include <cstddef>\n#include <vector>\n")
    expect_one(house, "bf16_ops.h:2:", "vector")


@pytest.mark.parametrize(("target", "header"), [("avx2", "immintrin.h"), ("neon", "arm_neon.h")])
def test_instructions_are_for_kernels_of_their_instruction_set(
    house: Path, target: str, header: str
) -> None:
    plant(house, f"src/codecs/bf16/bf16_{target}.cc", f"#include <{header}>\n")
    assert check(house)[0] == 0
    plant(house, "src/codecs/bf16/bf16_ref.cc", f"#include <{header}>\n")
    expect_one(house, "bf16_ref.cc:1:", header)


def test_a_template_of_the_standard_library_in_a_kernel(house: Path) -> None:
    plant(house, "src/codecs/bf16/bf16_ref.cc", "#include <bit>\n")
    expect_one(house, "bf16_ref.cc:1:", "includes bit:", "base/bit_functions.h")


def test_a_public_header_without_a_layer(house: Path) -> None:
    plant(house, "include/deltawire/orphan.h", "int x();\n")
    expect_one(house, "orphan.h:1:", "no layer owns it")


@pytest.mark.parametrize("name", ["src/base/utils.h", "lab/io_helpers.py", "scripts/common.sh"])
def test_a_name_that_says_nothing(house: Path, name: str) -> None:
    plant(house, name, "\n")
    expect_one(house, f"{name}:1:", "says nothing")


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("torch.empty(3, dtype=torch.float32)", "torch.empty without device="),
        ("[torch.full((3,), 1.5, device=here) for _ in range(2)]", "torch.full without dtype="),
    ],
)
def test_a_tensor_that_depends_on_torchs_defaults(house: Path, call: str, missing: str) -> None:
    good = "torch.zeros(3, dtype=torch.float32, device=here), torch.zeros_like(x)"
    plant(house, "python/deltawire/arrays.py", f"x = {good}\n")
    assert check(house)[0] == 0
    plant(house, "lab/made.py", f"x = {call}\n")
    assert check(house)[0] == 0
    plant(house, "python/deltawire/arrays.py", f"x = {good}\ny = {call}\n")
    expect_one(house, "python/deltawire/arrays.py:2:", missing)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("python/deltawire/arrays.py", 'pattern = hook.spec.partition("(")[0]'),
        ("lab/made.py", 'late = self._client.spec.startswith("sbc")'),
        ("apps/cli/made.cc", "const auto open = canonical.find('(');"),
        ("apps/cli/made.cc", "return (*reducer)->spec().substr(4);"),
    ],
)
def test_who_takes_a_specs_text_apart(house: Path, file: str, line: str) -> None:
    plant(house, "src/reduce/made.cc", "bool f() { return spec.starts_with(name); }\n")
    assert check(house)[0] == 0
    plant(house, file, f"{line}\n")
    expect_one(house, f"{file}:1:", "takes a spec's text apart")


def test_a_page_without_the_table(house: Path) -> None:
    (house / "docs" / "design" / "architecture.md").write_text("# Architecture\n")
    status, said = check(house)
    assert status == 1
    assert "no table" in said


SOURCE = r"""
#define BRACES {{{ \
    {{
namespace a::b {
namespace {
constexpr int kTable[] = {1, 2};  // } not a brace
const char* kText = "}{" R"x(
}}} ")" )x";
struct Point : Base<int> { int x = 0; int twice() const { return 2 * x; } };
enum class Kind : int { kOne, kTwo };
template <class T>
class Box {
 public:
  explicit Box(T t = {}) : value_{t},
                           big_(1'000) {
    use('{');
  }
  operator bool() const noexcept { return true; }
 private:
  T value_{};
};
auto made = [](int x) {
  return x;
};
}  // namespace
std::vector<int> Box::all(const std::map<int, int>& m)
    const {
  auto inner = [&] { return m; };
  struct Local { int f() { return 1; } };
  return {};
}
TEST(Box, Holds) {
  EXPECT_EQ(1, 1);
}
extern "C" {
int c_door(void) { return 0; }
}
struct Point make_point() { return {}; }
}  // namespace a::b
"""


def test_functions_are_found_whole() -> None:
    found = [(f.name, f.lines) for f in cpp_source.read(SOURCE).functions]
    assert found == [
        ("twice", 1),
        ("Box", 4),
        ("operator bool", 1),
        ("made", 3),
        ("Box::all", 6),
        ("TEST(Box, Holds)", 3),
        ("c_door", 1),
        ("make_point", 1),
    ]


CLASSES = r"""
template <class T, int N>
class DELTAWIRE_API [[nodiscard]] Box final : public Base<T>, private Other {
 public:
  explicit Box(T t) : value_{t}, big_(1'000) {}
  Box(const Box&) = delete;
  Box& operator=(const Box&) = default;
  ~Box();
  bool operator==(const Box& other) const { return value_ == other.value_; }
  template <class U>
  std::vector<U> all(const std::map<int, U>& map = {}) const noexcept(true);
  virtual void run() = 0;
  using Pair = std::pair<int, int>;
  friend class Friend;
  enum class Kind : int { kOne, kTwo };
  static constexpr int kSize = 3;
  static constexpr int kSizes[] = {1, 2};
  static constexpr int twice(int x) { return 2 * x; }
  struct Inner {
    int a, b = 2, c[3];
    std::function<void(int, int)> call;
  };
  class Later;

 private:
  T value_{};
  std::map<int, std::vector<int>> map_ = made(1, 2);
  int big_;
};
struct Empty {};
class Forward;
template <>
struct Of<Box<int>> { int a; };
struct { int a; } unnamed;
void f() {
  struct Local { int a; };
}
"""


def test_members_of_classes_are_counted() -> None:
    found = cpp_source.read(CLASSES).classes
    assert [(each.name, each.line, each.methods, each.fields) for each in found] == [
        ("Box", 3, 6, 3),
        ("Box::Inner", 19, 0, 4),
        ("Empty", 30, 0, 0),
        ("Of", 33, 0, 1),
        ("(unnamed)", 34, 0, 1),
    ]


def test_includes_in_comments_do_not_count() -> None:
    text = '// #include "a.h"\n/*\n#include "b.h"\n*/\n #  include "c.h"  // why\n#include <d>\n'
    assert list(cpp_source.includes(text)) == [
        cpp_source.Include(5, "c.h", True),
        cpp_source.Include(6, "d", False),
    ]
