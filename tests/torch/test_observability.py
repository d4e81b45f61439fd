"""What a user sees of a run: buckets, scalars, summary lines, the timeline, torch's profiler."""

import json
import re
from pathlib import Path

import deltawire.torch
import pytest
import torch
from models import Net, backward, steps_by, train_step, train_steps, wrapped
from ranks import attempted, results
from torch.profiler import ProfilerActivity, profile
from watched import logged

STEPS = 4
BIG = ("encode_ms", "exchange_ms", "decode_ms", "bytes_sent", "raw_bytes", "elements")


def see(rank, world_size, report, spec, folder):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, spec)
    early = attempted(lambda: deltawire.torch.timeline(hook, f"{folder}/early.json"))
    train_steps(model, rank, range(STEPS))
    if rank == 0:
        victim = Path(folder, "victim")
        victim.write_text("precious")
        Path(folder, ".step.json.partial").symlink_to(victim)
    written = deltawire.torch.timeline(hook, f"{folder}/step.json")
    if rank == 0:
        assert victim.read_text() == "precious"
        victim.unlink()
    lost = attempted(lambda: deltawire.torch.timeline(hook, f"{folder}/no/such.json"))
    seen = {
        "metrics": hook.metrics(),
        "buckets": hook.buckets(),
        "scalars": hook.scalars(),
        "all": hook.scalars(per_bucket=True),
        "rows": hook.explain().rows,
        "errors": (early, lost),
        "path": str(written),
        "names": [name for name, _ in model.module.named_parameters()],
    }
    hook.close()
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timeline")
    return folder, results(see, 2, "3lc", folder)


def test_buckets_are_the_step(seen):
    for rank in seen[1]:
        buckets = rank["buckets"]
        assert [bucket["bucket"] for bucket in buckets] == list(range(len(buckets)))
        assert len(buckets) == rank["metrics"]["buckets"] > 1
        for key in BIG:
            total = sum(bucket[key] for bucket in buckets)
            assert total == pytest.approx(rank["metrics"][key]), key
        named = [name for bucket in buckets for name in bucket["tensors"]]
        assert sorted(named) == sorted(rank["names"])
        norms = {row.name: row.residual_norm for row in rank["rows"]}
        for bucket in buckets:
            expected = sum(norms[name] ** 2 for name in bucket["tensors"]) ** 0.5
            assert bucket["residual_norm"] == pytest.approx(expected)
            assert bucket["residual_norm"] > 0, "3lc leaves something"
            busy = sum(bucket[f"{phase}_ms"] for phase in ("encode", "exchange", "decode"))
            assert bucket["in_flight_ms"] >= 0.99 * busy - 0.05


def test_scalars_are_floats_under_flat_names(seen):
    for rank in seen[1]:
        few, many = rank["scalars"], rank["all"]
        assert all(type(value) is float for value in many.values())
        assert all(name.startswith("deltawire/") for name in many)
        for key in ("ratio", "bytes_sent", "encode_ms", "total_ratio", "residual_bytes"):
            assert few[f"deltawire/{key}"] == rank["metrics"][key]
        whole = sum(bucket["residual_norm"] ** 2 for bucket in rank["buckets"]) ** 0.5
        assert few["deltawire/residual_norm"] == pytest.approx(whole)
        assert few["deltawire/residual_norm"] > 0
        assert "deltawire/digest" not in few, "it is no quantity"
        assert few.keys() <= many.keys()
        first = rank["buckets"][0]
        assert many["deltawire/bucket_0/residual_norm"] == first["residual_norm"]
        assert not any("bucket_" in name for name in few)


def check_trace_event_format(trace):
    """https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: the JSON
    object format; complete, instant and metadata events."""
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ph"] in ("X", "i") and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert event["s"] in ("g", "p", "t")


def test_timeline_is_a_chrome_trace_of_all_ranks(seen):
    folder, ranks = seen
    assert {rank["path"] for rank in ranks} == {f"{folder}/step.json"}
    trace = json.loads((folder / "step.json").read_text())
    check_trace_event_format(trace)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert min(event["ts"] for event in trace["traceEvents"] if "ts" in event) == 0
    for number, rank in enumerate(ranks):
        for index, bucket in enumerate(rank["buckets"]):
            here = [e for e in slices if (e["pid"], e["tid"]) == (number, index)]
            (whole,) = (event for event in here if event["name"] == f"bucket {index}")
            assert whole["args"]["tensors"] == list(bucket["tensors"])
            assert whole["args"]["bytes_sent"] == bucket["bytes_sent"]
            assert whole["dur"] == pytest.approx(1e3 * bucket["in_flight_ms"])
            for phase in ("encode", "exchange", "decode"):
                inner = [event for event in here if event["name"] == phase]
                total = sum(event["dur"] for event in inner)
                assert total == pytest.approx(1e3 * bucket[f"{phase}_ms"], abs=1)
                for event in inner:
                    assert event["ts"] >= whole["ts"] - 1
                    assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + 1
            assert any(event["name"] == "encode" for event in here)
    assert list(folder.iterdir()) == [folder / "step.json"], "nothing half-written stays"


def test_timeline_says_what_is_wrong_on_every_rank(seen):
    for rank in seen[1]:
        early, lost = rank["errors"]
        assert early[0] == "DeltawireError" and "has finished no step yet" in early[1]
        assert lost[0] == "DeltawireError" and "rank 0 can't write" in lost[1]
        assert "No such file or directory" in lost[1]


def summarised(rank, world_size, report):
    lines = logged()
    model = wrapped(Net())
    wrong = attempted(lambda: deltawire.torch.register(model, "3lc", summary_every=0))
    hook = deltawire.torch.register(model, "3lc", summary_every=1)
    hook.summary_every = 2
    wrong += attempted(lambda: setattr(hook, "summary_every", "x"))
    train_steps(model, rank, range(7))
    hook.close()
    records = hook.step_records
    return wrong, lines, records


def test_rank_0_logs_a_line_every_so_many_steps():
    (wrong, (first, *lines), records), (_, silent, _) = results(summarised, 2)
    assert first.startswith("direct(3lc"), "what will happen, said at registration"
    assert "summary_every=0 must be a whole number, 1 or more" in wrong[1]
    assert "summary_every='x' must be a whole number, 1 or more" in wrong[4]
    assert silent == []
    assert [line.split(":")[0] for line in lines] == ["step 2", "step 4", "step 6"]
    for number, line in enumerate(lines):
        last = records[2 * number : 2 * number + 2]
        ratio = sum(r["raw_bytes"] for r in last) / sum(r["bytes_sent"] for r in last)
        assert f"{ratio:.1f} times smaller" in line
        assert f"{sum(r['bytes_sent'] for r in last) / 2e6:.3f} MB sent" in line
        for phase in ("encode", "exchange", "decode"):
            assert f"{phase} {sum(r[f'{phase}_ms'] for r in last) / 2:.1f} ms" in line
        assert "residual norm 0" in line or "residual norm 1" in line
        assert "(means of 2 steps)" in line and "\n" not in line


def profiled(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    train_step(model, rank, 0)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        backward(model, rank, 1)
    names = [event.name for event in profiler.events() if event.name.startswith("deltawire::")]
    buckets = hook.metrics()["buckets"]
    hook.close()
    return names, buckets


def test_torchs_profiler_shows_ranges():
    for names, buckets in results(profiled, 2):
        assert names.count("deltawire::submit") == buckets
        for bucket in range(buckets):
            assert names.count(f"deltawire::exchange bucket {bucket}") == 1


def rounds(rank, world_size, report, folder):
    network = Net()
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    trainer = deltawire.torch.LocalSteps(network, optimizer, steps=2, reducer="3lc")
    trainer.summary_every = 1
    lines = logged()
    steps_by(trainer, network, rank, range(4))
    deltawire.torch.timeline(trainer, f"{folder}/round.json")
    seen = trainer.buckets(), trainer.scalars(), lines
    trainer.close()
    return seen


def test_rounds_of_local_steps_are_seen_too(tmp_path):
    ranks = results(rounds, 2, tmp_path)
    assert [[line.split(":")[0] for line in lines] for *_, lines in ranks] == [["step 1"], []]
    for buckets, scalars, _ in ranks:
        assert buckets and buckets[0]["residual_norm"] > 0
        assert scalars["deltawire/residual_norm"] > 0 and scalars["deltawire/waited_ms"] >= 0
    check_trace_event_format(json.loads((tmp_path / "round.json").read_text()))


def test_what_the_page_names_exists():
    page = (Path(__file__).resolve().parents[2] / "docs/guides/observability.md").read_text()
    members = set(re.findall(r"`hook\.(\w+)", page))
    assert {"metrics", "buckets", "scalars", "explain", "summary_every"} <= members
    for name in members:
        assert hasattr(deltawire.torch.Hook, name), name
    functions = set(re.findall(r"`deltawire\.torch\.(\w+)", page))
    assert functions == {"register", "timeline", "trace"}
    assert functions <= set(deltawire.torch.__all__)
