"""What a CUDA graph gives that was recorded with other numbers."""

import torch


def replayed(function, inputs, others):
    """The results of a function of `inputs`, recorded as a CUDA graph, once these have become `others`."""
    warming = torch.cuda.Stream()
    warming.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warming):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(warming)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=warming):  # autograd ties what it sets up to the current stream
        recorded = function()
    with torch.no_grad():
        for tensor, other in zip(inputs, others, strict=True):
            tensor.copy_(other)
    graph.replay()
    return [each.detach().clone() for each in recorded]
