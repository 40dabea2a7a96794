// sample_noise() (trainer/models/sample_dropout.hpp) on a GPU: compiled for the card at run time, and by the tests'
// compiler, which plays the card.
typedef unsigned long long Bits;

// splitmix64's finaliser, as mix_bits() of trainer/base/mix_bits.hpp.
__device__ inline Bits mixed(Bits x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Of a sample's elements all dimensions but the last one make a row. `stride`: how many rows each of them, the samples
// before them, is apart.
struct Rows {
  unsigned count;  // of all samples
  unsigned dimensions;
  unsigned stride[8];
  Bits width;
};

// key[0] is of the seed and the step, then the samples come.
__device__ inline Bits key_of_row(const Bits* key, Bits layer, const Rows& rows, unsigned row) {
  const unsigned sample = row / rows.stride[0];
  unsigned left = row % rows.stride[0];
  Bits made = mixed(mixed(key[0] ^ layer) ^ key[1 + sample]);
  for (unsigned i = 1; i < rows.dimensions; ++i) {
    made = mixed(made ^ (Bits)(left / rows.stride[i]));
    left %= rows.stride[i];
  }
  return made;
}

// A row for each line of a block, its elements for the line's threads, and for as many blocks beside each other.
template <typename Element>
__device__ inline void fill(Element* out, const Bits* key, Bits layer, Rows rows, Bits threshold, Element kept) {
  for (Bits row = blockIdx.x * (Bits)blockDim.y + threadIdx.y; row < rows.count; row += gridDim.x * (Bits)blockDim.y) {
    const Bits own = key_of_row(key, layer, rows, (unsigned)row);
    Element* const line = out + row * rows.width;
    for (Bits j = blockIdx.y * (Bits)blockDim.x + threadIdx.x; j < rows.width; j += gridDim.y * (Bits)blockDim.x)
      line[j] = (mixed(own + j) >> 32) < threshold ? Element(0) : kept;
  }
}

extern "C" __global__ void noise_of_2_bytes(unsigned short* out, const Bits* key, Bits layer, Rows rows, Bits threshold,
                                            unsigned short kept) {
  fill(out, key, layer, rows, threshold, kept);
}

extern "C" __global__ void noise_of_4_bytes(unsigned* out, const Bits* key, Bits layer, Rows rows, Bits threshold,
                                            unsigned kept) {
  fill(out, key, layer, rows, threshold, kept);
}

extern "C" __global__ void noise_of_8_bytes(Bits* out, const Bits* key, Bits layer, Rows rows, Bits threshold,
                                            Bits kept) {
  fill(out, key, layer, rows, threshold, kept);
}
