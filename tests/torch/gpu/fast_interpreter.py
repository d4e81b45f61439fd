"""Makes Triton's interpreter fast enough for tests.

It runs scans and reductions by a kernel's own functions element by element, in Python: seconds for
a chunk. Here NumPy's functions take the place of those that the kernels use. It also looks for
overflows of whole numbers, but says nothing of them unless it debugs; looks through all of Triton's
names, which it replaces, with every call of a function; and makes a table of all dtypes with every
array. Without these three it takes half the time.
"""

import dataclasses

import numpy as np

UFUNCS = {"larger": np.maximum, "either": np.bitwise_xor}


def install():
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):
        return  # an older Triton, whose interpreter stays as slow as it is

    slow_scan = interpreter.ScanOps.generic_scan
    slow_reduce = interpreter.ReduceOps.generic_reduce

    def scan(self, given):
        ufunc = UFUNCS.get(self.combine_fn.fn.__name__)
        if ufunc is None:
            return slow_scan(self, given)
        values = given[0]
        made = ufunc.accumulate(values.handle.data, axis=self.axis)
        return [self.to_tensor(made, values.dtype)]

    def reduce(self, given):
        ufunc = UFUNCS.get(self.combine_fn.fn.__name__)
        if ufunc is None:
            return slow_reduce(self, given)
        values = given[0]
        made = ufunc.reduce(values.handle.data, axis=self.axis)
        return [self.to_tensor(made, values.dtype)]

    interpreter.ScanOps.generic_scan = scan
    interpreter.ReduceOps.generic_reduce = reduce
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    replace_names_once(interpreter)
    remember_dtypes(interpreter)


def replace_names_once(interpreter):
    """Functions of `triton.language` become the interpreter's, and stay so."""
    from triton.language import standard

    for one in (interpreter._implicit_cvt, standard.sum.fn):  # see `triton.language`, and its core
        interpreter._patch_lang(one)
    nothing = interpreter._LangPatchScope()
    interpreter._patch_lang = lambda fn: nothing


def remember_dtypes(interpreter):
    """NumPy's dtype of Triton's."""
    slow, known = interpreter._get_np_dtype, {}

    def np_dtype(dtype):
        name = dtype.scalar.name
        if name not in known:
            known[name] = slow(dtype)
        return known[name]

    interpreter._get_np_dtype = np_dtype
