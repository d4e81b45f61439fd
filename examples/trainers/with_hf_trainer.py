"""Hugging Face's Trainer. Start it with: torchrun --nproc-per-node=2 with_hf_trainer.py"""

import torch
from deltawire.torch import register  # deltawire
from transformers import Trainer, TrainerCallback, TrainingArguments


class Network(torch.nn.Module):
    """A small regression."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1)
        self.network = torch.nn.Sequential(*layers)

    def forward(self, x):
        """The Trainer takes the loss by its name."""
        self.loss = (self.network(x) - x[:, :1]).square().mean()
        return {"loss": self.loss}


class Compression(TrainerCallback):  # deltawire
    def on_train_begin(self, args, state, control, optimizer, **_):  # deltawire
        self.hook = register(trainer.model_wrapped, "3lc", optimizer=optimizer)  # deltawire


x = torch.randn(20 * 2 * 32, 64, generator=torch.Generator().manual_seed(1))
trainer = Trainer(
    Network(),
    TrainingArguments(
        "hf-trainer",
        use_cpu=True,
        per_device_train_batch_size=32,
        num_train_epochs=1,
        learning_rate=0.003,
        optim="adamw_torch",
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
    ),
    train_dataset=[{"x": row} for row in x],
)
trainer.add_callback(Compression())  # deltawire
trainer.train()
print(f"rank {trainer.args.process_index}: loss {trainer.model.loss:.6f}")
