// The gradient of all parameters in one flat buffer, of which every parameter's `.grad` is a view, or to which it is
// added as it arrives.
#pragma once

#include "trainer/gradients/reproducible_sum.hpp"
#include "trainer/models/model.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

namespace onebatch {

/// Buckets of at most `cap_bytes` (at least one element) that cover `num_elements`. Their bounds change no result: a
/// sum over ranks is by element.
std::vector<Bucket> make_buckets(std::int64_t num_elements, std::int64_t element_bytes, std::int64_t cap_bytes);

struct GradientOptions {
  at::ScalarType type = at::kFloat;  // of the sum
  bool reproducible = false;         // see Note [Bitwise]
  // Host memory in which what the ranks sum lies (bytes_needed()); null: on the parameters' device.
  std::byte* storage = nullptr;
};

enum class Begin { zeroed, unwritten };

class FlatGradients {
  struct Watched {
    std::vector<double> touched;
    std::vector<bool> reached;  // since begin_backward()
    std::function<void(std::size_t)> listener;
    int pauses = 0;
  };

 public:
  /// Gives every parameter a `.grad` in the flat buffer (each begins at a multiple of 64 bytes) and a hook that notes
  /// when it was touched. A parameter of another type than the sum's, and every one where the sum is reproducible, has
  /// no `.grad` between backwards: the hook adds what has arrived.
  FlatGradients(const std::vector<NamedTensor>& parameters, const GradientOptions& options);
  /// Of parameters of one type, in that type.
  explicit FlatGradients(const std::vector<NamedTensor>& parameters, std::byte* storage = nullptr);
  ~FlatGradients();
  FlatGradients(const FlatGradients&) = delete;
  FlatGradients& operator=(const FlatGradients&) = delete;

  static std::size_t bytes_needed(const std::vector<NamedTensor>& parameters, const GradientOptions& options);

  [[nodiscard]] const at::Tensor& flat() const { return written(); }
  /// What ranks sum: the flat buffer itself, or what it is made of.
  [[nodiscard]] const at::Tensor& summed() const { return reproducible_ ? reproducible_->sums() : written(); }
  /// Null where the sum is an ordinary one.
  [[nodiscard]] ReproducibleSum* reproducible() { return reproducible_ ? &*reproducible_ : nullptr; }
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// The views, in the order of the parameters, each with its parameter's own strides (channels last stays so).
  [[nodiscard]] const std::vector<at::Tensor>& views() const {
    written();
    return views_;
  }
  /// Where each parameter's gradient lies in the flat buffer, in elements.
  [[nodiscard]] const std::vector<Bucket>& extents() const { return extents_; }
  /// Told of each parameter, by its index, when a backward has accumulated its gradient: once per backward, on the
  /// thread that did. None ends it.
  void set_listener(std::function<void(std::size_t)> listener);
  [[nodiscard]] bool has_listener() const { return watched_->listener != nullptr; }
  /// Adds to a parameter's gradient what no backward will: a tensor of as many elements. A tensor that is none of the
  /// parameters is left alone.
  void add(const at::Tensor& parameter, const at::Tensor& gradient);
  /// The place of a parameter; none where it has no gradient here.
  [[nodiscard]] std::optional<std::size_t> index_of(const at::Tensor& parameter) const;
  /// Whether what is added to a parameter's view is in its gradient.
  [[nodiscard]] bool is_view(std::size_t index) const;
  /// As a backward would have noted, and told, that added to a parameter's view.
  void note_added(std::size_t index);
  /// Begins to note which parameters a backward reaches.
  void begin_backward();
  /// As a backward that reached these parameters would have noted, of one that was not run here but repeated. The
  /// listener is told nothing.
  void note_reached(const std::vector<std::size_t>& parameters);
  /// Parameters, by index, that one has reached since.
  [[nodiscard]] std::vector<std::size_t> reached() const;
  /// Parameters, by index, that none has reached since; of `of` alone where it is given.
  [[nodiscard]] std::vector<std::size_t> not_reached(const std::optional<std::vector<std::size_t>>& of) const;

  /// While one lives the listener is told nothing.
  class ListenerPause {
   public:
    explicit ListenerPause(FlatGradients& gradients) : watched_(*gradients.watched_) { ++watched_.pauses; }
    ~ListenerPause() { --watched_.pauses; }
    ListenerPause(const ListenerPause&) = delete;
    ListenerPause& operator=(const ListenerPause&) = delete;

   private:
    Watched& watched_;
  };

  /// While one lives a parameter has no `.grad`, and what arrives is added for many parameters at a time: on a device a
  /// launch each costs more than the sum. Changes nothing where a listener has to hear of each, or the sum is
  /// reproducible.
  class Gathering {
   public:
    static constexpr std::int64_t k_most_bytes = std::int64_t{16} << 20;  // of what waits

    explicit Gathering(FlatGradients& gradients, std::int64_t most_bytes = k_most_bytes);
    /// After a backward that threw: what it has noted as reached is added.
    ~Gathering();
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;
    /// After the backward.
    void finish();

   private:
    void end();

    FlatGradients& gradients_;
  };

  /// One flag per parameter: 1.0 once a backward of this step has reached it. A sum over ranks says whether any has.
  [[nodiscard]] const std::vector<double>& touched() const;

  /// After the last backward of a step, before what is summed travels.
  void complete_sum();
  /// After the ranks have summed: flat() is the sum, divided.
  void finish_sum(double divisor);

  /// Zeroes buffer and flags, and throws std::logic_error where a parameter's `.grad` is no longer its view.
  /// `unwritten`: in host memory the buffer stays what it is until zero_unwritten(), which whoever adds to it by
  /// `.grad` calls before; each other function of this class does so itself.
  void begin_step(Begin how = Begin::zeroed);
  /// Zeroes what begin_step() has left, but for the parameters `but`, to each of which the caller then writes instead
  /// of adding. False: all was zeroed before, and the caller adds.
  bool zero_unwritten(const std::vector<std::size_t>& but = {}) const;

 private:
  const at::Tensor& written() const {
    if (is_unwritten_) zero_unwritten();
    return flat_;
  }
  struct Gathered {
    std::int64_t most_bytes = 0;
    std::int64_t bytes = 0;
    std::vector<at::Tensor> views;
    std::vector<at::Tensor> arrived;  // of each view
  };

  [[nodiscard]] bool tells() const { return watched_->listener && watched_->pauses == 0; }
  void check_views() const;
  void take(std::size_t index);
  void add_gathered();

  std::vector<NamedTensor> parameters_;
  std::unordered_map<const at::TensorImpl*, std::size_t> places_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;
  std::vector<Bucket> extents_;
  std::optional<ReproducibleSum> reproducible_;
  std::shared_ptr<Watched> watched_;
  std::optional<Gathered> gathered_;
  mutable bool is_unwritten_ = false;
};

}  // namespace onebatch
