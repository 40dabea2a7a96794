// LSTM, GRU and RNN of several layers with dropout between them, drawing by sample.
#pragma once

#include <c10/core/DispatchKey.h>

namespace torch {
class Library;
}

namespace onebatch {

/// Kernels of aten::lstm, gru, rnn_tanh and rnn_relu: where they drop, layer by layer with the masks of keyed_noise(),
/// whose rows are samples whether time or batch comes first; else LibTorch's own. Packed sequences, which do not tell
/// whose their rows are, are refused there.
void register_recurrent(torch::Library& library, c10::DispatchKey key);

}  // namespace onebatch
