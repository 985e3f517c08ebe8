"""What is known beforehand of a race, found by `--ftgate-until`: a deadlock that only a stop-the-world brings about."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from example import Example

HELD = r"""
#include <Python.h>
#include <pthread.h>
#include <sched.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* With its thread state: until it has the lock, the world cannot stop. */
__attribute__((noinline)) void wait_attached(void) { pthread_mutex_lock(&lock); }

static PyObject *work(PyObject *self, PyObject *none) {
    wait_attached();
    Py_BEGIN_ALLOW_THREADS
    sched_yield();
    Py_END_ALLOW_THREADS  /* where the world is to stop, it waits here, with the lock */
    pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"work", work, METH_NOARGS, ""}, {NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_gil, Py_MOD_GIL_NOT_USED}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "held", "", 0, methods, slots};
PyMODINIT_FUNC PyInit_held(void) { return PyModuleDef_Init(&definition); }
"""
TEST = """
    @ftgate.compare(threads, workers=3, pythons=["3.14t"])
    def test_held(worker):
        import held

        for _ in range(200):
            held.work()
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the extension with")
def test_a_deadlock_with_a_stopped_world_is_found_in_stressed_launches_alone(
    pytester: pytest.Pytester, interpreters_on_path: None, executables: dict[str, str]
) -> None:
    files = {"pytest.ini": "[pytest]\nftgate_install =\n", "held.c": HELD, "test_held.py": TEST}
    example = Example(pytester, files)
    ask = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'))"
    found = subprocess.run([executables["3.14t"], "-c", ask], capture_output=True, text=True, check=True)
    include, suffix = found.stdout.split()
    build = ["cc", "-shared", "-fPIC", "-O1", "-pthread", f"-I{include}", "-o", f"held{suffix}", "held.c"]
    subprocess.run(build, check=True, cwd=pytester.path)
    result = example.run_fresh("--ftgate", "--ftgate-until=time", "--ftgate-timeout=3s", "--ftgate-test-time=14s")
    (row,) = example.rows()
    assert row["verdict"]["decision"] == "error"
    counts = re.search(r"; (\d+) of (\d+) stressed and 0 of (\d+) plain launches", row["verdict"]["reason"])
    assert counts is not None, row["verdict"]
    failed, stressed, plain = map(int, counts.groups())
    assert 2 <= failed == stressed <= plain
    # The stacks of all threads, with the function of the extension that waits.
    for expected in (
        "within 3 s",
        "worker * of 3 was at */test_held.py:*",
        "  native code that waits: wait_attached (held.*",
    ):
        result.stdout.fnmatch_lines([f"*{expected}*"])
    assert "_collect" in row["error"]["detail"]
    assert "The thread in stress.py is pytest-ftgate's, and collects garbage." in row["error"]["detail"]
