# SPDX-License-Identifier: Apache-2.0
"""A case of torch_backend.py: training with DistributedDataParallel on the backend `farandole`."""
import hashlib

import torch
import torch.distributed as dist


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                               torch.nn.Flatten(), torch.nn.Linear(512, 10))


def train(model, images, labels, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()


def data_parallel_training(place):
    """Each rank trains on its part of a batch: all get the parameters of one process that trains on the whole batch."""
    size = dist.get_world_size()
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(16 * size, 3, 16, 16, generator=generator).to(place.device)
    labels = torch.randint(0, 10, (16 * size,), generator=generator).to(place.device)
    alone = model_of(1).to(place.device)
    train(alone, images, labels)
    expected = parameters_of(alone)
    part = slice(16 * dist.get_rank(), 16 * (dist.get_rank() + 1))
    furthest = 0.0
    for views in (False, True):
        # Small buckets, so that several are reduced during the backward pass. Ranks start with different parameters.
        model = torch.nn.parallel.DistributedDataParallel(model_of(1 + dist.get_rank()).to(place.device), bucket_cap_mb=0.01,
                                                          gradient_as_bucket_view=views)
        train(model, images[part], labels[part])
        found = parameters_of(model)
        furthest = max(furthest, (found - expected).abs().max().item())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        digests = [None] * size
        dist.all_gather_object(digests, hashlib.sha256(found.numpy().tobytes()).hexdigest())
        assert len(set(digests)) == 1, f"the ranks' parameters differ: {digests}"
    return f"the largest difference to one process is {furthest:.1e}"
