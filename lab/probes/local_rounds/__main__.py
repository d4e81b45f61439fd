"""Methods of local steps on one language model: held-out loss at equal tokens, and bytes sent.

    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters small
    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters 22m --steps 30 --device cuda
    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters 22m --batch 2 --bf16

A transformer predicts the next byte of WikiText-2. Workers take turns in one process, each on its
own batches, which are the same for every method, with AdamW. Their weight changes (DDP: gradients)
are averaged by `deltawire.Session`s over the loopback, with the real codecs, residuals and frames;
bytes are the mean of what a worker sends, headers included. "bits" are those of a parameter in one
copy of a message. SBC's momentum is not masked here. Trained is on WikiText-2's validation text and
nine tenths of its test text; the loss, in nats a byte, is that of the last tenth.

Results are kept in the --out folder: rows.json, loss-bytes.svg and loss-rounds.svg. A run that was
interrupted goes on where its last state was saved. Of the methods that are not trained by default,
diloco-muon and muloco have Muon as the inner optimizer of the hidden matrices, pulseloco sends what
bfloat16 weights would show, sparseloco-... and streaming-... show what the parts of these do, and
...-outer-N steps the common weights by SGD with a rate of N and no momentum.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import deltawire
import numpy as np
import torch

from lab.command.program import main_of, make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.probes.local_rounds.figures import draw_curves
from lab.probes.local_rounds.kept import keep, kept_rows, start_name, words_of
from lab.probes.local_rounds.methods import COMPARED, METHODS, SIZES
from lab.probes.local_rounds.pretraining import pretrained
from lab.probes.local_rounds.sessions import Sessions
from lab.probes.local_rounds.training import Diverged, EveryStep, LocalRounds, Setting, Text

_HELD_OUT_SHARE = 10  # of the test text, the last tenth
_NAN = float("nan")


def train(
    name: str,
    seed: int,
    setting: Setting,
    text: Text,
    start: dict[str, torch.Tensor] | None,
    state_file: Path,
    every: int,
    save_every: int,
    progress: Callable[[int, float], None],
) -> dict:
    """One row of the table: a method's whole training, from its saved state on if there is one.

    Args:
        name: of the method.
        seed: of the first weights and the batches.
        setting: of all methods.
        text: what it is trained on.
        start: the first weights; None: the seed's.
        state_file: where its state is kept until it ends.
        every: rounds from one held-out loss to the next.
        save_every: rounds from one saved state to the next, a multiple of `every`; 0: none.
        progress: called with the rounds done and the loss.
    """
    method = METHODS[name]
    curve: list[tuple[int, float, float]] = []  # rounds, bytes of a worker, loss
    seconds, first = 0.0, 0
    with Sessions(method.spec, setting.workers) as sessions:
        kind = EveryStep if method.every_step else LocalRounds
        training = kind(method, setting, seed, sessions)
        if state_file.exists():
            kept = torch.load(state_file, map_location=setting.device, weights_only=False)
            training.load(kept["training"])
            curve, seconds, first = kept["curve"], kept["seconds"], kept["rounds"]
        elif start is not None:
            training.start_from(start)
        try:
            for number in range(first, setting.rounds):
                began = time.monotonic()
                training.train_round(number, text)
                done = number + 1
                if done == setting.rounds:
                    training.finish()
                seconds += time.monotonic() - began
                if done % every == 0 or done == setting.rounds:
                    loss = text.held_out_loss(training.network)
                    curve.append((done, training.sent[0] / setting.workers, loss))
                    progress(done, loss)
                if save_every and done % save_every == 0 and done < setting.rounds:
                    kept = {"training": training.state(), "curve": curve}
                    _save({**kept, "seconds": seconds, "rounds": done}, state_file)
        except Diverged:
            curve.append((number + 1, training.sent[0] / setting.workers, _NAN))
        traffic, messages, raw = training.sent
        parameters = sum(p.numel() for p in training.network.parameters())
    state_file.unlink(missing_ok=True)
    return {
        "method": name,
        "seed": seed,
        "spec": method.spec,
        "parameters": parameters,
        "loss": curve[-1][2],
        "bytes": traffic / setting.workers,
        "bits": 32 * messages / raw if raw else _NAN,
        "seconds": seconds,
        "curve": curve,
    }


def _save(state: dict, path: Path) -> None:
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def start_of(seed: int, setting: Setting, text: Text, path: Path) -> dict | None:
    """The pretrained weights of a seed, which are kept at `path`."""
    if not setting.pretraining:
        return None
    if not path.exists():
        print(f"seed {seed}: {setting.pretraining} steps of pretraining", file=sys.stderr)
        _save(pretrained(setting, seed, text), path)
    return torch.load(path, map_location=setting.device)


_HEAD = ("method", "spec", "loss (seeds)", "to DiLoCo", "MB a worker", "fewer than DDP", "bits")


def table_of(rows: list[dict]) -> str:
    """Markdown: medians over the seeds; "to DiLoCo" compares the losses with its in fp32."""
    by_method = {name: [row for row in rows if row["method"] == name] for name in METHODS}
    by_method = {name: own for name, own in by_method.items() if own}
    losses = {
        name: statistics.median(row["loss"] for row in own) for name, own in by_method.items()
    }
    sent = {name: statistics.mean(row["bytes"] for row in own) for name, own in by_method.items()}
    lines = ["| " + " | ".join(_HEAD) + " |", "|---|---|" + "---:|" * (len(_HEAD) - 2)]
    for name, own in by_method.items():
        seeds = ", ".join(f"{row['loss']:.3f}" for row in own)
        against = 100 * (losses[name] / losses.get("diloco", _NAN) - 1)
        cells = (
            METHODS[name].words,
            f"`{METHODS[name].spec}`",
            f"{losses[name]:.3f} ({seeds})" if len(own) > 1 else seeds,
            f"{against:+.1f} %",
            f"{sent[name] / 1e6:.2f}",
            f"{sent.get('ddp', _NAN) / (sent[name] or _NAN):,.0f}",
            f"{statistics.mean(row['bits'] for row in own):.3f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.local_rounds", __doc__)
    parser.add_argument("--parameters", choices=SIZES, default="small", help="default small")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(COMPARED),
        metavar="NAME",
        help=f"of {', '.join(METHODS)}; default: {', '.join(COMPARED)}",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="default 1")
    parser.add_argument("--rounds", type=int, default=100, help="default 100")
    parser.add_argument("--steps", type=int, default=15, help="of a worker's round; default 15")
    parser.add_argument("--workers", type=int, default=4, help="default 4")
    parser.add_argument("--batch", type=int, help="sequences of a step; default: the size's")
    parser.add_argument(
        "--pretraining",
        type=int,
        default=0,
        metavar="STEPS",
        help="of DDP before the first round, which are the same for every method; default 0",
    )
    parser.add_argument("--lr", type=float, help="AdamW's highest; default: the size's")
    parser.add_argument("--every", type=int, default=10, help="rounds between held-out losses")
    parser.add_argument(
        "--save-every",
        type=int,
        metavar="ROUNDS",
        help="rounds between saved states, a multiple of --every, its default; 0: none",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--bf16", action="store_true", help="passes in bfloat16, on a CPU only")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch on a CPU; default 1")
    parser.add_argument("--out", type=Path, default=Path("out/local-rounds"))
    given = parser.parse_args(arguments)
    counts = ("rounds", "steps", "workers", "every", "threads", "batch")
    if any(getattr(given, name) is not None and getattr(given, name) < 1 for name in counts):
        parser.error(f"--{', --'.join(counts)} are at least 1")
    if given.pretraining < 0:
        parser.error("--pretraining is at least 0")
    if given.save_every is None:
        given.save_every = given.every
    if given.save_every < 0 or given.save_every % given.every:
        parser.error(f"--save-every is a multiple of --every, which is {given.every}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda, but PyTorch finds no GPU")
    if given.device == "auto":
        given.device = "cuda" if torch.cuda.is_available() else "cpu"
    if given.bf16 and given.device == "cuda":
        parser.error("--bf16 is for --device cpu")
    return given


def setting_of(given: argparse.Namespace) -> Setting:
    """The setting of all methods."""
    size = SIZES[given.parameters]
    if given.batch is not None:
        size = dataclasses.replace(size, batch=given.batch)
    rate = size.learning_rate if given.lr is None else given.lr
    return Setting(
        size,
        given.workers,
        given.rounds,
        given.steps,
        rate,
        given.device,
        given.bf16,
        given.pretraining,
    )


class Clock:
    """Tells on standard error how far the run is, and how long it will take."""

    def __init__(self, rounds: int) -> None:
        self._left, self._done, self._began = rounds, 0, time.monotonic()

    def tell(self, what: str, done: int, loss: float) -> None:
        """`done`: rounds since the last call."""
        self._done, self._left = self._done + done, self._left - done
        seconds = (time.monotonic() - self._began) / self._done * self._left
        text = f"{what}: loss {loss:.3f}; about {seconds / 60:.0f} min left"
        print(text, file=sys.stderr, flush=True)


def run(given: argparse.Namespace) -> None:
    """Trains every missing row, then writes the table and the plots."""
    torch.set_num_threads(given.threads)
    torch.set_float32_matmul_precision("high")
    setting = setting_of(given)
    train_text, test_text = texts.read_bytes(data_folder())
    cut = len(test_text) - len(test_text) // _HELD_OUT_SHARE
    if len(test_text) - cut <= setting.size.length:
        raise DataError("wikitext-2/wiki.test.tokens is too short; get it again")
    text = Text(np.concatenate([train_text, test_text[:cut]]), test_text[cut:], setting)
    given.out.mkdir(parents=True, exist_ok=True)
    words = words_of(given, setting)
    finished = kept_rows(given.out, words)
    wanted = [(name, seed) for seed in given.seeds for name in given.methods]
    missing = [row for row in wanted if f"{row[0]}, seed {row[1]}" not in finished]
    clock = Clock(len(missing) * setting.rounds)
    for name, seed in missing:
        title, told = f"{name}, seed {seed}", 0

        def progress(done: int, loss: float, title: str = title) -> None:
            nonlocal told
            clock.tell(f"{title}, round {done} of {setting.rounds}", done - told, loss)
            told = done

        file = f"{words} {title}.state".replace(" ", "_").replace(",", "")
        start = start_of(seed, setting, text, given.out / start_name(given, setting, seed))
        finished[title] = train(
            name,
            seed,
            setting,
            text,
            start,
            given.out / file,
            given.every,
            given.save_every,
            progress,
        )
        keep(given.out, words, title, finished[title])
    rows = [finished[f"{name}, seed {seed}"] for name, seed in wanted]
    print(f"{rows[0]['parameters']:,} parameters, {words}")
    print(table_of(rows))
    draw_curves(rows, given.out)


main = main_of("lab.probes.local_rounds", parse, run, DataError, deltawire.DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
