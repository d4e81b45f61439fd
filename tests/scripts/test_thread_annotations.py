"""Clang refuses what is done without its lock (src/base/mutex.h), and only that."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-19") or shutil.which("clang++")

QUEUE = """
#include "base/mutex.h"
using deltawire::MutexLock;
class Queue {
 public:
  void add() { const MutexLock lock(mutex_); ++waiting_; }
  int take() { const MutexLock lock(mutex_); drop(); return waiting_; }
BODY
 private:
  void drop() DELTAWIRE_REQUIRES(mutex_) { --waiting_; }
  deltawire::Mutex mutex_;
  int waiting_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
};
"""

REFUSED = {
    "int waiting() const { return waiting_; }": "reading variable 'waiting_' requires",
    "void clear() { waiting_ = 0; }": "writing variable 'waiting_' requires holding mutex 'mutex_'",
    "void after() { { const MutexLock lock(mutex_); } --waiting_; }": "'waiting_' requires",
    "void drop_one() { drop(); }": "calling function 'drop' requires holding mutex 'mutex_'",
    "void twice() { const MutexLock lock(mutex_); mutex_.lock(); }": "that is already held",
    "void keep() { mutex_.lock(); }": "mutex 'mutex_' is still held at the end of function",
}


def words_of(body: str, directory: Path) -> str:
    source = directory / "queue.cc"
    source.write_text(QUEUE.replace("BODY", body))
    flags = ["-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror", f"-I{ROOT / 'src'}"]
    return subprocess.run([str(CLANG), *flags, str(source)], capture_output=True, text=True).stderr


@pytest.mark.skipif(CLANG is None, reason="only clang reads the annotations")
def test_clang_sees_what_is_done_without_the_lock(tmp_path: Path) -> None:
    assert words_of("", tmp_path) == ""
    words = words_of("\n".join(REFUSED), tmp_path).splitlines()
    first = QUEUE.splitlines().index("BODY") + 1
    for number, expected in enumerate(REFUSED.values(), start=first):
        assert any(f"queue.cc:{number}:" in line and expected in line for line in words), expected
