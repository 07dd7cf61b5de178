"""A small network learns the phase of a wave from pictures alone, with PyTorch.

Each frame shows a wave of random phase, and eight cameras near each other look at it. On the GPU, wave, pictures and
network stay there. The printed error is that of pictures the network has not seen before.
"""

import math

import torch

from _cli import show

VIEWS, SIZE, KEPT, BATCH = 8, 40, 128, 128  # views a frame, pixels a side, frames to learn from, pictures a step


def network():  # sine and cosine of the phase, from pictures
    layers = []
    for seen, found in ((3, 16), (16, 32), (32, 32)):
        layers += [torch.nn.Conv2d(seen, found, 5, stride=2, padding=2), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(32 * (SIZE // 8) ** 2, 2))


def main() -> None:
    with show(__doc__) as (field, options):
        rows, cols, _ = field.shape
        device = "cpu" if field.device is None else f"cuda:{field.device}"
        torch.manual_seed(1)
        learner = network().to(device)
        optimiser = torch.optim.Adam(learner.parameters(), lr=1e-3)
        x, z = torch.linspace(-1, 1, cols, device=device), torch.linspace(-1, 1, rows, device=device)[:, None]
        pictures = torch.empty(KEPT * VIEWS, 3, SIZE, SIZE, device=device)
        answers = torch.empty(KEPT * VIEWS, 2, device=device)
        errors = torch.empty(100, device=device)
        for frame in field.frames(options.frames):
            phase = torch.rand((), device=device) * 2 * math.pi
            wave = torch.sin(5 * x + 3 * z + phase)
            v = torch.from_dlpack(frame)  # no copy: this is the renderer's memory
            v[..., 0], v[..., 1], v[..., 2], v[..., 3] = x, 0.2 * wave, z, 0.5 + 0.5 * wave
            frame.hand_over()
            cameras = torch.tensor([0.5, 0.6, 2.6, 0, 0, 0]) + 0.1 * torch.randn(VIEWS, 6)
            seen = torch.from_dlpack(field.render(cameras=cameras, size=(SIZE, SIZE)))  # no copy either
            new = slice(frame.index % KEPT * VIEWS, (frame.index % KEPT + 1) * VIEWS)
            pictures[new] = seen[..., :3].permute(0, 3, 1, 2) / 255 - 0.5
            answers[new] = torch.stack((phase.sin(), phase.cos()))
            with torch.no_grad():
                sine, cosine = learner(pictures[new]).T
                off = (torch.atan2(sine, cosine) - phase + math.pi) % (2 * math.pi) - math.pi
                errors[frame.index % 100] = off.abs().mean()
            for _ in range(2):
                some = torch.randint(min(frame.index + 1, KEPT) * VIEWS, (BATCH,), device=device)
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(learner(pictures[some]), answers[some]).backward()
                optimiser.step()
            if frame.index % 100 == 99:
                print(f"frame {frame.index}: {math.degrees(errors.mean()):.1f} degrees off", flush=True)


if __name__ == "__main__":
    main()
