// How a model's tensors lie in memory. Optimizers and reductions walk over a parameter from its first byte to its last,
// in whatever order its elements lie (channels_last stays channels_last): that needs parameters without gaps, each with
// memory of its own.
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

/// Gives parameters that have gaps dense memory. Throws UserError that names a parameter whose elements share memory
/// with one another (expanded), or with another parameter or buffer, as long as training changes them.
void give_dense_memory(const Model& model);

/// Puts parameters of four dimensions, which are the weights of convolutions over images, into channels_last. In place:
/// before gradients and optimizer are made after them.
void put_in_channels_last(const Model& model);

/// An input that is a batch of images in channels_last, any other as it is.
at::Tensor images_in_channels_last(const at::Tensor& input);

/// An element of `tensor` as the memory holds it: [numel], no copy. The tensor is dense.
at::Tensor in_memory_order(const at::Tensor& tensor);

/// `tensor` with the strides of `like`, which is dense: itself where it has them.
at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& tensor);

/// Whether two dense tensors of one shape hold their elements in the same order.
bool same_order(const at::Tensor& one, const at::Tensor& other);

}  // namespace onebatch
