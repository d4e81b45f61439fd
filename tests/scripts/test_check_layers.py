"""The checker of the house rules: it is green on this tree and red on each planted defect."""

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_layers.py"
sys.path.insert(0, str(SCRIPT.parent))
import check_layers  # noqa: E402
import cpp_source  # noqa: E402


def check(root: Path) -> subprocess.CompletedProcess:
    """What the program does, without a process for each of the tests."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = check_layers.main([str(root)])
    return subprocess.CompletedProcess(SCRIPT, status, out.getvalue())


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small house under the real rules: clean until a test plants something."""
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "architecture.md", tmp_path / "docs")
    plant(tmp_path, "include/deltawire/result.h", "#include <string>\n")
    plant(tmp_path, "src/base/bits.h", "int bits();\n")
    plant(tmp_path, "src/wire/frame.cc", '#include "base/bits.h"\n#include "deltawire/frame.h"\n')
    assert check(tmp_path).returncode == 0
    return tmp_path


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def expect_one(root: Path, *words: str) -> None:
    result = check(root)
    assert result.returncode == 1
    first, *rest = result.stdout.splitlines()
    assert len(rest) == 1, result.stdout
    for word in words:
        assert word in first


def test_this_tree_is_clean() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("planted", [False, True])
def test_the_program_says_what_it_found(house: Path, planted: bool) -> None:
    if planted:
        plant(house, "src/base/long.cc", "int x();\n" * 401)
    done = subprocess.run(
        [sys.executable, SCRIPT, house], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (int(planted), check(house).stdout)


def test_a_file_of_401_lines(house: Path) -> None:
    plant(house, "src/base/long.cc", "int x();\n" * 400)
    assert check(house).returncode == 0
    plant(house, "src/base/long.cc", "int x();\n" * 401)
    expect_one(house, "src/base/long.cc:401:", "401 lines", "400")


def test_a_cpp_function_of_61_lines(house: Path) -> None:
    plant(house, "src/base/f.cc", "\nint f() {\n" + "  g();\n" * 58 + "}\n")
    assert check(house).returncode == 0
    plant(house, "src/base/f.cc", "\nint f() {\n" + "  g();\n" * 59 + "}\n")
    expect_one(house, "src/base/f.cc:2:", "f has 61 lines", "60")


def test_a_python_function_of_61_lines(house: Path) -> None:
    plant(house, "lab/f.py", "def f():\n" + "    g()\n" * 59)
    assert check(house).returncode == 0
    plant(house, "lab/f.py", "def f():\n" + "    g()\n" * 60)
    expect_one(house, "lab/f.py:1:", "f has 61 lines", "60")


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
        ("src/cli/a.cc", "reduce/vote.h"),
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
        ("src/cli/a.cc", "deltawire/file.h"),
        ("tests/fuzz/a.cc", "base/bits.h"),
        ("tests/fabrics/a.cc", "transport/message_testing.h"),
        ("bench/a.cc", "deltawire/reducer.h"),
    ],
)
def test_an_include_along_the_arrows(house: Path, file: str, included: str) -> None:
    plant(house, file, f'#include "{included}"\n')
    result = check(house)
    assert result.returncode == 0, result.stdout


def test_a_kernel_that_allocates(house: Path) -> None:
    plant(house, "src/codecs/bf16/bf16_ops.h", "#include <cstddef>\n#include <vector>\n")
    expect_one(house, "bf16_ops.h:2:", "vector")


@pytest.mark.parametrize(("target", "header"), [("avx2", "immintrin.h"), ("neon", "arm_neon.h")])
def test_instructions_are_for_kernels_of_their_instruction_set(
    house: Path, target: str, header: str
) -> None:
    plant(house, f"src/codecs/bf16/bf16_{target}.cc", f"#include <{header}>\n")
    assert check(house).returncode == 0
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


def test_a_page_without_the_table(house: Path) -> None:
    (house / "docs" / "architecture.md").write_text("# Architecture\n")
    result = check(house)
    assert result.returncode == 1
    assert "no table" in result.stdout


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
    found = [(f.name, f.lines) for f in cpp_source.functions(SOURCE)]
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


def test_includes_in_comments_do_not_count() -> None:
    text = '// #include "a.h"\n/*\n#include "b.h"\n*/\n #  include "c.h"  // why\n#include <d>\n'
    assert list(cpp_source.includes(text)) == [
        cpp_source.Include(5, "c.h", True),
        cpp_source.Include(6, "d", False),
    ]
