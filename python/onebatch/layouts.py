"""How images lie where LibTorch's convolutions are quick on a CPU."""
import torch

aten = torch.ops.aten


def is_depthwise(node):
    """The backward of a convolution of each channel alone."""
    if node.target is not aten.convolution_backward.default:
        return False
    images, transposed, groups = node.args[1].meta["val"], node.args[7], node.args[9]
    return images.dim() == 4 and not transposed and groups > 1 and groups == images.shape[1]


def lying(graph, node, memory_format):
    """A copy, which is made where the values are."""
    copy = graph.call_function(aten.clone.default, (node,), {"memory_format": memory_format})
    copy.meta["val"] = node.meta["val"].clone(memory_format=memory_format)
    return copy


def channels_last_backward(program):
    """For the weights of a depthwise convolution oneDNN has a kernel of its own where channels lie last; where they do not it copies each image once for each of the weights. Changes the
    program; returns it."""
    graph = program.graph_module.graph
    for node in filter(is_depthwise, list(graph.nodes)):
        with graph.inserting_before(node):
            for place in (0, 1):
                node.update_arg(place, lying(graph, node.args[place], torch.channels_last))
        for made in list(node.users):
            if made.args[1] != 0:
                continue
            with graph.inserting_after(made):
                as_before = lying(graph, made, torch.contiguous_format)
            made.replace_all_uses_with(as_before, delete_user_cb=lambda user, copy=as_before: user is not copy)
    graph.lint()
    program.graph_module.recompile()
    return program
