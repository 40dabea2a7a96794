// An exponential moving average of the weights: a <- d a + (1 - d) w after each update, from the weights that a run
// begins with (Polyak and Juditsky, 1992; as timm's ModelEmaV3 and torch.optim.swa_utils.get_ema_avg_fn have it).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onebatch {

class WeightAverage {
 public:
  explicit WeightAverage(double decay) : decay_(decay) {}

  /// A parameter: `own` is the model's tensor, `updated` what the optimizer updates, which is another one where there
  /// are master weights. The average is of float64 where that is, else of float32, and begins with its value.
  void add(const at::Tensor& own, const at::Tensor& updated);
  /// After the optimizer's update, of all parameters: those that it has not touched have been what they are.
  void update();
  /// Begins anew with the weights as they are.
  void begin();
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return averages_; }

  /// Puts the average into the model, in its own type, and back again what was trained, bit for bit. Takes the memory
  /// of the largest parameter in between; of parameters in 16 bits without masters that of all.
  void show();
  void hide();

 private:
  void swap(std::size_t index);
  [[nodiscard]] bool has_master(std::size_t index) const { return !own_[index].is_same(updated_[index]); }
  [[nodiscard]] bool is_widened(std::size_t index) const;
  [[nodiscard]] std::vector<at::Tensor> weights() const;

  double decay_;
  std::vector<at::Tensor> own_;
  std::vector<at::Tensor> updated_;
  std::vector<at::Tensor> averages_;
  std::vector<at::Tensor> kept_;  // of those that are widened, while the average is shown
};

}  // namespace onebatch
