"""Pipeline parallel training: a model's stages on ranks, a batch in parts that go through them one by one.

stage = PipelineStage(layers_of_this_rank, rank, ranks)
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=criterion)
print(schedule.show())                      # who computes what, when
if rank == 0:
    schedule.step(batch)
elif rank == ranks - 1:
    schedule.step(target=target, losses=losses)
else:
    schedule.step()
optimizer.step()                            # each rank has the gradients of its own stage
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.pipelining"
    )

from .microbatch import TensorChunkSpec
from .schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
    get_schedule_class,
)
from .splitting import Pipe, SplitPoint, pipeline
from .stage import PipelineStage
