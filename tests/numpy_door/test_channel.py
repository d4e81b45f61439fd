"""`deltawire.Channel`: messages and residuals of NumPy arrays."""

import resource
from concurrent.futures import ThreadPoolExecutor

import deltawire
import numpy as np
import pytest
from deltawire.weight_store import Store
from refusals import raised


def gradient(seed: int, shape=(40, 50)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def code(error: pytest.ExceptionInfo) -> str:
    return error.value.code


def test_what_goes_in_comes_out_or_waits() -> None:
    sender, receiver = deltawire.Channel("3lc:s=1.9"), deltawire.Channel("3lc:s=1.9")
    total, given = np.zeros((40, 50), np.float32), np.zeros((40, 50), np.float64)
    for step in range(20):
        values = gradient(step)
        given += values
        message = sender.encode({"w": values})
        assert len(message) < values.nbytes / 10 and np.array_equal(values, gradient(step))
        found = receiver.decode(message, {"w": total}, step=step, rank=0)
        assert found == deltawire.Sender(step, 0, 1, 1.0)
    waiting = sender.residual("w").reshape(40, 50)
    assert np.abs(waiting).max() > 0.1
    assert np.allclose(total + waiting, given, atol=1e-4)
    assert sender.step == 20 and receiver.residual("w").size == 0


def test_a_mean_of_several_senders() -> None:
    senders = [deltawire.Channel("fp32", rank=rank, world_size=3) for rank in range(3)]
    mean = np.zeros((40, 50), np.float32)
    receiver = deltawire.Channel("fp32")
    for rank, sender in enumerate(senders):
        found = receiver.decode(sender.encode({"w": gradient(rank)}), {"w": mean}, scale=1 / 3)
        assert (found.rank, found.world_size) == (rank, 3)
    assert np.allclose(mean, sum(gradient(rank) for rank in range(3)) / 3, atol=1e-6)
    receiver.decode(senders[0].encode({"w": gradient(7)}), {"w": mean}, accumulate=False)
    assert np.array_equal(mean, gradient(7))


def test_each_step_and_seed_draws_its_own_numbers() -> None:
    """With the same places in every step, most of a gradient would never be sent."""
    ones, places = np.ones(1000, np.float32), set()
    for seed in (0, 1):
        channel = deltawire.Channel("randomk:k=10%", error_feedback=False, seed=seed)
        for _ in range(2):
            out = np.empty(1000, np.float32)
            channel.decode(channel.encode({"w": ones}), {"w": out}, accumulate=False)
            places.add(np.flatnonzero(out).tobytes())
    assert len(places) == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(dtype: type, order: str) -> None:
    values = np.asarray(gradient(1), dtype, order=order)
    channel, out = deltawire.Channel("fp32"), np.zeros(values.shape, dtype)
    message = channel.encode({"w": values, "scalar": dtype(2.5) * np.ones((), dtype)})
    scalar = np.zeros((), dtype)
    channel.decode(message, {"w": out, "scalar": scalar}, accumulate=dtype == np.float32)
    assert np.array_equal(out, values) and scalar == 2.5
    other = np.float32 if dtype == np.float16 else np.float16
    with pytest.raises(deltawire.DeltawireError, match="shapes and dtypes"):
        into = {"w": out.astype(other), "scalar": scalar.astype(other)}
        channel.decode(message, into, accumulate=False)


@pytest.mark.parametrize("spec", ["fp32", "gcomp", "gcomp:lossless=on", "zstd"])
def test_arrays_of_16_bits_come_back(spec: str) -> None:
    channel = deltawire.Channel(spec)
    values = {"a": gradient(1).astype(np.float16), "b": gradient(2), "c": np.float16([7, -2])}
    out = {name: np.zeros_like(array) for name, array in values.items()}
    message = channel.encode(values)
    channel.decode(message, out, accumulate=False)
    assert all(np.array_equal(out[name], array) for name, array in values.items())
    with pytest.raises(deltawire.DTypeError, match="'a' is float16, to which nothing can be added"):
        channel.decode(message, out)
    with pytest.raises(deltawire.DeltawireError, match=r"part 'a'.*beyond float16") as error:
        channel.decode(message, out, accumulate=False, scale=1e6)
    assert code(error) == "Range"


def test_tensors_of_bfloat16_go_and_come() -> None:
    """Without ml_dtypes, as the same bytes as NumPy's arrays with it."""
    torch = pytest.importorskip("torch")
    values = torch.from_numpy(gradient(1)).bfloat16()
    channel, out = deltawire.Channel("gcomp:lossless=on"), torch.zeros(40, 50).bfloat16()
    scalar = torch.tensor(2.5).bfloat16()
    for given in (values, values.t().contiguous().t()):
        message = channel.encode({"w": given, "scalar": scalar})
        back = torch.zeros(()).bfloat16()
        channel.decode(message, {"w": out, "scalar": back}, accumulate=False)
        assert torch.equal(out, values) and back == 2.5
    with pytest.raises(deltawire.DTypeError, match="'w' is bfloat16, to which nothing can be"):
        channel.decode(message, {"w": out, "scalar": scalar})
    with pytest.raises(deltawire.DTypeError, match="gradient"):
        channel.encode({"w": values.requires_grad_()})
    total = torch.zeros(40, 50).bfloat16()
    with pytest.raises(deltawire.InvalidArgumentError, match="not C-contiguous"):
        channel.decode(message, {"w": total.t(), "scalar": scalar}, accumulate=False)


def test_bfloat16_arrays_come_back() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    channel, values = deltawire.Channel("gcomp:lossless=on"), gradient(1).astype(bfloat16)
    message = channel.encode({"w": values})
    assert len(message) < 0.75 * values.nbytes
    out = np.zeros_like(values)
    channel.decode(message, {"w": out}, accumulate=False)
    assert out.tobytes() == values.tobytes()


def test_rules_and_small_arrays() -> None:
    channel = deltawire.Channel("conv*: 3lc, rest fp32", min_elements=100)
    arrays = {"conv1": gradient(1), "fc": gradient(2), "conv2": gradient(3, (99,))}
    out = {name: np.zeros_like(array) for name, array in arrays.items()}
    channel.decode(channel.encode(arrays), out)
    assert len(np.unique(out["conv1"])) == 3
    assert np.array_equal(out["fc"], arrays["fc"]) and np.array_equal(out["conv2"], arrays["conv2"])


@pytest.mark.parametrize("revert", ["fold", "exact", None])
def test_a_step_that_did_not_arrive(revert: str | None) -> None:
    channel = deltawire.Channel("3lc:s=1.9", **({"revert": revert} if revert else {}))
    channel.encode({"w": gradient(0)})
    before = channel.residual("w")
    channel.encode({"w": gradient(1), "small": np.ones(3, np.float32)}, commit=False)
    with pytest.raises(deltawire.DeltawireError) as error:
        channel.save()
    assert code(error) == "State"
    channel.revert()
    expected = before + gradient(1).reshape(-1) if revert == "fold" else before
    assert np.allclose(channel.residual("w"), expected, atol=1e-6)
    assert channel.residual("small").tolist() == (3 * [1.0] if revert == "fold" else [])
    assert channel.step == 2
    channel.revert()  # none is open
    assert channel.step == 2


def test_a_value_that_can_not_be_sent_ends_the_step() -> None:
    channel = deltawire.Channel("3lc")
    bad = gradient(0)
    bad[3, 7] = np.nan
    with pytest.raises(deltawire.DeltawireError, match=r"'w'.*157.*NaN") as error:
        channel.encode({"w": bad})
    assert code(error) == "NotFinite"
    out = np.zeros((40, 50), np.float32)
    channel.decode(channel.encode({"w": gradient(1)}), {"w": out}, step=1)


def test_a_state_goes_on_where_it_was() -> None:
    one, other = deltawire.Channel("sbc:p=5%"), deltawire.Channel("sbc:p=5%")
    one.encode({"w": gradient(0)})
    other.encode({"v": gradient(9)})
    other.load(one.save())
    assert other.residual("v").size == 0
    assert np.array_equal(one.residual("w"), other.residual("w"))
    assert one.encode({"w": gradient(1)}) == other.encode({"w": gradient(1)})
    with pytest.raises(deltawire.DeltawireError) as error:
        deltawire.Channel("3lc").load(one.save())
    assert code(error) == "Mismatch"
    state = one.save()
    with pytest.raises(deltawire.DeltawireError) as error:
        one.load(state[:-1])
    assert code(error) in ("Truncated", "Corrupt")


def test_messages_that_do_not_fit() -> None:
    channel = deltawire.Channel("3lc")
    message = channel.encode({"w": gradient(0)})
    out = np.zeros((40, 50), np.float32)
    for bad, into, more in (
        (message, {"v": out}, {}),
        (message, {"w": out.reshape(-1)}, {}),
        (message, {"w": out}, {"step": 1}),
        (message, {"w": out}, {"rank": 1}),
        (message[:-1], {"w": out}, {}),
        (message + b"?", {"w": out}, {}),
        (b"", {"w": out}, {}),
        (bytes(100), {"w": out}, {}),
    ):
        with pytest.raises(deltawire.DeltawireError) as error:
            channel.decode(bad, into, **more)
        assert code(error) in ("Mismatch", "Truncated", "Corrupt")
    with pytest.raises(deltawire.DeltawireError) as error:
        deltawire.Channel("3lc:s=1.5").decode(message, {"w": out})
    assert code(error) == "Mismatch"
    channel.decode(bytearray(message), {"w": out})


def test_arguments_that_can_not_be_meant() -> None:
    for bad in (
        {"spec": "4lc"},
        {"spec": "direct(3lc)"},
        {"rank": 1},
        {"revert": "perhaps"},
        {"min_elements": -1},
        {"min_elements": 1 << 63},
        {"seed": 1.0},
        {"world_size": 70_000},
    ):
        with pytest.raises(ValueError):
            deltawire.Channel(**({"spec": "3lc"} | bad))
    channel = deltawire.Channel("3lc")
    for arrays, kind in (
        ({}, ValueError),
        ({"w": [1.0]}, TypeError),
        ({"w": np.zeros(3)}, TypeError),
        ({"w": np.zeros(3, ">f4")}, TypeError),
        ({"\udc80": gradient(0)}, ValueError),
    ):
        with pytest.raises(kind):
            channel.encode(arrays)
    refused = raised(TypeError, channel.encode, {"a\nb": np.zeros(3)}, match="'a b' is")
    assert "\n" not in str(refused)
    for bad in ({"scale": float("nan")}, {"scale": "1"}, {"step": 1 << 64}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
            channel.encode({"w": gradient(0)}, **bad)
    message = channel.encode({"w": gradient(0)})
    for bad in ({"scale": float("inf")}, {"step": -1}, {"rank": "0"}, {"rank": 1 << 16}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
            channel.decode(message, {"w": gradient(0)}, **bad)
    with pytest.raises(ValueError, match="min_elements=-1"):
        deltawire.encode(gradient(0), "3lc", min_elements=-1)
    frozen = gradient(0)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        channel.decode(channel.encode({"w": frozen}), {"w": frozen})
    for dtype in (np.float32, np.float16):
        whole = np.zeros(2000, dtype)
        halves = {"v": whole[:1000], "w": whole[1000:]}
        channel = deltawire.Channel("3lc")
        message = channel.encode(halves)
        channel.decode(message, halves, accumulate=False)
        with pytest.raises(ValueError, match="'v' and 'w' share memory"):
            channel.decode(message, {"v": whole[1:1001], "w": whole[1000:]}, accumulate=False)


def test_errors_are_one_line_and_rules_may_stand_in_several() -> None:
    assert str(raised(ValueError, deltawire.Channel, "3lc\x1b[2J\nrm -r")).isprintable()
    channel = deltawire.Channel("""
        conv*: bf16,
        rest int8
    """)
    assert channel.spec == "conv*: bf16, rest int8"


def test_torch_tensors_without_importing_torch() -> None:
    torch = pytest.importorskip("torch")
    channel, total = deltawire.Channel("fp32"), torch.zeros(40, 50)
    channel.decode(channel.encode({"w": torch.from_numpy(gradient(0))}), {"w": total})
    assert np.array_equal(total.numpy(), gradient(0))
    with pytest.raises(TypeError, match="gradient"):
        channel.encode({"w": torch.zeros(300, requires_grad=True)})


def test_threads_take_turns() -> None:
    channel, total = deltawire.Channel("int8"), np.zeros(100_000, np.float32)
    values = gradient(0, (100_000,))

    def work(_) -> None:
        channel.decode(channel.encode({"w": values}), {"w": total})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(20)))
    assert channel.step == 20
    assert np.allclose(total + channel.residual("w"), 20 * values, atol=1e-2)


def test_numpys_numbers_are_numbers(tmp_path):
    three = np.int64(3)
    counts = {"rank": three, "world_size": np.uint16(4), "min_elements": three, "seed": three}
    channel = deltawire.Channel("qsgd", **counts)
    message = channel.encode({"w": gradient(0)}, step=three)
    assert channel.decode(message, {"w": gradient(1)}, step=three, rank=three).rank == 3
    with deltawire.Session("3lc", rank=three - 3, world_size=three - 2, timeout=three) as session:
        assert type(session.save()["rank"]) is int, "what JSON knows"
    store = Store(tmp_path, merged=(three,))
    assert type(store.publish({"w": gradient(0)}, three).version) is int
    with pytest.raises(deltawire.InvalidArgumentError, match="seed=.*3.5.* whole number"):
        deltawire.Channel("qsgd", seed=np.float64(3.5))


def test_a_step_may_be_named():
    array = {"conv": np.arange(600, dtype=np.float32)}
    channel = deltawire.Channel("fp32")
    into = {"conv": np.zeros(600, np.float32)}
    assert channel.decode(channel.encode(array, step=41), into).step == 41
    assert channel.decode(channel.encode(array, commit=False), into).step == 42
    with pytest.raises(deltawire.DeltawireError, match="step 42 is open"):
        channel.encode(array, step=43)
    with pytest.raises(deltawire.InvalidArgumentError, match="step=-1"):
        channel.encode(array, step=-1)


@pytest.mark.parametrize("spec", ["fp32", "gcomp", "3lc", "sbc:p=1%"])
def test_a_message_goes_where_the_program_wants(spec: str) -> None:
    senders = [deltawire.Channel(spec) for _ in range(2)]
    values = {"w": gradient(1, (300, 300)), "b": gradient(2, (10,)), "h": gradient(3, (9, 90))}
    values["h"] = values["h"].astype(np.float16)
    room = bytearray(senders[0].message_bound(values))
    for step in range(3):
        message = senders[0].encode(values)
        view = senders[1].encode(values, out=room)
        assert isinstance(message, bytes) and isinstance(view, memoryview)
        assert view == message and view.obj is room and senders[1].step == step + 1
    array = np.zeros(senders[0].message_bound(values, step=9), np.uint8)
    view = senders[1].encode(values, out=array, step=9)
    assert bytes(array[: len(view)]) == view == senders[0].encode(values, step=9)


def test_room_that_a_message_can_not_have() -> None:
    sender, values = deltawire.Channel("3lc"), {"w": gradient(1)}
    before = sender.save()
    short = bytearray(sender.message_bound(values) - 1)
    with pytest.raises(deltawire.DeltawireError, match="may need .* room for") as refused:
        sender.encode(values, out=short)
    assert code(refused) == "OutputTooSmall" and sender.step == 0 and sender.save() == before
    with pytest.raises(deltawire.InvalidArgumentError, match="'out' can't be written"):
        sender.encode(values, out=bytes(9999))
    first = sender.encode(values, commit=False)
    with pytest.raises(deltawire.DeltawireError):
        sender.encode({"v": values["w"]}, out=bytearray(), commit=False)
    sender.commit()  # the step is still the open one
    assert first == deltawire.Channel("3lc").encode(values) and sender.residual("w").size


def faults_of(call):
    """The pages that were made while it ran, and what it returned."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    result = call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, result


@pytest.mark.parametrize("spec", ["fp32", "bf16", "gcomp", "int8", "3lc"])
def test_a_call_makes_no_pages_but_its_result_s(spec: str) -> None:
    """Whatever else it needs is there from the call before, or small."""
    values = gradient(1, (1 << 22,)) * np.float32(1e-3)
    sender, page, few = deltawire.Channel(spec), resource.getpagesize(), 400
    room = bytearray(sender.message_bound({"w": values}))
    for _ in range(2):  # the first makes room for a residual, and for an exact revert
        sender.encode({"w": values}, out=room)
    faults, _ = faults_of(lambda: sender.encode({"w": values}, out=room))
    assert faults < few
    faults, message = faults_of(lambda: sender.encode({"w": values}))
    assert faults < len(message) / page + few
    if spec in ("fp32", "bf16", "gcomp"):  # no other memory, so that a first call is as good
        faults, file = faults_of(lambda: deltawire.encode(values, spec))
        assert faults < len(file) / page + 3 * few
    else:
        file = deltawire.encode(values, spec)
    faults, decoded = faults_of(lambda: deltawire.decode(file))
    assert faults < decoded.nbytes / page + few


def test_a_file_is_decoded_into_an_array_that_is_there() -> None:
    values = gradient(3).reshape(-1, 2)
    file = deltawire.encode(values, "gcomp:lossless=on")
    out = np.empty_like(values)
    assert deltawire.decode(file, out=out, max_elements=1) is out
    assert np.array_equal(out, values)
    read_only = np.empty_like(values)
    read_only.flags.writeable = False
    of_file = bytearray(max(len(file), values.nbytes))
    of_file[: len(file)] = file
    shared = np.frombuffer(of_file, np.float32, values.size).reshape(values.shape)
    for wrong, says in (
        (out.ravel(), "shape"),
        (np.empty_like(values, order="F"), "C-contiguous"),
        (read_only, "read-only"),
        (out.astype(np.float64), "float32"),
    ):
        before = wrong.copy()
        with pytest.raises(deltawire.DeltawireError, match=says):
            deltawire.decode(file, out=wrong)
        assert wrong.tobytes() == before.tobytes()
    with pytest.raises(deltawire.DeltawireError, match="shares memory"):
        deltawire.decode(memoryview(of_file)[: len(file)], out=shared)
