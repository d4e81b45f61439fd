"""A policy as text, dict, list, JSON, TOML: the same canonical spec; and what is refused."""

import collections
import json
import re
import sys

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.policy import spec_of, spec_text
from models import Net, train_step, wrapped
from ranks import attempted, results

TEXT = (
    "direct(conv* step<100: 3lc:s=1.75, "
    "elements>=1000 step>=5 step<50: int8 with momentum=0.9, rest fp32)"
)
POLICY = {
    "pattern": "direct",
    "rules": [
        {"name": "conv*", "step": "<100", "codec": "3lc:s=1.75"},
        {
            "elements": ">=1000",
            "step": ">=5 <50",
            "codec": "int8",
            "with": {"momentum": 0.9},
        },
    ],
    "rest": "fp32",
}
TOML = """
pattern = "direct"
rest = "fp32"

[[rules]]
name = "conv*"
step = "<100"
codec = "3lc:s=1.75"

[[rules]]
elements = ">=1000"
step = ">=5 <50"
codec = "int8"
with = { momentum = 0.9 }
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "policy.toml").write_text(TOML)
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    return tmp_path


def test_every_form_is_the_same_spec(files):
    canonical = deltawire.canonical_spec(TEXT)
    assert spec_text(POLICY) == TEXT
    backwards = [dict(reversed(rule.items())) for rule in POLICY["rules"]]
    for same in (
        POLICY,
        {"rest": {"codec": "fp32"}, "rules": tuple(backwards), "pattern": "direct"},
        json.dumps(POLICY),
        "\n " + json.dumps(POLICY, indent=1),
        files / "policy.json",
        f"@{files}/policy.json",
        collections.ChainMap(POLICY),
    ):
        assert deltawire.canonical_spec(same) == canonical
    listed = [*POLICY["rules"], "fp32"]
    assert f"direct({spec_text(listed)})" == f"direct({spec_text(json.dumps(listed))})" == TEXT


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_a_toml_file(files):
    for path in (files / "policy.toml", f"@{files}/policy.toml"):
        assert deltawire.canonical_spec(path) == deltawire.canonical_spec(TEXT)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"rest": "3lc"}, "3lc"),
        (["bf16"], "bf16"),
        ({"pattern": "ring", "rest": "bf16"}, "ring(bf16)"),
        ({"pattern": "hierarchical:group=8", "rest": "3lc"}, "hierarchical:group=8(3lc)"),
        ([{"dims": 2, "codec": "bf16"}, {"codec": "fp32"}], "dims=2: bf16, rest fp32"),
        ([{"dims": "> 1", "codec": "bf16"}, "fp32"], "dims>1: bf16, rest fp32"),
        (
            {"rest": {"codec": "sbc", "with": {"momentum": 0.5, "masking": True}}},
            "sbc with momentum=0.5,masking=on",
        ),
        ({"rest": {"codec": "3lc", "with": "decay=0.9"}}, "3lc with decay=0.9"),
        ({"rest": "3lc with decay=0.9"}, "3lc with decay=0.9"),
        ({"rest": {"codec": "bf16", "with": {}}}, "bf16"),
        ("conv*: 3lc, rest fp32", "conv*: 3lc, rest fp32"),
    ],
)
def test_what_a_policy_stands_for(policy, text):
    assert spec_text(policy) == text
    deltawire.canonical_spec(text)


def rule(**changed):
    return {"rules": [{"name": "a", "codec": "bf16"}, changed], "rest": "fp32"}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"codecs": "fp32"}, "has the key 'codecs', which means nothing; there are pattern, rules"),
        ({"rules": []}, "has no 'rest'"),
        ([], "an empty list"),
        ({"rules": "bf16", "rest": "fp32"}, "make it a list"),
        ({"rules": {"a": 1}, "rest": "fp32"}, "make it a list"),
        ({"pattern": "direct(", "rest": "fp32"}, "has pattern 'direct('"),
        ({"pattern": "star", "rest": "fp32"}, "unknown exchange pattern 'star'"),
        (rule(name="b", codecs="bf16"), "the key 'codecs' in rules[1]"),
        (rule(name="b", codec="bf16", rest="fp32"), "before the first [[rules]]"),
        (rule(codec="bf16"), "has no condition in rules[1]"),
        (rule(name="b"), "has no codec in rules[1]"),
        (rule(name="", codec="bf16"), "the name '' in rules[1]"),
        (rule(name="b,c", codec="bf16"), "has ',' in the name 'b,c' of rules[1]"),
        (rule(name="b: fp32", codec="bf16"), "put ? in its place"),
        (rule(name="b<3", codec="bf16"), "put ? in its place"),
        (rule(name="b(", codec="bf16"), "put ? in its place"),
        (rule(elements="many", codec="bf16"), "elements 'many' in rules[1]"),
        (rule(elements=">3 or so", codec="bf16"), "elements '>3 or so' in rules[1]"),
        (rule(elements=">3<9", codec="bf16"), "elements '>3<9' in rules[1]"),
        (rule(elements="<0", codec="bf16"), "rules[1] of which the core says"),
        (rule(step=True, codec="bf16"), "step True in rules[1]"),
        (rule(step=-1, codec="bf16"), "step -1 in rules[1]"),
        (rule(step="", codec="bf16"), "step '' in rules[1]"),
        (rule(name="b", codec="bf17"), "rules[1] of which the core says: no codec is named"),
        (rule(name="b", codec="fp32, rest bf16"), "the codec 'fp32, rest bf16' in rules[1]"),
        (rule(name="b", codec="direct(fp32)"), "no spaces"),
        (rule(name="b", codec=3), "the codec 3 in rules[1]"),
        (rule(name="b", codec="3lc", **{"with": {"speed": 1}}), "rules[1] of which the core says"),
        (rule(name="b", codec="3lc", **{"with": "a=1, b: 3lc"}), "has with 'a=1, b: 3lc'"),
        (rule(name="b", codec="3lc with decay=0.5", **{"with": {"clip": 1}}), "'with' twice"),
        ({"rules": ["bf16"], "rest": "fp32"}, "has rules[0] 'bf16'"),
        ([{"name": "a", "codec": "bf16"}], "has the condition 'name' in rest"),
        ({"rest": 32}, "has rest 32"),
        ({"rest": "fp23"}, "rest of which the core says: no codec is named"),
        ('{"rest": "fp32", "rest": "bf16"}', "'rest' occurs twice"),
        ("[" * 100_000, "can't be read: it has more than 100 levels"),
        ("[" * 101 + "]" * 101, "can't be read: it has more than 100 levels"),
        ("[" * 100 + "]" * 100, "has rest [["),
        ('{"rest": ', "the policy's JSON can't be read"),
        ("@policy.yaml", "neither .toml nor .json"),
        ("@no/such/policy.json", "no/such/policy.json can't be read: No such file"),
    ],
)
def test_a_bad_policy_says_where_what_and_what_to_do(policy, words):
    with pytest.raises(deltawire.InvalidArgumentError, match=re.escape(words)):
        deltawire.canonical_spec(policy)


def test_a_bad_file_is_named(tmp_path):
    for name, content in (
        ("a.toml", b"rest = "),
        ("b.json", b"3"),
        ("c.json", b"\xff"),
        ("d.toml", b"x=1"),
        ("e.toml", b"x=" + b"[" * 9999),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(deltawire.InvalidArgumentError, match=re.escape(str(tmp_path / name))):
            deltawire.canonical_spec(tmp_path / name)


@pytest.mark.parametrize("thing", [3, None, b"fp32", {"fp32"}])
def test_what_is_no_policy(thing):
    with pytest.raises(TypeError, match=f"not {type(thing).__name__}"):
        deltawire.canonical_spec(thing)


def mixed_forms(rank, world_size, report):
    """Ranks that write the same policy in other forms; and then another one."""
    form = POLICY if rank == 0 else TEXT
    hook = deltawire.torch.register(model := wrapped(Net()), form)
    train_step(model, rank, 0)
    hook.close()
    other = {**POLICY, "rest": "bf16"} if rank == 0 else TEXT
    unequal = attempted(lambda: deltawire.torch.register(wrapped(Net()), other))
    bad = attempted(lambda: deltawire.torch.register(wrapped(Net()), {} if rank == 0 else TEXT))
    network = Net()
    trainer = deltawire.torch.LocalSteps(
        network,
        torch.optim.SGD(network.parameters(), 0.1),
        steps=1,
        reducer=[form["rules"][0], "fp32"]
        if rank == 0
        else "conv* step<100: 3lc:s=1.75, rest fp32",
    )
    trainer.close()
    return hook.spec, trainer.spec, unequal, bad


def test_a_group_may_be_the_ranks_of_a_host(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    host = deltawire.canonical_spec("hierarchical:group=host,within=bf16(3lc)")
    assert host == deltawire.canonical_spec("hierarchical:group=4,within=bf16(3lc)")
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with pytest.raises(ValueError, match="LOCAL_WORLD_SIZE"):
        spec_of({"pattern": "hierarchical:group=host", "rest": "3lc"})


def test_ranks_may_write_it_in_other_forms():
    for rank, (hook, trainer, unequal, bad) in enumerate(results(mixed_forms, 2)):
        assert hook == deltawire.canonical_spec(TEXT)
        assert trainer == deltawire.canonical_spec("conv* step<100: 3lc:s=1.75, rest fp32")
        assert unequal[0] == "DeltawireError" and "rest bf16" in unequal[1]
        assert ("has no 'rest'" in bad[1]) and (rank == 0 or "rank 0" in bad[1])
