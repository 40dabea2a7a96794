#include "trainer/replica/examine.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/graph/examiner.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/replica/unfit_samples.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>

namespace onebatch {
namespace {

using Samples = std::vector<std::int64_t>;

// A model of its own on the host, run on a few samples.
class Subject {
 public:
  Subject(const Configuration& configuration, const Dataset& data)
      : data_(data),
        type_(scalar_type(configuration.precision.parameters)),
        validates_(configuration.data.validation || configuration.data.sampling.validation_fraction > 0.0),
        takes_targets_(targets_of(configuration.loss) == Targets::none),
        seed_(configuration.run.seed),
        model_(make_model_for(configuration, data, c10::Device(c10::kCPU), type_)) {}

  Model& model() { return *model_; }
  [[nodiscard]] bool validates() const { return validates_; }

  std::vector<at::Tensor> inputs_of(const Samples& samples) const {
    const Batch batch = data_.gather(samples, type_ == at::kDouble ? at::kDouble : at::kFloat);
    std::vector<at::Tensor> inputs = takes_targets_ ? batch.tensors() : batch.inputs;
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      if (inputs[i].is_floating_point()) inputs[i] = inputs[i].to(type_);
    }
    return inputs;
  }

  void forward(const Samples& samples, const std::vector<at::Tensor>& inputs) {
    model_->run(inputs, {seed_, 0, samples});
  }

  // Buffers by their bits.
  std::map<std::string, std::string> state() const {
    std::map<std::string, std::string> state;
    for (const auto& [name, tensor] : model_->buffers()) {
      const auto bytes = host_bytes(tensor);
      state[name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return state;
  }

  void set_state(const std::map<std::string, std::string>& state) {
    for (const auto& [name, tensor] : model_->buffers())
      copy_from_bytes(tensor, std::as_bytes(std::span(state.at(name))));
  }

  std::map<std::string, std::string> attributes() const {
    std::map<std::string, std::string> attributes;
    for (const auto& [name, text] : model_->attributes()) attributes[name] = text;
    return attributes;
  }

 private:
  const Dataset& data_;
  at::ScalarType type_;
  bool validates_;
  bool takes_targets_;
  std::uint64_t seed_;
  std::unique_ptr<Model> model_;
};

using State = std::map<std::string, std::string>;

// The model's own moving statistics, and what counts their batches.
std::set<std::string> with_counters(const std::set<std::string>& statistics, const Model& model) {
  std::set<std::string> all = statistics;
  for (const auto& [name, tensor] : model.buffers()) {
    const bool counts = !tensor.is_floating_point() && name.ends_with("num_batches_tracked");
    const bool beside =
        std::ranges::any_of(statistics, [&](const std::string& other) { return parent_of(other) == parent_of(name); });
    if (counts && beside) all.insert(name);
  }
  return all;
}

class Examining {
 public:
  Examining(const Configuration& configuration, const Dataset& data) : subject_(configuration, data) {
    const auto size = data.size();
    const auto of = [&](std::int64_t first) {
      Samples samples(static_cast<std::size_t>(std::min<std::int64_t>(2, size)));
      for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = (first + static_cast<std::int64_t>(i)) % size;
      return samples;
    };
    some_ = of(0);
    others_ = of(2);
  }

  [[nodiscard]] const Samples& samples() const { return some_; }

  Examination run() {
    const State before = subject_.state();
    const State attributes = subject_.attributes();
    const std::vector<at::Tensor> inputs = subject_.inputs_of(some_);
    Examiner examiner(subject_.model(), inputs);
    watch_calls([&](const c10::OperatorHandle& op, torch::jit::Stack* stack) { examiner.record(op, stack); },
                [&] { subject_.forward(some_, inputs); });
    result_.examined = true;
    result_.findings = examiner.findings();
    result_.batch_norm_layers = examiner.batch_norm_layers();
    const auto statistics = with_counters(examiner.statistics(), subject_.model());
    result_.batch_norm_statistics.assign(statistics.begin(), statistics.end());
    for (const auto& [name, text] : subject_.attributes()) {
      const auto old = attributes.find(name);
      if (old == attributes.end() || old->second != text)
        result_.findings.push_back({Trait::hidden_state, "", "", name});
    }
    judge_buffers(examiner, before);
    if (subject_.validates()) examine_validation(inputs);
    return result_;
  }

 private:
  void judge_buffers(const Examiner& examiner, const State& before) {
    const State after = subject_.state();
    std::set<std::string> changed;
    for (const auto& [name, tensor] : subject_.model().buffers()) {
      if (after.at(name) != before.at(name) || examiner.writes().contains(name)) changed.insert(name);
    }
    for (const std::string& name : result_.batch_norm_statistics) changed.erase(name);
    if (changed.empty()) return;
    const auto made = subject_.model().buffers();
    subject_.set_state(before);
    subject_.forward(others_, subject_.inputs_of(others_));
    const State otherwise = subject_.state();
    subject_.forward(others_, subject_.inputs_of(others_));
    const State once_more = subject_.state();
    for (const auto& [name, tensor] : made) {
      if (!changed.contains(name)) continue;
      const auto write = examiner.writes().find(name);
      const bool written = write != examiner.writes().end();
      const auto place = written ? write->second.place : examiner.maker_of(tensor);
      const bool from_data =
          (written && write->second.from_data) || examiner.is_from_data(tensor) || otherwise.at(name) != after.at(name);
      if (from_data)
        result_.findings.push_back({Trait::keeps_data, place.op, place.layer, name});
      else if (once_more.at(name) != otherwise.at(name))
        result_.findings.push_back({Trait::counts_forwards, place.op, place.layer, name});
    }
  }

  void examine_validation(const std::vector<at::Tensor>& inputs) {
    const at::NoGradGuard no_grad;
    subject_.model().set_phase(Phase::evaluation);
    Examiner examiner(subject_.model(), inputs);
    watch_calls([&](const c10::OperatorHandle& op, torch::jit::Stack* stack) { examiner.record(op, stack); },
                [&] { subject_.forward(some_, inputs); });
    for (const std::string& layer : examiner.batch_norm_layers())
      result_.findings.push_back({Trait::validates_by_batch, {}, layer, {}});
  }

  Subject subject_;
  Samples some_;
  Samples others_;
  Examination result_;
};

}  // namespace

Examination examine(const Configuration& configuration, const Dataset& data) {
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  const SavedGenerators generators;
  const at::AutoGradMode with_gradients(true);
  Examining examining(configuration, data);
  try {
    return examining.run();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    // What the model cannot do here it cannot do in a step either, whose error says it where it belongs.
    Examination nothing;
    nothing.why_not = own_words(error);
    if (is_outside_a_table(nothing.why_not))
      refuse_samples(data.gather(examining.samples(), at::kFloat), data, configuration, nothing.why_not);
    return nothing;
  }
}

}  // namespace onebatch
