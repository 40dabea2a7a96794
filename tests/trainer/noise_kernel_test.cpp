// The kernel's text, compiled by this compiler, which plays the card: block after block, thread after thread.
#include "trainer/models/sample_dropout.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

struct Three {
  unsigned x = 1;
  unsigned y = 1;
};
Three gridDim;
Three blockDim;
Three blockIdx;
Three threadIdx;

#define __device__
#define __global__
#include "trainer/device/noise_kernel.cu"
#undef __global__
#undef __device__

template <typename Work>
void play(Three grid, Three block, Work work) {
  gridDim = grid;
  blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
      for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) work();
}

// The last of a sample's dimensions is a row; the others count rows.
Rows rows_of(const std::vector<std::int64_t>& of_sample, std::int64_t samples) {
  Rows rows{};
  rows.width = of_sample.empty() ? 1 : static_cast<Bits>(of_sample.back());
  rows.dimensions = of_sample.empty() ? 1 : static_cast<unsigned>(of_sample.size());
  unsigned apart = 1;
  for (unsigned i = rows.dimensions; i-- > 1; apart *= static_cast<unsigned>(of_sample[i - 1])) rows.stride[i] = apart;
  rows.stride[0] = apart;
  rows.count = static_cast<unsigned>(samples) * apart;
  return rows;
}

struct Case {
  std::vector<std::int64_t> of_sample;
  Three grid;
};

class NoiseKernelTest : public testing::TestWithParam<Case> {
 protected:
  template <typename Element>
  void expect_as_the_host(void (*kernel)(Element*, const Bits*, Bits, Rows, Bits, Element), Element kept) const {
    const ForwardContext context{7, 11, samples_};
    std::vector<std::int64_t> sizes = GetParam().of_sample;
    sizes.insert(sizes.begin(), std::ssize(samples_));
    const at::Tensor expected = sample_noise(sizes, k_probability, 3, context);
    const at::Tensor key = noise_key(context);
    const auto* const bits = reinterpret_cast<const Bits*>(key.const_data_ptr<std::int64_t>());
    std::vector<Element> found(static_cast<std::size_t>(expected.numel()), Element(0x55));
    play(GetParam().grid, {32, 8}, [&] {
      kernel(found.data(), bits, 3, rows_of(GetParam().of_sample, std::ssize(samples_)),
             static_cast<Bits>(std::ldexp(k_probability, 32)), kept);
    });
    const float* const first = expected.const_data_ptr<float>();
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], first[i] == 0.0F ? Element(0) : kept) << "element " << i;
  }

  static constexpr double k_probability = 0.37;
  const std::vector<std::int64_t> samples_ = {5, std::int64_t{1} << 41, 0, 5};
};

TEST_P(NoiseKernelTest, draws_the_bits_of_the_host) {
  expect_as_the_host<unsigned short>(&noise_of_2_bytes, 0x3c00);
  expect_as_the_host<unsigned>(&noise_of_4_bytes, 0x3f800000);
  expect_as_the_host<Bits>(&noise_of_8_bytes, 0x3ff0000000000000);
}

INSTANTIATE_TEST_SUITE_P(shapes, NoiseKernelTest,
                         testing::Values(Case{{}, {1, 1}}, Case{{1}, {1, 1}}, Case{{500}, {1, 1}}, Case{{500}, {1, 7}},
                                         Case{{3, 41}, {1, 1}}, Case{{3, 41}, {2, 2}}, Case{{12, 9, 9}, {5, 1}},
                                         Case{{2, 1, 3, 1, 2, 3, 2, 5}, {3, 1}}, Case{{64, 1, 1}, {4, 1}}));

}  // namespace
}  // namespace onebatch
