"""Recipes of trainers that are packages of their own: requirements-trainers.txt, `make
check-trainers`. What isn't installed is skipped by its name."""

import re
import shutil
import sys

import pytest
from recipes import (
    check_against_plain,
    check_ratio,
    losses,
    lossless,
    run_command,
    torchrun,
    with_ours,
    without_ours,
)


def need(package):
    return pytest.importorskip(package, reason=f"{package} is in requirements-trainers.txt")


def three_runs(name, run, tmp_path):
    texts = with_ours(name), lossless(name), without_ours(name)
    runs = [run(text, tmp_path / str(number)) for number, text in enumerate(texts)]
    check_against_plain(*runs)
    return runs


@pytest.mark.timeout(600)
def test_lightning(tmp_path):
    need("lightning")
    check_ratio(three_runs("with_lightning.py", torchrun, tmp_path)[0])
    # Its checkpoint has the residuals of both ranks, and another run goes on with them.
    on = with_ours("with_lightning.py").replace("max_epochs=1", "max_epochs=2")
    on = on.replace("fit(module, loader)", 'fit(module, loader, ckpt_path="lightning.ckpt")')
    assert on.count("ckpt_path") == 1
    on = re.sub(r"^trainer.save_checkpoint.*$", "", on, flags=re.M) + STATES_OF_LIGHTNING
    went_on = torchrun(on, tmp_path / "0")
    assert went_on.count("the checkpoint's residuals are the hook's: True") == 2
    through = with_ours("with_lightning.py").replace("max_epochs=1", "max_epochs=2")
    assert losses(went_on) == losses(torchrun(through, tmp_path / "through")), "bit for bit"


def test_all_optimizers_of_lightning_have_their_rules(tmp_path):
    need("lightning")
    text = with_ours("with_lightning.py")
    for old, new in (
        ('Callback("3lc")', 'Callback("step<99: 3lc, rest fp32", optimizer=True)'),
        (
            "return torch.optim.SGD(self.parameters(), lr=0.05)",
            "return [torch.optim.AdamW(each.parameters()) for each in self.network[::2]]",
        ),
        (
            "        return self.loss\n",
            "        self.zero_grad()\n"
            "        self.manual_backward(self.loss)\n"
            "        for each in self.optimizers():\n"
            "            each.step()\n",
        ),
        ("torch.manual_seed(0)", "self.automatic_optimization = False"),
        ('print(f"rank', 'print(compression.hook.optimizer_rules.text())\nprint(f"rank'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    said = torchrun(text, tmp_path / "several")
    assert said.count("; AdamW steps 0 of 4 tensors") == 2  # the second layer's are small


STATES_OF_LIGHTNING = """
state = torch.load("lightning.ckpt", weights_only=False)["callbacks"]["Callback"]["ranks"]
print(f"the checkpoint's residuals are the hook's: {len(state) == 2}")
"""


@pytest.mark.timeout(600)
def test_accelerate(tmp_path):
    need("accelerate")
    check_ratio(three_runs("with_accelerate.py", torchrun, tmp_path)[0])
    on = with_ours("with_accelerate.py")
    on = on.replace("for (x,) in loader:", LOADED + "for (x,) in loader:")
    again = tmp_path / "again"
    again.mkdir()
    shutil.copytree(tmp_path / "0" / "accelerate-checkpoint", again / "accelerate-checkpoint")
    assert torchrun(on, again).count("loaded 20 steps, something waits: True") == 2


LOADED = """\
accelerator.load_state("accelerate-checkpoint")
steps = hook.state_dict()["steps"]
print(f"loaded {steps} steps, something waits: {(hook.state_dict()['residuals'] != {})}")
"""


@pytest.mark.timeout(600)
def test_hf_trainer(tmp_path):
    need("transformers")
    need("accelerate")
    three_runs("with_hf_trainer.py", torchrun, tmp_path)


@pytest.mark.timeout(900)
def test_ray(tmp_path):
    need("ray")

    def run(text, folder):
        folder.mkdir()
        (folder / "program.py").write_text(text)
        return run_command([sys.executable, "program.py"], folder, {"HOME": str(folder)})

    # Ray takes most of a minute to start: two runs. Its process group is that of ddp.py.
    ours = run(with_ours("with_ray.py"), tmp_path / "ours")
    check_ratio(ours)
    check_against_plain(ours, None, run(without_ours("with_ray.py"), tmp_path / "plain"))


def test_lightning_missing_is_said():
    try:
        import lightning  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match="pip install lightning"):
            import deltawire.lightning  # noqa: F401
    else:
        pytest.skip("lightning is installed")
