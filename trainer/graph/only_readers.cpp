#include "trainer/graph/segments.hpp"

#include <map>

namespace onebatch {

std::vector<std::optional<std::size_t>> only_readers(const Tape& tape, const std::vector<Segment>& segments,
                                                     const std::vector<at::Tensor>& parameters) {
  std::map<const c10::TensorImpl*, std::set<std::size_t>> readers;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto note = [&](const TapeCall& call) {
      for_each_read(call, [&](Value value) {
        const auto found = tape.live.find(value);
        if (found != tape.live.end()) readers[found->second.unsafeGetTensorImpl()].insert(i);
      });
    };
    if (segments[i].begins_with_batch_norm) note(tape.calls[segments[i].batch_norm]);
    for (std::size_t call = segments[i].begin; call < segments[i].end; ++call) note(tape.calls[call]);
  }
  std::vector<std::optional<std::size_t>> only;
  for (const at::Tensor& parameter : parameters) {
    const auto found = readers.find(parameter.unsafeGetTensorImpl());
    const bool one = found != readers.end() && found->second.size() == 1;
    only.push_back(one ? std::optional(*found->second.begin()) : std::nullopt);
  }
  return only;
}

}  // namespace onebatch
