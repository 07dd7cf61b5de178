"""One wave on many GPUs, with PyTorch: each rank computes a strip of rows, and rank 0 draws them all.

Start it with `torchrun --nproc-per-node 2`, on several hosts also with --nnodes, --node-rank and --master-addr. Only
the host of rank 0 needs the renderer. The ranks use NCCL, or with --host gloo in the CPU's memory.
"""

import os
from contextlib import suppress
from datetime import timedelta
from itertools import count
from time import monotonic

import torch
import torch.distributed as dist

from _cli import show

STEPS, LIMIT = 4, timedelta(seconds=30)  # steps of the wave a frame; how long a rank waits for another
os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # else NCCL ends the process before it says who failed


def exchange(group, since, jobs, *limit):
    """Send and receive at once. `since` is when the last exchange ended. Return when this one did."""
    if monotonic() - since > LIMIT.total_seconds():
        os.write(2, f"error: rank {dist.get_rank()} was late: the others wait for only {LIMIT.seconds} s\n".encode())
        os._exit(1)  # the usual exit would wait for NCCL's threads
    for work in dist.batch_isend_irecv([dist.P2POp(*job, group) for job in jobs]) if jobs else ():
        work.wait(*limit)  # NCCL: without a limit only the stream waits, with one the CPU
    return monotonic()


def roll_call(rank, ranks):
    """Say which ranks do not answer. A neighbour may have failed only because it waited for another rank."""
    calls, silent = [], [0] if rank else list(range(1, ranks))
    for other in silent:
        with suppress(RuntimeError):  # raised if the other has ended
            calls.append((other, (dist.isend if rank else dist.irecv)(torch.zeros(1), other)))
    for other, call in calls:
        with suppress(RuntimeError):
            call.wait()
            silent.remove(other)
    what = f"no answer from rank {', '.join(map(str, silent))}" if silent else "an exchange failed: see the other ranks"
    return f"error: rank {rank}: {what}"


def run(field, frames):
    dist.init_process_group("gloo", timeout=3 * LIMIT)  # also for the roll call, which others may begin later
    rank, ranks, plan = dist.get_rank(), dist.get_world_size(), [field and (field.shape, field.device, frames)]
    dist.broadcast_object_list(plan)
    (rows, cols, _), first, frames = plan[0]
    device = "cpu" if first is None else f"cuda:{(first + int(os.environ['LOCAL_RANK'])) % torch.cuda.device_count()}"
    if first is not None:  # rank 0 uses the renderer's GPU, the others the next ones
        torch.cuda.set_device(device)
    group, since = dist.new_group(backend="gloo" if first is None else "nccl", timeout=LIMIT), monotonic()
    top, end = (edges := [rows * r // ranks for r in range(ranks + 1)])[rank : rank + 2]
    x, z = torch.linspace(-1, 1, cols, device=device), torch.linspace(-1, 1, rows, device=device)[top:end, None]
    now, before = (torch.zeros(end - top + 2, cols + 2, device=device) for _ in range(2))  # with the neighbours' rows
    near = [to for to in ((1, 0, rank - 1), (-2, -1, rank + 1)) if 0 <= to[2] < ranks]  # row to send, to receive, rank
    try:
        for n, frame in enumerate(field.frames(frames) if field else count() if frames is None else range(frames)):
            far = (x + 0.8 - n * 7 % 160 / 100) ** 2 + (z + 0.8 - n * 3 % 160 / 100) ** 2
            now[1:-1, 1:-1] -= (12 - 400 * far).clip(0) / cols * (n % 40 == 0)  # a drop falls
            for _ in range(STEPS):
                halo = [job for i, j, r in near for job in ((dist.isend, now[i], r), (dist.irecv, now[j], r))]
                since = exchange(group, since, halo)
                middle, around = now[1:-1, 1:-1], now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
                before[1:-1, 1:-1] = 0.999 * (2 * middle - before[1:-1, 1:-1] + 0.25 * (around - 4 * middle))
                now, before = before, now
            # No copy: rank 0 receives the others' strips in the renderer's memory.
            v = torch.from_dlpack(frame) if field else torch.zeros(end - top, cols, 4, device=device)
            strip, height = v[: end - top], now[1:-1, 1:-1]
            strip[..., 0], strip[..., 1], strip[..., 2], strip[..., 3] = x, height, z, 0.5 + 2 * height
            strips = [(dist.irecv, v[edges[r] : edges[r + 1]], r) for r in range(1, ranks)]
            since = exchange(group, since, strips if field else [(dist.isend, strip, 0)], LIMIT)  # before the hand-over
    except RuntimeError:
        return roll_call(rank, ranks)
    return dist.destroy_process_group()


def main() -> None:
    failure = None
    with show(__doc__) if os.environ.get("RANK", "0") == "0" else suppress(KeyboardInterrupt) as shown:
        failure = run(shown[0], shown[1].frames) if shown else run(None, None)
    if failure:  # NCCL's threads still wait for the rank that failed, and may crash at the usual exit
        os.write(2, f"{failure}\n".encode())
        os._exit(1)


if __name__ == "__main__":
    main()
