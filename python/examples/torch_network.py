"""A small network learns a landscape that never stops changing, with PyTorch.

Each frame takes a few steps of training, and shows the network's surface. Where the network is wrong, it is bright.
"""

import math

import torch

from _cli import show

BATCH, STEPS = 1 << 14, 4  # points a step of training, steps a frame


class Sine(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)


def network(width=96):
    """Return height from x and z: a network with sines for activations (SIREN)."""
    layers = [torch.nn.Linear(2, width), torch.nn.Linear(width, width), torch.nn.Linear(width, width)]
    for layer, bound in zip(layers, (4.0, math.sqrt(6 / width), math.sqrt(6 / width)), strict=True):
        torch.nn.init.uniform_(layer.weight, -bound, bound)
    hidden = [module for layer in layers for module in (layer, Sine())]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(width, 1), torch.nn.Flatten(0))


def landscape(points, time):  # hills that wander, and rings around the middle
    x, z = points[..., 0], points[..., 1]
    rings = torch.cos(11 * torch.hypot(x, z) - 2 * time) * torch.exp(-2.5 * (x * x + z * z))
    hills = torch.sin(3.1 * x + 0.7 * time) * torch.cos(2.3 * z - 0.4 * time)
    return 0.14 * rings + 0.13 * hills


def main() -> None:
    with show(__doc__) as (field, options):
        rows, cols, _ = field.shape
        device = "cpu" if field.device is None else f"cuda:{field.device}"
        torch.manual_seed(1)
        learner = network().to(device)
        optimiser = torch.optim.Adam(learner.parameters(), lr=2e-3)
        z, x = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, cols), indexing="ij")
        grid = torch.stack((x, z), -1).to(device)
        for frame in field.frames(options.frames):
            v = torch.from_dlpack(frame)  # no copy: this is the renderer's memory
            for _ in range(STEPS):
                points = torch.rand(BATCH, 2, device=device) * 2 - 1
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(learner(points), landscape(points, frame.time)).backward()
                optimiser.step()
            with torch.no_grad():
                height = learner(grid.view(-1, 2)).view(rows, cols)
                v[..., 0], v[..., 1], v[..., 2] = grid[..., 0], height.clamp(-0.4, 0.4), grid[..., 1]
                v[..., 3] = 0.4 + 1.3 * height + 5 * (height - landscape(grid, frame.time)).abs()


if __name__ == "__main__":
    main()
