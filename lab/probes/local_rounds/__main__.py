"""Methods of local steps on one language model: held-out loss at equal tokens, and bytes sent.

    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters small
    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters 22m --batch 2 --bf16
    DELTAWIRE_DATA=... python -m lab.probes.local_rounds --parameters 151m --device cuda --bf16 \
        --minutes 10 --methods ddp diloco-3lc sparseloco-outer-4

A transformer (or an LSTM) predicts the next byte of WikiText-2. Workers are processes of this
machine, each on its own batches, which are the same for every method, with AdamW. Their gradients
(DDP) or weight changes (`deltawire.torch.LocalSteps`) are averaged over the loopback; bytes are the
mean of what a worker sends, headers included. "bits" are those of a parameter in one copy of a
message. SBC's momentum is not masked here. Trained is on WikiText-2's validation text and nine
tenths of its test text; the loss, in nats a byte, is that of the last tenth.

Rows are kept in the --out folder, in rows.json, and the same command goes on with those that are
missing there, with --minutes also in the midst of a row; `lab.probes.frontier` draws them. Of the
methods that are not trained by default, those with muon in their names and muloco have Muon as the
optimizer of the hidden matrices, pulseloco sends what bfloat16 weights would show,
sparseloco-... and streaming-... show what the parts of these do, and ...-outer-N steps the common
weights by SGD with a rate of N and no momentum, ...-rising-N by one that rises from 1 to it.
"""

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

from lab.command.files import write_whole
from lab.command.markdown import table
from lab.command.program import main_of, make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.probes.local_rounds import training
from lab.probes.local_rounds.methods import COMPARED, METHODS, SIZES
from lab.probes.local_rounds.training import Job, Setting, Text
from lab.ranks.launcher import Launcher, RanksFailed

_ROWS = "rows.json"
_HELD_OUT_SHARE = 10  # of the test text, the last tenth
_NAN = float("nan")
_HEAD = ("method", "spec", "loss (seeds)", "to DiLoCo", "MB a worker", "fewer than DDP", "bits")


def table_of(rows: list[dict]) -> str:
    """Markdown: medians over the seeds; "to DiLoCo" compares the losses with its in fp32."""
    by_method = {name: [row for row in rows if row["method"] == name] for name in METHODS}
    by_method = {name: own for name, own in by_method.items() if own}
    losses = {
        name: statistics.median(row["loss"] for row in own) for name, own in by_method.items()
    }
    sent = {name: statistics.mean(row["bytes"] for row in own) for name, own in by_method.items()}
    lines = []
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
        lines.append(cells)
    return table(_HEAD, lines, left=2)


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
    parser.add_argument("--bf16", action="store_true", help="passes in bfloat16")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="all workers' own; default cpu"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="end after the round, or the pretraining, in which they have passed",
    )
    parser.add_argument("--threads", type=int, default=1, help="of a worker; default 1")
    parser.add_argument("--out", type=Path, default=Path("out/local-rounds"))
    given = parser.parse_args(arguments)
    counts = ("rounds", "steps", "workers", "every", "threads", "batch")
    if any(getattr(given, name) is not None and getattr(given, name) < 1 for name in counts):
        parser.error(f"--{', --'.join(counts)} are at least 1")
    if given.pretraining < 0:
        parser.error("--pretraining is at least 0")
    if not given.minutes >= 0:
        parser.error("--minutes is at least 0")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda, but PyTorch finds no GPU")
    return given


def setting_of(given: argparse.Namespace) -> Setting:
    """The setting of all methods."""
    size = SIZES[given.parameters]
    if given.batch is not None:
        size = dataclasses.replace(size, batch=given.batch)
    rate = size.learning_rate if given.lr is None else given.lr
    counts = (given.workers, given.rounds, given.steps)
    return Setting(size, *counts, rate, given.bf16, given.pretraining, given.device)


def words_of(given: argparse.Namespace, setting: Setting) -> str:
    """What rows must have alike to be compared."""
    words = f"{given.parameters} {setting.workers}x{setting.rounds}x{setting.steps}"
    words += f" lr={setting.learning_rate:g} every={given.every} "
    return words + _network_of(given)


def start_name(given: argparse.Namespace, setting: Setting, seed: int) -> str:
    """The name of the file of first weights: what they depend on."""
    steps = setting.rounds * setting.steps
    words = f"{given.parameters} {setting.workers}x{steps} {_network_of(given)} seed {seed}.start"
    return words.replace(" ", "_")


def _network_of(given: argparse.Namespace) -> str:
    words = given.device + f" batch={given.batch}" * (given.batch is not None)
    words += " bf16" * given.bf16
    return words + f" pretraining={given.pretraining}" * (given.pretraining > 0)


def kept_rows(folder: Path) -> dict[str, dict[str, dict]]:
    """The finished rows, by setting, and by method and seed."""
    file = folder / _ROWS
    return json.loads(file.read_text()) if file.exists() else {}


def keep(folder: Path, words: str, title: str, row: dict) -> None:
    """Adds a row to the file; other processes may have added theirs."""
    kept = kept_rows(folder)
    kept.setdefault(words, {})[title] = row
    write_whole(folder / _ROWS, json.dumps(kept))


def read_texts(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """To train on, and held out. Raises DataError."""
    train, test = texts.read_bytes(data_folder())
    cut = len(test) - len(test) // _HELD_OUT_SHARE
    if len(test) - cut <= setting.size.length:
        raise DataError("wikitext-2/wiki.test.tokens is too short; get it again")
    return np.concatenate([train, test[:cut]]), test[cut:]


def start_of(seed: int, setting: Setting, both: tuple[np.ndarray, np.ndarray], path: Path) -> Path:
    """The file of a seed's pretrained weights, which is made where it is missing."""
    if not path.exists():
        print(f"seed {seed}: {setting.pretraining} steps of pretraining", file=sys.stderr)
        part = path.with_suffix(".part")
        torch.save(training.pretrained(setting, seed, Text(*both, setting)), part)
        part.replace(path)
    return path


def run(given: argparse.Namespace) -> None:
    """Trains every missing row, or as many as the minutes allow, then writes the table."""
    torch.set_num_threads(given.threads)
    began = time.monotonic()
    setting = setting_of(given)
    both = read_texts(setting)
    given.out.mkdir(parents=True, exist_ok=True)
    words = words_of(given, setting)
    finished = kept_rows(given.out).get(words, {})
    wanted = [(name, seed) for seed in given.seeds for name in given.methods]
    missing = [row for row in wanted if title_of(*row) not in finished]
    starts = {
        seed: start_of(seed, setting, both, given.out / start_name(given, setting, seed))
        for seed in dict.fromkeys(seed for _, seed in missing)
        if setting.pretraining
    }
    states = given.out / words.replace(" ", "_")
    if given.minutes < math.inf:
        states.mkdir(exist_ok=True)
    total, due = len(missing) * setting.rounds, list(missing)
    with Launcher(training.run, setting.workers) as ranks:
        if missing:
            counts, until = (given.every, given.threads), began + 60 * given.minutes
            ranks.start(Job(missing, setting, both, starts, *counts, states, until))
        for message in ranks.messages() if missing else ():
            title = title_of(*due[0])
            if message is None:
                print(f"{title} was cut; the same command goes on from there", file=sys.stderr)
                break
            if isinstance(message, dict):
                finished[title] = message
                keep(given.out, words, title, message)
                del due[0]
                continue
            done, loss = message
            share = (total - len(due) * setting.rounds + done) / total
            left = (time.monotonic() - began) * (1 / share - 1) / 60
            told = f"{title}, round {done} of {setting.rounds}: loss {loss:.3f}"
            print(f"{told}; about {left:.0f} min left", file=sys.stderr, flush=True)
    rows = [finished[title_of(*row)] for row in wanted if title_of(*row) in finished]
    if not rows:
        return
    print(f"{rows[0]['parameters']:,} parameters, {words}")
    print(table_of(rows))


def title_of(name: str, seed: int) -> str:
    """A row's name in rows.json."""
    return f"{name}, seed {seed}"


main = main_of("lab.probes.local_rounds", parse, run, DataError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
