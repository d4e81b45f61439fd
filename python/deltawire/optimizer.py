"""Optimizers on NumPy arrays, with the steps of torch.optim and their significance."""

import numpy as np

from deltawire import _core, arrays
from deltawire.errors import invalid, wrong_dtype


class Optimizer:
    """SGD, Momentum, Nesterov, AdaGrad, RMSProp, Adam or AdamW on the caller's arrays, in place.

    Tensors are identified by name; a tensor's first step creates its moments. Arrays are float32
    and C-contiguous, of any shape, with the same element count in every step. The arithmetic is
    float32 in a fixed order: the same input gives the same bits on every machine.

    Args:
        spec: kind and hyper-parameters, e.g. "adam:lr=0.001,beta1=0.9"; others have PyTorch's
            defaults (momentum 0.9). Kinds: sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw.

    Raises:
        InvalidArgumentError (a ValueError): unknown kind or parameter, value out of range; from
            the methods: another element count, keys that don't grow. Then nothing has changed.
        DTypeError (a TypeError): not such an array.

    Thread rule: one thread at a time.
    """

    def __init__(self, spec: str) -> None:
        self._core = _core.Optimizer(spec)

    @property
    def spec(self) -> str:
        """Canonical: every parameter spelled out."""
        return self._core.spec

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next steps; may be set, for schedules."""
        return self._core.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._core.learning_rate = rate

    def step(self, tensor: str, parameters: np.ndarray, gradient: np.ndarray) -> None:
        """One step of the tensor."""
        self._core.step(
            tensor, _floats("parameters", parameters, True), _floats("gradient", gradient)
        )

    def step_pairs(
        self, tensor: str, parameters: np.ndarray, keys: np.ndarray, values: np.ndarray
    ) -> None:
        """One step with a gradient in key-value form: values[i] belongs to element keys[i].

        Lazy, as torch.optim.SparseAdam: an element without a key is unchanged, moments included.
        With every key present it is `step`, bit for bit.

        Args:
            tensor, parameters: as in `step`; keys count in C order.
            keys: uint32, strictly increasing.
            values: float32, one for each key.
        """
        if not isinstance(keys, np.ndarray) or keys.dtype != np.uint32 or keys.ndim != 1:
            raise wrong_dtype(
                "keys must be a one-dimensional array of uint32; convert with .astype(np.uint32)"
            )
        self._core.step_pairs(
            tensor,
            _floats("parameters", parameters, True),
            np.ascontiguousarray(keys),
            _floats("values", values),
        )

    def significance(
        self,
        tensor: str,
        parameters: np.ndarray,
        out: np.ndarray | None = None,
        *,
        kept_as: str = "float32",
    ) -> np.ndarray:
        """How much of a gradient the tensor's next step can see, for `encode(significance=)`.

        The numerator of GComp's delta (table 2): the lowest n bits of a gradient's mantissa are
        lost in the update where abs(significance) > 2**n * abs(gradient). 0 where nothing may be
        cut: before the first step of an optimizer with a second moment, at learning rate 0.

        Args:
            tensor, parameters: as in `step`; nothing is changed.
            out: the array that is filled and returned; a new one by default.
            kept_as: "bfloat16" or "float16" where parameters are rounded to 16 bits after every
                step and kept nowhere else. That hides 16 or 13 bits more of a gradient, so the
                significance is 65,536 or 8,192 times as large, at most infinite. The bits that
                gcomp cuts by it move a parameter by less than two units in the last place of its 16
                bits before the step rounds it. Not for parameters with a float32 copy, which
                accumulates what rounding hides.
        """
        if kept_as not in arrays.DTYPES:
            raise invalid(f"kept_as='{kept_as}': give one of {', '.join(arrays.DTYPES)}")
        values = _floats("parameters", parameters)
        if out is None:
            out = np.empty(parameters.shape, dtype=np.float32)
        self._core.significance(tensor, values, _floats("out", out, True))
        _core.count_rounding_to(kept_as, out)
        return out

    def steps_of(self, tensor: str) -> int:
        """Steps that the tensor has had."""
        return self._core.steps_of(tensor)

    def save(self) -> bytes:
        """All moments and step counts, without the settings."""
        return self._core.save()

    def load(self, state: bytes) -> None:
        """Restores what `save` returned, for the same kind of optimizer.

        Raises DeltawireError ("Truncated", "Corrupt", "UnsupportedVersion", "Mismatch"), which
        changes nothing.
        """
        self._core.load(np.frombuffer(state, dtype=np.uint8))


def _floats(what: str, array: np.ndarray, writable: bool = False) -> np.ndarray:
    arrays.check_float32(what, array)
    if not writable:
        return np.ascontiguousarray(array)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise invalid(
            f"{what} is written in place and must be C-contiguous and writable; pass such an array"
        )
    return array
