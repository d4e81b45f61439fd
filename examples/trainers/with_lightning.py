"""Lightning. Start it with: torchrun --nproc-per-node=2 with_lightning.py"""

import lightning
import torch
from deltawire.lightning import Callback  # deltawire
from lightning.pytorch.strategies import DDPStrategy


class Module(lightning.LightningModule):
    """A small regression."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1)
        self.network = torch.nn.Sequential(*layers)

    def training_step(self, batch, index):
        """Lightning's."""
        (x,) = batch
        self.loss = (self.network(x) - x[:, :1]).square().mean()
        return self.loss

    def configure_optimizers(self):
        """Lightning's."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


x = torch.randn(20 * 2 * 32, 64, generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=32)
compression = Callback("3lc")  # deltawire
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend="gloo"),
    max_epochs=1,
    callbacks=[
        compression,  # deltawire
    ],
    logger=False,
    enable_progress_bar=False,
)
module = Module()
trainer.fit(module, loader)
trainer.save_checkpoint("lightning.ckpt")  # with the residuals of all ranks
print(f"rank {trainer.global_rank}: loss {module.loss:.6f}")
ratio = compression.hook.metrics()["total_ratio"]  # deltawire
print(f"{ratio:.1f} times fewer bytes than float32")  # deltawire
