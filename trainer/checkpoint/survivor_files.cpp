#include "trainer/checkpoint/survivor_files.hpp"

#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/io/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <type_traits>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_alignment = 16;

void gather(const std::byte* from, at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t element_bytes,
            std::byte*& to) {
  if (sizes.empty()) {
    std::memcpy(to, from, element_bytes);
    to += element_bytes;
    return;
  }
  const auto step = strides.front() * static_cast<std::int64_t>(element_bytes);
  for (std::int64_t i = 0; i < sizes.front(); ++i)
    gather(from + i * step, sizes.slice(1), strides.slice(1), element_bytes, to);
}

template <typename T>
T value_at(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return static_cast<T>(static_cast<float>(value));
}

// As average_statistics() has it: in float64, and a rank of weight 0 adds nothing, whatever it has.
template <typename T>
void average(const std::vector<const std::byte*>& of_ranks, const std::vector<double>& weights,
             std::vector<std::byte>& to) {
  double total = 0.0;
  for (const double weight : weights) total += weight;
  for (std::size_t i = 0; i < to.size() / sizeof(T); ++i) {
    double sum = 0.0;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const double share = total > 0.0 ? weights[rank] / total : (rank == 0 ? 1.0 : 0.0);
      if (share != 0.0) sum += share * static_cast<double>(value_at<T>(of_ranks[rank], i));
    }
    const T value = narrowed<T>(sum);
    std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
void largest(const std::vector<const std::byte*>& of_ranks, std::vector<std::byte>& to) {
  for (std::size_t i = 0; i < to.size() / sizeof(T); ++i) {
    T value = value_at<T>(of_ranks.front(), i);
    for (const std::byte* one : of_ranks) value = std::max(value, value_at<T>(one, i));
    std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
  }
}

std::vector<std::byte> averaged(at::ScalarType type, std::size_t bytes, const std::vector<const std::byte*>& of_ranks,
                                const std::vector<double>& weights) {
  std::vector<std::byte> made(bytes);
  switch (type) {
    case at::kFloat: average<float>(of_ranks, weights, made); break;
    case at::kDouble: average<double>(of_ranks, weights, made); break;
    case at::kHalf: average<at::Half>(of_ranks, weights, made); break;
    case at::kBFloat16: average<at::BFloat16>(of_ranks, weights, made); break;
    case at::kLong: largest<std::int64_t>(of_ranks, made); break;
    case at::kInt: largest<std::int32_t>(of_ranks, made); break;
    default:
      throw std::runtime_error(std::string("running statistics of type ") + c10::toString(type) + " have no average");
  }
  return made;
}

std::vector<double> weights_of(const RunState& state, std::size_t ranks) {
  if (!state.shares.empty()) return {state.shares.begin(), state.shares.end()};
  std::vector<double> weights(ranks, 0.0);
  if (!state.plan) return weights;
  for (const RankPlan& rank : state.plan->full.ranks)
    weights.at(static_cast<std::size_t>(rank.rank)) = static_cast<double>(rank.samples);
  return weights;
}

}  // namespace

// What goes into one file. Lives until it is written.
class SurvivorFiles::Content {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
    if (tensor.is_contiguous()) return add(name, tensor, {from, tensor.nbytes()});
    std::vector<std::byte>& made = made_.emplace_back(tensor.nbytes());
    std::byte* to = made.data();
    gather(from, tensor.sizes(), tensor.strides(), static_cast<std::size_t>(tensor.element_size()), to);
    add(name, tensor, made);
  }
  void add(const std::string& name, const at::Tensor& like, OwnBytes bytes) {
    const char* dtype = dtype_of_type(like.scalar_type());
    if (dtype == nullptr) throw std::runtime_error(name + ": a tensor of its type cannot be saved");
    views_.push_back({name, dtype, like.sizes().vec(), bytes});
  }
  void add_made(const std::string& name, const at::Tensor& like, std::vector<std::byte> bytes) {
    add(name, like, made_.emplace_back(std::move(bytes)));
  }

  void add_to(ChecksumStream& stream) const {
    for (const SafetensorsView& view : views_) {
      stream.update(std::as_bytes(std::span(view.name)));
      stream.update(view.bytes);
    }
  }
  static TensorsWriter writer(std::shared_ptr<Content> content) {
    return [content = std::move(content)](const fs::path& file, const Metadata& metadata) {
      return write_safetensors(file, content->views_, metadata);
    };
  }

 private:
  std::vector<SafetensorsView> views_;
  std::deque<std::vector<std::byte>> made_;
};

SurvivorFiles::SurvivorFiles(const Replica& replica, GeneratorStates generator_states)
    : model_(replica.model->state_dict()),
      optimizer_(replica.optimizer.state()),
      device_(replica.device.device()),
      is_local_(!replica.own_statistics().empty()),
      generator_states_(generator_states) {
  const auto& names = replica.running_statistics;
  for (const NamedTensor& buffer : replica.model->buffers()) {
    const bool changes = replica.has_batch_statistics && std::ranges::find(names, buffer.name) != names.end();
    if (changes)
      add_piece(statistics_, buffer);
    else
      steady_.push_back(buffer);
  }
  for (const NamedTensor& parameter : replica.model->parameters()) steady_.push_back(parameter);
  steady_.insert(steady_.end(), optimizer_.begin(), optimizer_.end());
  for (const NamedTensor& generator : onebatch::generator_states(device_)) add_piece(generators_, generator);
  note_versions();
}

void SurvivorFiles::add_piece(std::vector<Piece>& pieces, const NamedTensor& tensor) {
  pieces.push_back({tensor.name, tensor.tensor, own_bytes_, tensor.tensor.nbytes()});
  own_bytes_ += (tensor.tensor.nbytes() + k_alignment - 1) / k_alignment * k_alignment;
}

void SurvivorFiles::write_own(std::span<std::byte> to) const {
  const auto put = [&](const Piece& piece, const at::Tensor& tensor) {
    const at::Tensor host = tensor.detach().cpu().contiguous();
    if (host.nbytes() != piece.bytes) throw std::logic_error(piece.name + " has another size than before");
    if (piece.bytes > 0) std::memcpy(to.data() + piece.begin, host.const_data_ptr(), piece.bytes);
  };
  for (const Piece& piece : statistics_) put(piece, piece.tensor);
  const auto states = generator_states(device_);
  for (std::size_t i = 0; i < generators_.size(); ++i) put(generators_[i], states.at(i).tensor);
}

void SurvivorFiles::note_versions() {
  versions_.resize(steady_.size());
  for (std::size_t i = 0; i < versions_.size(); ++i)
    versions_[i] = steady_[i].tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

std::string SurvivorFiles::changed_tensor() const {
  for (std::size_t i = 0; i < versions_.size(); ++i) {
    if (steady_[i].tensor.unsafeGetTensorImpl()->version_counter().current_version() != versions_[i])
      return steady_[i].name;
  }
  return {};
}

const SurvivorFiles::Piece* SurvivorFiles::statistic(const at::Tensor& tensor) const {
  const auto found = std::ranges::find_if(statistics_, [&](const Piece& piece) {
    return piece.tensor.is_same(tensor) ||
           (piece.bytes > 0 && piece.tensor.const_data_ptr() == tensor.const_data_ptr());
  });
  return found == statistics_.end() ? nullptr : &*found;
}

Digest SurvivorFiles::digest(RunState state, OwnBytes own) const {
  Content content;
  for (const auto& [name, tensor] : model_) {
    if (const Piece* piece = statistic(tensor); piece == nullptr)
      content.add(name, tensor);
    else if (!is_local_)
      content.add(name, tensor, own.subspan(piece->begin, piece->bytes));
  }
  for (const auto& [name, tensor] : optimizer_) content.add(name, tensor);
  ChecksumStream stream;
  content.add_to(stream);
  state.plan.reset();  // a new one is made on all ranks, but not in the same moment, and either is right
  const std::string text = to_json(state);
  stream.update(std::as_bytes(std::span(text)));
  const Checksum checksum = stream.value();
  return {checksum.high, checksum.low};
}

void SurvivorFiles::require_statistics(const std::vector<std::optional<OwnBytes>>& own) const {
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    if (!own[rank])
      throw std::runtime_error(
          fmt::format("with batch_norm.mode = \"local\" every rank has running statistics of its own, and those of "
                      "rank {} cannot be read from here",
                      rank));
  }
}

void SurvivorFiles::add_model(Content& content, const RunState& state, const std::vector<std::optional<OwnBytes>>& own,
                              int rank) const {
  const std::vector<double> weights = weights_of(state, own.size());
  for (const auto& [name, tensor] : model_) {
    const Piece* piece = statistic(tensor);
    if (piece == nullptr) {
      content.add(name, tensor);
    } else if (!is_local_) {
      content.add(name, tensor, own.at(static_cast<std::size_t>(rank)).value().subspan(piece->begin, piece->bytes));
    } else {
      std::vector<const std::byte*> of_ranks;
      for (const auto& one : own) of_ranks.push_back(one->data() + piece->begin);
      content.add_made(name, tensor, averaged(tensor.scalar_type(), piece->bytes, of_ranks, weights));
    }
  }
}

std::vector<CheckpointFile> SurvivorFiles::files(const RunState& state, const std::vector<std::optional<OwnBytes>>& own,
                                                 int rank) const {
  const auto by_rank = [&](const std::vector<Piece>& pieces) {
    auto content = std::make_shared<Content>();
    for (const Piece& piece : pieces) {
      for (std::size_t r = 0; r < own.size(); ++r)
        content->add(fmt::format("rank{}.{}", r, piece.name), piece.tensor, own[r]->subspan(piece.begin, piece.bytes));
    }
    return content;
  };
  if (is_local_) require_statistics(own);
  const bool have_all = std::ranges::all_of(own, [](const auto& one) { return one.has_value(); });
  if (generator_states_ == GeneratorStates::needed && !have_all)
    throw std::runtime_error("the model draws from a generator of each rank's own, and not all can be read from here");
  auto model = std::make_shared<Content>();
  add_model(*model, state, own, rank);
  auto optimizer = std::make_shared<Content>();
  for (const auto& [name, tensor] : optimizer_) optimizer->add(name, tensor);
  CheckpointWriters writers = {.model = Content::writer(std::move(model)),
                               .optimizer = Content::writer(std::move(optimizer))};
  if (is_local_) writers.buffers = Content::writer(by_rank(statistics_));
  if (have_all) writers.generators = Content::writer(by_rank(generators_));
  return checkpoint_files(state, std::move(writers));
}

}  // namespace onebatch
